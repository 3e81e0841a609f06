"""When a consumer that reads and reads does not get on."""

from __future__ import annotations

from springtide.observe.stall import Reader, Watch, one_line


def reader(read: int, commits: int, partitions: int = 1, complaint: str = "", name: str = "a") -> Reader:
    return Reader(name, read, commits, partitions, complaint)


def watched(*steps: list[Reader]) -> Watch:
    """One step a second."""
    watch = Watch()
    for second, found in enumerate(steps):
        watch.see(found, 100.0 + second)
    return watch


def test_repeated_reading_is_not_progress() -> None:
    watch = watched(*([reader(10 * n, 0, complaint="disk full")] for n in range(1, 6)))
    assert (watch.stuck_s, watch.cause) == (4.0, "disk full")


def test_a_commit_is_progress() -> None:
    assert watched(*([reader(10 * n, n)] for n in range(1, 6))).stuck_s == 0
    assert watched([reader(10, 0)], [reader(20, 0)], [reader(20, 1)], [reader(20, 1)]).stuck_s == 0


def test_one_that_gets_on_does_not_hide_one_that_does_not() -> None:
    steps = [[reader(10 * n, n, name="a"), reader(10 * n, 0, complaint="bad", name="b")] for n in range(1, 6)]
    assert watched(*steps).stuck_s == 4
    assert watched(*steps).cause == "bad"


def test_a_day_without_samples_is_not_a_stall() -> None:
    assert watched(*([reader(10, 1, complaint="2/2 brokers are down")] for _ in range(9))).stuck_s == 0
    # A spare consumer, and one that stands by for another process.
    assert watched(*([reader(10, 1), reader(0, 0, partitions=0, name="b")] for _ in range(9))).stuck_s == 0
    assert watched(*([reader(0, 0, partitions=0)] for _ in range(9))).stuck_s == 0


def test_no_partition_and_a_complaint_is_a_stall() -> None:
    watch = watched(*([reader(0, 0, partitions=0, complaint="2/2 brokers are down")] for _ in range(9)))
    assert (watch.stuck_s, watch.cause) == (8.0, "2/2 brokers are down")


def test_a_complaint_is_one_line_without_its_stack() -> None:
    assert (
        one_line("Code: 1. DB::Exception: a\n b, Stack trace (when copying):\n0. ? @ 0x1")
        == "Code: 1. DB::Exception: a b"
    )
