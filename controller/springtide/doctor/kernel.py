"""Features of the kernel that the collector and the routes need, tried where possible rather than looked up."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from springtide.doctor.finding import Finding, advice, fine, fix, unknown

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLM_F_REQUEST, NLM_F_DUMP = 2, 1, 0x300
TCP_DESTROY_GROUPS = 0b101  # SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY, 1 and 3
TCP_LISTEN = 10
# tcpi_busy_time, from which completion times are computed.
OLDEST = (4, 10)
# tcpi_snd_wnd, the receiver's window, which caps the initial window.
WITH_SND_WND = (5, 4)


@dataclass(frozen=True)
class Kernel:
    """`diag_error` and `closes_error` are the kernel's errors, empty where it worked."""

    release: str
    diag_error: str = ""
    closes_error: str = ""
    network_namespaces: bool = True
    algorithms: tuple[str, ...] = ()


def gather() -> Kernel:
    algorithms = _text(Path("/proc/sys/net/ipv4/tcp_available_congestion_control")).split()
    return Kernel(
        release=os.uname().release,
        diag_error=_error_of(_dump_listeners),
        closes_error=_error_of(_subscribe_to_closes),
        network_namespaces=Path("/proc/self/ns/net").exists(),
        algorithms=tuple(algorithms),
    )


def check(seen: Kernel) -> Iterator[Finding]:
    yield _release(seen.release)
    where = "NETLINK_SOCK_DIAG"
    if seen.diag_error:
        todo = "load the modules: `modprobe -a inet_diag tcp_diag`, and list them in /etc/modules-load.d"
        yield fix("sock_diag", where, f"sockets cannot be read: {seen.diag_error}", todo)
    else:
        yield fine("sock_diag", where, "reports each socket's tcp_info")
    if seen.closes_error:
        yield fix(
            "close events",
            where,
            f"cannot be received: {seen.closes_error}",
            "use a kernel with SKNLGRP_INET_TCP_DESTROY",
        )
    else:
        yield fine("close events", where, "can be received")
    if not seen.network_namespaces:
        todo = "use a kernel with CONFIG_NET_NS, if containers are to be seen"
        yield advice("namespaces", "/proc/self/ns/net", "the kernel has no network namespaces", todo)
    if "bbr" in seen.algorithms:
        yield fine("bbr", "tcp_available_congestion_control", "is available")
    else:
        known = " ".join(seen.algorithms) or "nothing"
        todo = "`modprobe tcp_bbr`, and list it in /etc/modules-load.d, if prefixes are to use BBR"
        yield advice("bbr", "tcp_available_congestion_control", f"has {known}", todo)


def _release(release: str) -> Finding:
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None:
        return unknown("kernel", release, "is not a kernel version that can be parsed")
    version = int(found[1]), int(found[2])
    if version < OLDEST:
        return fix("kernel", release, "its tcp_info has no busy_time", "use Linux 4.10 or newer, 5.4 at best")
    if version < WITH_SND_WND:
        todo = "use Linux 5.4 or newer, or set initcwnd.receiver_cap to false"
        return advice("kernel", release, "its tcp_info has no snd_wnd, so that receivers cannot cap a window", todo)
    return fine("kernel", release, "reports every field that is read")


def _error_of(action: Callable[[], None]) -> str:
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _dump_listeners() -> None:
    """Request listening IPv4 sockets; raises OSError with the kernel's own error."""
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 1 << TCP_LISTEN) + bytes(48)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(10)
        netlink.send(header + request)
        answer = netlink.recv(65_536)
    _, kind, _, _, _ = struct.unpack_from("=IHHII", answer)
    if kind == NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", answer, 16)
        if code:
            raise OSError(-code, os.strerror(-code))


def _subscribe_to_closes() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        netlink.bind((0, TCP_DESTROY_GROUPS))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
