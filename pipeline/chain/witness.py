"""Messages that the kernel gave collectors: as strace shows their system calls, read by none of the product's code."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab.errors import InputError, LabError

_CALL = re.compile(r"^(\d+) +([\d.]+) (?:recvfrom\(|<\.\.\. recvfrom resumed>).*sa_family=AF_NETLINK.* = (\d+)$")
_END = re.compile(r"^(\d+) +([\d.]+) \+\+\+ (killed by SIGKILL|killed by|exited with) .*\+\+\+$")
_THREAD = re.compile(r"^(\d+) ")
# The bytes in a line of strace's dump: ` | 00000  c8 01 ... | `, sixteen in two groups.
_DUMP, _HEX = " | ", slice(10, 59)

# struct nlmsghdr: length, type, flags, sequence, port. From struct inet_diag_msg: the peer's port, and the cookie.
_HEADER = struct.Struct("=IHHII")
_PEER, _COOKIE = struct.Struct(">6xH"), struct.Struct("=44xQ")
# TCPDIAG_GETSOCK and SOCK_DIAG_BY_FAMILY.
_ABOUT_A_SOCKET = (18, 20)


class Given(NamedTuple):
    """A message of the kernel about a socket. `walk` tells one thread's requests apart; 0 is a close, which it
    announces by itself. `age_s` is how long before the thread's SIGKILL that was; None where none came."""

    thread: int
    walk: int
    cookie: int
    age_s: float | None

    @property
    def kind(self) -> str:
        """As samples name it."""
        return "POLL" if self.walk else "CLOSE"


@dataclass(frozen=True)
class Trace:
    """A collector's, over all of its lives."""

    path: Path

    def command(self) -> list[str]:
        """The words that begin a traced command's line; the command keeps its process id, and its parent. Raises
        InputError."""
        if shutil.which("strace") is None:
            raise InputError("strace is missing: apt-get install strace")
        only = ["-e", "trace=recvfrom", "-e", "read=all", "-e", "signal=SIGKILL", "-s", "0"]
        return ["strace", "-D", "-f", "--seccomp-bpf", "-q", "-ttt", *only, "-A", "-o", str(self.path)]

    def whole(self) -> bool:
        """Whether every thread's end is in it: strace is a moment behind."""
        lines = self._lines()
        threads = {found[1] for line in lines if (found := _THREAD.match(line))}
        return threads == {found[1] for line in lines if (found := _END.match(line))}

    def given(self) -> list[Given]:
        """Once it is whole. Raises LabError for what cannot be read."""
        lines = self._lines()
        ends = {int(found[1]): (float(found[2]), found[3]) for line in lines if (found := _END.match(line))}
        given: list[Given] = []
        for thread, at_s, datagram in _datagrams(lines):
            end_s, how = ends[thread]
            age_s = end_s - at_s if how == "killed by SIGKILL" else None
            given += [Given(thread, walk, cookie, age_s) for walk, cookie in sockets(datagram)]
        return given

    def _lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def _datagrams(lines: list[str]) -> Iterator[tuple[int, float, bytes]]:
    """Thread, time and bytes of each datagram that came from a netlink socket."""
    for place, line in enumerate(lines):
        call = _CALL.match(line)
        if call is None:
            continue
        data = bytearray()
        for dump in lines[place + 1 :]:
            if not dump.startswith(_DUMP):
                break
            data += bytes.fromhex(dump[_HEX])
        # MSG_TRUNC: the length is the datagram's, also where the buffer was shorter.
        if len(data) != int(call[3]):
            raise LabError(f"strace shows {len(data)} bytes of a datagram of {call[3]}: {line}")
        yield int(call[1]), float(call[2]), bytes(data)


def sockets(datagram: bytes) -> Iterator[tuple[int, int]]:
    """The request and the cookie of each message about a socket that has a peer, or was asked for."""
    place = 0
    while place + _HEADER.size <= len(datagram):
        length, kind, _, walk, _ = _HEADER.unpack_from(datagram, place)
        message = datagram[place + _HEADER.size : place + length]
        if kind in _ABOUT_A_SOCKET:
            [peer], [cookie] = _PEER.unpack_from(message), _COOKIE.unpack_from(message)
            # A listener, or a connection that never came to be, leaves no sample as it goes.
            if walk or peer:
                yield walk, cookie
        if length < _HEADER.size:
            return
        place += -(-length // 4) * 4
