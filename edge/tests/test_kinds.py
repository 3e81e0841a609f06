"""Kinds of connections that begin in another way than by a plain handshake: each works, and starts with our values."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.collector import wait_until
from lab.connections import own_network
from testkit import bpf
from testkit.bpf import Program, ask

pytestmark = pytest.mark.root

NO_CAP = 0xFFFFFFFF
RATE = 5_000_000
VALUES = {"initcwnd": 30, "start_rate": RATE, "congestion": {"algorithm": "reno", "from_bytes": 100_000}}
SIZE = 500_000

MPTCP = """
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.bind(("127.0.0.1", 0))
listener.listen()
opener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
opener.connect(listener.getsockname())
accepted = listener.accept()[0]
first = [window(opener), window(accepted)]
move(opener, accepted, SIZE)
move(accepted, opener, SIZE)
# SOL_MPTCP, MPTCP_INFO: has it fallen back to TCP?
fallback = struct.unpack_from("I", opener.getsockopt(284, 1, 64), 8)[0] & 1
print(json.dumps([first, fallback, algorithm(opener), algorithm(accepted)]))
"""
FAST_OPEN = """
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.setsockopt(6, 23, 16)
listener.listen()
found = []
for _ in range(3):
    opener = socket.socket()
    # MSG_FASTOPEN: the first asks for a cookie, the others send data with it in their SYN.
    opener.sendto(bytes(500), 0x20000000, listener.getsockname())
    accepted = listener.accept()[0]
    # tcpi_options, TCPI_OPT_SYN_DATA.
    early = accepted.getsockopt(6, 11, 256)[5] >> 5 & 1
    first = [window(accepted), rate(accepted)]
    assert len(accepted.recv(1000)) == 500
    move(accepted, opener, SIZE)
    found.append([early, first, rate(accepted), algorithm(accepted)])
    opener.close(), accepted.close()
print(json.dumps(found))
"""
PLAIN = """
opener, accepted = pair("127.0.0.1")
first = [window(opener), window(accepted), rate(opener), rate(accepted)]
move(accepted, opener, SIZE)
move(opener, accepted, SIZE)
resent = [struct.unpack_from("I", one.getsockopt(6, 11, 256), 100)[0] for one in (opener, accepted)]
print(json.dumps([first, [rate(opener), rate(accepted)], [algorithm(opener), algorithm(accepted)], resent]))
"""


def sysctl(name: str, value: int) -> None:
    Path("/proc/sys/net", name).write_text(str(value))


def counter(name: str) -> int:
    done = subprocess.run(["nstat", "-asz", name], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-2])


@pytest.fixture
def program() -> Iterator[Program]:
    with own_network(), bpf.program(f"stk{os.getpid()}") as found:
        subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
        yield found


def apply(program: Program, **more: Any) -> None:
    program.apply({"record_permille": 1000, "entries": [{"prefix": "127.0.0.0/8", **VALUES, **more}]})


def run(program: Program, code: str) -> Any:
    return ask(program, f"SIZE = {SIZE}\n{code}")


def ended(program: Program, starts: int) -> None:
    """Each start is counted once, and none holds a cap or a place any more: once the kernel's worker has closed it, as
    it does for subflows."""

    def totals() -> list[int]:
        found = program.status()["totals"]
        return [found[name] for name in ("started", "caps", "caps_ended", "records")]

    wait_until(f"{starts} starts that have ended: {totals()}", lambda: totals() == [starts] * 4)
    status = program.status()
    assert status["prefixes"][0]["in_first_flights"] == 0


@pytest.mark.skipif(not Path("/proc/sys/net/mptcp").exists(), reason="this kernel has no MPTCP")
def test_multipath_tcp_starts_by_its_first_subflow(program: Program) -> None:
    sysctl("mptcp/enabled", 1)
    apply(program)
    assert run(program, MPTCP) == [[30, 30], 0, "reno", "reno"]
    assert counter("MPTcpExtMPCapableSYNRX") == 1
    ended(program, 2)
    assert [one["rate"] for one in program.records()] == [RATE] * 2


def test_fast_open_starts_with_the_syn(program: Program) -> None:
    sysctl("ipv4/tcp_fastopen", 3)
    apply(program)
    found = run(program, FAST_OPEN)
    assert [early for early, *_ in found] == [0, 1, 1]
    assert [rest for _, *rest in found] == [[[30, RATE], NO_CAP, "reno"]] * 3
    ended(program, 6)


def test_syn_cookies_change_nothing(program: Program) -> None:
    sysctl("ipv4/tcp_syncookies", 2)
    apply(program, receive_window=100)
    assert run(program, PLAIN) == [[30, 30, RATE, RATE], [NO_CAP] * 2, ["reno"] * 2, [0, 0]]
    assert counter("TcpExtSyncookiesRecv") == 1
    ended(program, 2)
