"""The books of the chain: what is missing has a cause, or is lost; nothing is counted twice."""

from __future__ import annotations

import pytest

from pipeline.chain.books import KILLED, Books, Name, balance, dropped, invented, unrecorded
from pipeline.chain.witness import cookies
from testkit.witness import Identity


def polls(host: str, count: int, first: int = 1) -> set[Name]:
    return {(host, Identity(number, 7, 100 + number, "POLL")) for number in range(first, first + count)}


def test_what_was_sent_twice_is_delivered_once_and_counted() -> None:
    names = polls("ams-1", 10)
    books = balance(names, [*names, *polls("ams-1", 3)], names, {}, 0)
    assert books == Books(polled=10, delivered=10, duplicates_counted=3, dropped={}, lost=0)
    assert books.balanced()


def test_the_same_numbers_on_another_host_are_other_samples() -> None:
    books = balance(polls("ams-1", 4) | polls("ams-2", 4), [], polls("ams-1", 4), {}, 0)
    assert (books.polled, books.delivered, books.lost) == (8, 4, 4)


@pytest.mark.parametrize("kept", ["recorded", "sent"])
def test_what_is_missing_without_a_cause_is_lost_whoever_saw_it(kept: str) -> None:
    names = polls("ams-1", 10)
    stored = polls("ams-1", 8)
    books = balance(names if kept == "recorded" else stored, names if kept == "sent" else stored, stored, {}, 0)
    assert books.lost == 2
    assert not books.balanced()


def test_a_cause_accounts_for_its_rows_and_no_more() -> None:
    names, stored = polls("ams-1", 10), polls("ams-1", 7)
    assert balance(names, stored, stored, {"queue_bytes": 3, "too_large": 0}, 0) == Books(
        10, 7, 0, {"queue_bytes": 3}, 0
    )
    assert balance(names, stored, stored, {"queue_bytes": 2}, 0).lost == 1
    # More dropped than is missing does not balance either: somebody counted twice.
    assert not balance(names, stored, stored, {"queue_bytes": 4}, 0).balanced()


def test_what_only_a_dead_collector_could_have_read_is_named() -> None:
    names = polls("ams-1", 5)
    books = balance(names, names, names, {}, 2)
    assert books == Books(polled=7, delivered=5, duplicates_counted=0, dropped={KILLED: 2}, lost=0)


def test_announced_closes_are_held_against_close_records_only() -> None:
    names: set[Name] = {
        ("ams-1", Identity(1, 7, 50, "POLL")),
        ("ams-1", Identity(2, 7, 51, "CLOSE")),
        ("ams-2", Identity(2, 7, 52, "CLOSE")),
    }
    announced = {("ams-1", 50), ("ams-1", 51), ("ams-1", 52)}
    assert unrecorded(announced, names) == {("ams-1", 50), ("ams-1", 52)}


def test_cookies_are_read_as_ss_prints_them() -> None:
    lines = (
        "UNCONN 0 0 10.76.1.1:80 10.76.2.1:42384 ino:0 sk:10a3 <->\n"
        "UNCONN 0 0 127.0.0.1:39655 127.0.0.1:50000 ino:0 sk:f cgroup:unreachable:1 <->\n"
    )
    assert cookies(lines) == {0x10A3, 15}


def test_a_stored_sample_that_nobody_read_is_found() -> None:
    assert invented(polls("ams-1", 2), polls("ams-1", 1, 3), polls("ams-1", 4)) == polls("ams-1", 1, 4)


def test_the_collectors_own_books_are_added_up_by_cause() -> None:
    def counters(**causes: int) -> dict[str, object]:
        return {"sinks": {"kafka": {"rows_dropped": causes}, "file": {"rows_dropped": {"disk_unavailable": 9}}}}

    found = dropped([counters(queue_age=2, too_large=0), counters(queue_age=1, too_large=4)], "kafka")
    assert found == {"queue_age": 3, "too_large": 4}
