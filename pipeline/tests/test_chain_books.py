"""The books of the chain: what is missing has a cause, or is lost; nothing is counted twice."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Set
from pathlib import Path

import pytest

from lab.errors import LabError
from pipeline.chain.books import (
    IN_MEMORY_S,
    KILLED,
    Books,
    Name,
    Polled,
    balance,
    counted,
    dropped,
    invented,
    polled_of,
)
from pipeline.chain.witness import Given, Trace, sockets
from testkit.witness import Identity

NOTHING: Counter[Polled] = Counter()


def polls(host: str, count: int, first: int = 1) -> set[Name]:
    """Polls of `count` sockets, each in a poll of its own."""
    return {(host, Identity(number, 7, 100 + number, "POLL")) for number in range(first, first + count)}


def books(polled: Set[Name], stored: Set[Name], **causes: int) -> Books:
    return balance(counted(polled), NOTHING, stored, stored, causes)


def test_what_was_sent_twice_is_delivered_once_and_counted() -> None:
    names = polls("ams-1", 10)
    found = balance(counted(names), NOTHING, [*names, *polls("ams-1", 3)], names, {})
    assert found == Books(polled=10, delivered=10, duplicates_counted=3, dropped={}, lost=0)
    assert found.balanced()


def test_the_same_numbers_on_another_host_are_other_samples() -> None:
    found = books(polls("ams-1", 4) | polls("ams-2", 4), polls("ams-1", 4))
    assert (found.polled, found.delivered, found.lost) == (8, 4, 4)
    assert not found.balanced()


def test_a_poll_of_a_socket_does_not_stand_for_another_poll_of_it() -> None:
    often = {("ams-1", Identity(number, 7, 100, "POLL")) for number in range(5)}
    assert books(often, set(list(often)[:4])).lost == 1
    assert books(often, often | {("ams-1", Identity(5, 7, 100, "CLOSE"))}).delivered == 5


def test_a_cause_accounts_for_its_rows_and_no_more() -> None:
    names, stored = polls("ams-1", 10), polls("ams-1", 7)
    assert books(names, stored, queue_bytes=3, too_large=0) == Books(10, 7, 0, {"queue_bytes": 3}, 0)
    assert books(names, stored, queue_bytes=2).lost == 1
    # More dropped than is missing does not balance either: somebody counted twice.
    assert not books(names, stored, queue_bytes=4).balanced()


def test_a_kill_accounts_for_what_is_missing_of_the_last_moments_and_for_nothing_else() -> None:
    names, stored = polls("ams-1", 10), polls("ams-1", 7)
    last = counted(polls("ams-1", 5, first=4))
    assert balance(counted(names), last, stored, stored, {}) == Books(10, 7, 0, {KILLED: 1}, 2)
    # A sample that is delivered has not been dropped, however late it was.
    assert balance(counted(names), counted(names), names, names, {}).dropped == {}


def test_a_socket_that_a_walk_gives_twice_is_one_sample_and_each_close_is_one() -> None:
    given = [Given(1, 3, 50, None), Given(1, 3, 50, None), Given(1, 4, 50, None), Given(2, 3, 50, None)]
    every, _ = polled_of("ams-1", [*given, Given(1, 0, 50, None), Given(1, 0, 51, None)])
    assert every == {("ams-1", 50, "POLL"): 3, ("ams-1", 50, "CLOSE"): 1, ("ams-1", 51, "CLOSE"): 1}


def test_only_what_a_killed_collector_was_given_last_may_have_been_in_memory() -> None:
    given = [Given(1, 3, 50, None), Given(1, 4, 51, IN_MEMORY_S + 0.1), Given(1, 5, 52, IN_MEMORY_S - 0.1)]
    _, in_memory = polled_of("ams-1", given)
    assert in_memory == {("ams-1", 52, "POLL"): 1}


def test_a_stored_sample_that_no_kernel_gave_is_found() -> None:
    assert invented(counted(polls("ams-1", 3)), polls("ams-1", 4)) == 1


def test_the_collectors_own_books_are_added_up_by_cause() -> None:
    def counters(**causes: int) -> dict[str, object]:
        return {"sinks": {"kafka": {"rows_dropped": causes}, "file": {"rows_dropped": {"disk_unavailable": 9}}}}

    found = dropped([counters(queue_age=2, too_large=0), counters(queue_age=1, too_large=4)], "kafka")
    assert found == {"queue_age": 3, "too_large": 4}


def message(kind: int, sequence: int, cookie: int, peer: int = 443, extra: bytes = b"") -> bytes:
    """struct nlmsghdr and struct inet_diag_msg of linux/netlink.h and linux/inet_diag.h, with attributes."""
    about = struct.pack(">BBBBHH32s", 2, 1, 0, 0, 80, peer, bytes(32)) + struct.pack("=IQ20s", 0, cookie, bytes(20))
    body = about + extra
    whole = struct.pack("=IHHII", 16 + len(body), kind, 2, sequence, 0) + body
    return whole + bytes(-len(whole) % 4)


def test_messages_are_read_as_the_kernel_writes_them() -> None:
    done = struct.pack("=IHHIIi", 20, 3, 2, 9, 0, 0)
    walk = message(18, 9, 2**63 + 5, extra=b"odd") + message(20, 9, 6, peer=0) + done
    assert list(sockets(walk)) == [(9, 2**63 + 5), (9, 6)]
    assert list(sockets(message(20, 0, 7))) == [(0, 7)]
    # The close of a listener is not a sample.
    assert list(sockets(message(20, 0, 8, peer=0))) == []


def traced(datagram: bytes, thread: int, at_s: float, length: int | None = None) -> str:
    """A call as `strace -f -ttt -e read=all -s 0` shows it."""
    sender = "{sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}, [128 => 12]"
    call = f"{thread:<5} {at_s:.6f} recvfrom(8, ..., 32768, MSG_TRUNC, {sender})"
    lines = [f"{call} = {length or len(datagram)}"]
    for place in range(0, len(datagram), 16):
        part = datagram[place : place + 16]
        digits = "  ".join(half.hex(" ").ljust(23) for half in (part[:8], part[8:]))
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f" | {place:05x}  {digits}  {text:<16} |")
    return "\n".join(lines) + "\n"


def test_a_trace_has_what_each_life_was_given_and_how_it_ended(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    first = traced(message(18, 1, 50) + message(18, 1, 51), 100, 10.0) + traced(message(20, 0, 50), 100, 12.5)
    other = (
        "101  11.000000 recvfrom(3, 0x7ffd18364a50, 64, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n"
    )
    trace.path.write_text(first + other)
    assert not trace.whole()
    ends = "100   13.000000 +++ killed by SIGKILL +++\n101   13.000000 +++ killed by SIGKILL +++\n"
    trace.path.write_text(
        first + other + ends + traced(message(18, 1, 51), 200, 20.0) + "200   30.0 +++ exited with 0 +++\n"
    )
    assert trace.whole()
    assert trace.given() == [
        Given(100, 1, 50, 3.0),
        Given(100, 1, 51, 3.0),
        Given(100, 0, 50, 0.5),
        Given(200, 1, 51, None),
    ]


def test_a_datagram_that_is_cut_is_an_error_and_not_a_smaller_number(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    trace.path.write_text(traced(message(18, 1, 50), 100, 10.0, length=9000) + "100 30.0 +++ exited with 0 +++\n")
    with pytest.raises(LabError, match="of a datagram of 9000"):
        trace.given()
