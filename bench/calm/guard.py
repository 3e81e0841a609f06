"""The loss guard on simulated paths whose queues are short, in a closed loop, beside a guard that cuts and forgets.

A connection's first flight leaves as one burst: what the bottleneck's queue does not hold while the burst arrives is
lost; the flight after it is clocked by acknowledgements, twice as fast as the bottleneck, so that the queue holds half
of it. Each segment may also be lost at random. A round does harm where the share of segments sent again is more than
one point above that of connections that start with the kernel's default on the same path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from springtide.laws.initcwnd.law import UNSEEN
from springtide.policy import Policy

from bench.calm.controllers import INTERVAL_S, Springtide
from bench.runner import Bench, Run

START = 1_767_312_000
DEFAULT = 10
SEGMENT_BITS, ACCESS_MBIT = 12_000, 1000.0
# Objects of 10, 20, 50 and 100 KB in segments: half of them do not fill the windows in question.
OBJECTS = (7, 14, 35, 70)
HARM = 0.01
# A guard that forgets: above 3 % of young connections' bytes sent again, of 20 connections at least, seven tenths of
# the window, and no rise for half an hour.
CUT_ABOVE, CUT_CONNECTIONS, CUT_TO, CUT_HOLD_S = 0.03, 20, 0.7, 1800


@dataclass(frozen=True)
class Path:
    """`learnt`: the mean window of its long-lived connections, segments; `lost`: of each segment at random."""

    rate_mbit: float
    rtt_ms: int
    queue: int
    learnt: int
    lost: float = 0.0

    @property
    def name(self) -> str:
        queue = "deep" if self.queue >= 1000 else str(self.queue)
        loss = f", {self.lost:.2%} lost" if self.lost else ""
        return f"{self.rate_mbit:g} Mbit/s, {self.rtt_ms} ms, queue {queue}{loss}"


# Windows learnt: as measured in namespaces, or what rate and round trip allow within 100.
PATHS = (
    Path(50, 102, 41, 82),
    Path(20, 150, 20, 34),
    Path(12, 54, 10, 30),
    Path(77, 102, 97, 97, 0.0006),
    Path(200, 150, 5000, 100),
)
# Young connections that close in a round.
COUNTS = (5, 20, 200)


@dataclass(frozen=True)
class Observed:
    """A round's young connections."""

    connections: int
    lossy: int
    bytes_share: float


def again(path: Path, size: int, window: int, chance: random.Random) -> int:
    """Segments that a fresh connection sends again for an object of `size` segments."""
    left, flight, lost, clocked = size, window, 0, False
    while left > 0:
        burst = min(flight, left)
        served = burst // 2 if clocked else int(burst * path.rate_mbit / ACCESS_MBIT)
        overflow = max(0, burst - served - path.queue)
        # The queue empties before the next flight. What the burst lost ends slow start.
        lost += overflow + sum(chance.random() < path.lost for _ in range(burst - overflow) if path.lost)
        flight = max(2, flight // 2) if overflow else 2 * flight
        left -= burst
        clocked = True
    return lost


def share_again(path: Path, window: int) -> float:
    """Over the objects, without chance."""
    without_cross_traffic = Path(path.rate_mbit, path.rtt_ms, path.queue, path.learnt)
    return sum(again(without_cross_traffic, size, window, random.Random(0)) for size in OBJECTS) / sum(OBJECTS)


def harms(path: Path, window: int) -> bool:
    return share_again(path, window) > share_again(path, DEFAULT) + HARM


def young(path: Path, window: int, count: int, chance: random.Random) -> Observed:
    """Counts of `count` connections with random objects, of those that sent at most two windows."""
    sizes = [size for size in chance.choices(OBJECTS, k=count) if size <= 2 * window]
    lost = [again(path, size, window, chance) for size in sizes]
    return Observed(len(sizes), sum(one > 0 for one in lost), sum(lost) / max(1, sum(sizes)))


Decide = Callable[[int, Observed], int]


def forgetful(path: Path) -> Decide:
    """The window that was learnt, cut and held, and back in one jump."""
    current, hold_until = 0, 0

    def decide(now: int, observed: Observed) -> int:
        nonlocal current, hold_until
        if observed.connections >= CUT_CONNECTIONS and observed.bytes_share > CUT_ABOVE:
            current, hold_until = max(DEFAULT, int(CUT_TO * (current or DEFAULT) + 0.5)), now + CUT_HOLD_S
        elif now >= hold_until:
            current = path.learnt
        return current

    return decide


def ours(path: Path, policy: Policy | None = None) -> Decide:
    law = Springtide(policy or Policy())

    def decide(now: int, observed: Observed) -> int:
        seen = np.full(1, UNSEEN)
        seen["src_pop"], seen["destination"], seen["ip_version"] = b"ams", b"fra", 4
        seen["connections_seen"] = seen["connections_earned"] = 5
        seen["mean_cwnd"] = path.learnt
        seen["young_connections"], seen["young_lossy_connections"] = observed.connections, observed.lossy
        return int(law.decide(now, seen)[0])

    return decide


def play(path: Path, decide: Decide, count: int, rounds: int, seed: int) -> Iterator[int]:
    """The window that serves in each round."""
    chance = random.Random(f"{path.name} {count} {seed}")
    window = 0
    for at in range(rounds):
        yield window or DEFAULT
        window = decide(START + at * INTERVAL_S, young(path, window or DEFAULT, count, chance))


def summary(path: Path, windows: list[int]) -> tuple[int, int, int]:
    """Rounds of harm in all, most one after the other, and the median window."""
    bad = [harms(path, window) for window in windows]
    longest = max((len(list(run)) for harm, run in groupby(bad) if harm), default=0)
    return sum(bad), longest, int(np.median(windows))


Row = tuple[Path, int, tuple[int, int, int], tuple[int, int, int], int]


def rows(hours: float, seed: int) -> list[Row]:
    """A row for each path and number of young connections: the summaries of the forgetful guard and of ours, and the
    largest window without harm."""
    rounds = int(hours * 3600 / INTERVAL_S)
    found = []
    for path in PATHS:
        fits = max(window for window in range(DEFAULT, 101) if not harms(path, window))
        for count in COUNTS:
            before = summary(path, list(play(path, forgetful(path), count, rounds, seed)))
            after = summary(path, list(play(path, ours(path), count, rounds, seed)))
            found.append((path, count, before, after, fits))
    return found


def table(found: list[Row]) -> str:
    """Markdown, as the docs show it."""
    head = ["path", "young connections a round"]
    for what in ("rounds of harm", "most in a row", "median window"):
        head += [f"{what}: forgetful", "ours"]
    head += ["largest without harm"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for path, count, before, after, fits in found:
        cells = [f"{one} | {other}" for one, other in zip(before, after, strict=True)]
        lines.append(f"| {path.name} | {count} | {' | '.join(cells)} | {fits} |")
    return "\n".join(lines)


def measure(run: Run) -> None:
    found = rows(run.sizes["hours"], run.sizes["seed"])
    run.note(table(found))
    for path, count, *both, fits in found:
        for guard, (harmed, longest, usual) in zip(("forgetful", "ours"), both, strict=True):
            labels: dict[str, str | int] = {"path": path.name, "young_connections": count, "guard": guard}
            run.figure("harmful_rounds", harmed, **labels)
            run.figure("harmful_rounds_in_a_row", longest, **labels)
            run.figure("median_window_segments", usual, **labels)
        run.figure("largest_harmless_window_segments", fits, path=path.name, young_connections=count)


BENCH = Bench(
    name="calm-guard",
    summary="a day of the loss guard on paths with short queues, simulated",
    measure=measure,
    sizes={"hours": (24.0, 0.5), "seed": (1, 1)},
    seconds=30,
    turns=None,
)
