"""Simulates what a rollout of 3,000 edges in five regions spends of the gate's error budget, and sees.

Waves are those of the play; each wave is judged once, with as many new connections as are given for each edge, or with
just as many as a verdict needs. Nothing is worse after the waves: of connections 2 % lose of their first flight, then
a fifth of it, 1 % have a timeout and 1 % get no answer; a tenth is slow. Beside it the gate as it was before: sums of
bytes (a rise of 1 point), and failed connects (2 points), without a test. And with harm: 30 % lose of their first
flight.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from springtide.gate.judge import Inputs, Kind, Tally, Verdict, chance_of_look, decide
from springtide.policy import GatePolicy
from springtide.publication.waves import Candidate, fitting_growth, gate_tries, waves

from bench.runner import Bench, Run

EDGES, REGIONS, GROWTH, TRIES, DELAY_S = 3000, 5, 3, 10, 60
# From a round to the rollout of its publication.
ON_ITS_WAY_S = 120
LOST, LOST_SHARE, TIMED_OUT, FAILED, SLOW = 0.02, 0.2, 0.01, 0.01, 0.1
HARM = 0.3
# The connections of a group are those of as many edges, twenty each, at most; more would be slow to draw.
MOST_EDGES = 20
Rng = np.random.Generator


def planned(ttl_s: int) -> tuple[int, int, list[int]]:
    """Growth, tries of each gate, and the waves' sizes, by the bundles' life; no tries: it is refused."""
    edges = [Candidate(f"e{number}", f"r{number % REGIONS}", 1) for number in range(EDGES)]
    life = ttl_s - ON_ITS_WAY_S
    growth = fitting_growth(EDGES, REGIONS, GROWTH, life, TRIES, DELAY_S)
    sizes = [len(wave) for wave in waves(edges, growth, "")]
    return growth, gate_tries(life, len(sizes), TRIES, DELAY_S), sizes


def was_wrong(chance: Rng, changed: int, unchanged: int, times: int) -> float:
    """Share of `times` in which the gate as it was takes back a wave without harm."""

    def shares(n: int) -> tuple[np.ndarray, np.ndarray]:
        return chance.binomial(n, LOST, times) * LOST_SHARE / n, chance.binomial(n, FAILED, times) / n

    cells = [shares(n) for n in (changed, changed, unchanged, unchanged) if n]
    bytes_, failed = ([cell[number] for cell in cells] for number in (0, 1))
    rises = [one[1] - one[0] - (one[3] - one[2] if unchanged else 0) for one in (bytes_, failed)]
    return float(np.mean((rises[0] > 0.01) | (rises[1] > 0.02)))


def was_wrong_by_arithmetic(changed: int, unchanged: int) -> float:
    """The same of failed connects alone, whose rise is nearly normal."""
    deviation = (FAILED * (1 - FAILED) * (2 / changed + (2 / unchanged if unchanged else 0))) ** 0.5
    return 1 - NormalDist(0, deviation).cdf(0.02)


def is_taken_back(chance: Rng, wave: int, changed: int, unchanged: int, lost: float) -> bool:
    def tally(n: int, lost_share: float) -> Tally:
        hits = [int(chance.binomial(n, p)) for p in (lost_share, TIMED_OUT, FAILED, SLOW)]
        return Tally(n, n, hits[0], 0, 0, n, hits[1], n, hits[2], n, hits[3])

    def edges(n: int, lost_share: float) -> dict[str, dict[str, Tally]]:
        count = min(MOST_EDGES, max(1, n // 20))
        sizes = [n // count + (number < n % count) for number in range(count)]
        return {
            f"{number}": {"before": tally(size, LOST), "after": tally(size, lost_share)}
            for number, size in enumerate(sizes)
        }

    groups = {(Kind.WINDOWS, True): edges(changed, lost), (Kind.WINDOWS, False): edges(unchanged, LOST)}
    return decide(Inputs(groups, {"0": 0.0}, wave), GatePolicy()).verdict is Verdict.ROLL_BACK


def look(wave: int, changed: int, unchanged: int, times: int, seed: int) -> dict[str, Any]:
    """One look at so many new connections before and after, on changed edges and on the others."""
    chance = np.random.default_rng([seed, wave])
    return {
        "wave": wave,
        "changed": changed,
        "unchanged": unchanged,
        "was_wrong_arithmetic": was_wrong_by_arithmetic(changed, unchanged),
        "was_wrong": was_wrong(chance, changed, unchanged, max(1, 100 * times)),
        "budget": chance_of_look(wave, 1, GatePolicy()),
        "wrong": sum(is_taken_back(chance, wave, changed, unchanged, LOST) for _ in range(times)) / max(1, times),
        "harm_seen": sum(is_taken_back(chance, wave, changed, unchanged, HARM) for _ in range(times)) / max(1, times),
    }


def scenario(sizes: list[int], per_edge: int, times: int, seed: int) -> list[dict[str, Any]]:
    """One look at each wave; `per_edge` 0: as many connections in each group as a verdict needs."""
    least = GatePolicy().min_connections
    found, done = [], 0
    for wave, size in enumerate(sizes, start=1):
        done += size
        counts = (per_edge * done, per_edge * (EDGES - done)) if per_edge else (least, least if done < EDGES else 0)
        found.append(look(wave, *counts, times, seed))
    return found


def plan_table() -> str:
    """Markdown: which waves there are, by bundle.ttl_s."""
    lines = ["| `bundle.ttl_s` | growth | waves | tries of each gate |", "|---|---|---|---|"]
    for ttl_s in (900, 1800, 3600):
        growth, tries, sizes = planned(ttl_s)
        lines.append(f"| {ttl_s} | {growth} | {', '.join(f'{size:,}' for size in sizes)} | {tries} |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| wave | new connections, changed / unchanged | wrong before: arithmetic, simulated | budget "
        "| wrong: simulated | 30 % instead of 2 %: seen |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        before = f"{row['was_wrong_arithmetic']:.1%}, {row['was_wrong']:.1%}"
        numbers = f"{row['budget']:.4%} | {row['wrong']:.1%} | {row['harm_seen']:.1%}"
        lines.append(f"| {row['wave']} | {row['changed']:,} / {row['unchanged']:,} | {before} | {numbers} |")
    right = [float(np.prod([1 - row[name] for row in rows])) for name in ("was_wrong_arithmetic", "was_wrong", "wrong")]
    all_, budget = [f"{1 - one:.1%}" for one in right], sum(row["budget"] for row in rows)
    lines.append(f"| all | | {all_[0]}, {all_[1]} | {budget:.2%} | {all_[2]} | |")
    return "\n".join(lines)


def measure(run: Run) -> None:
    times, seed, per_edge = (run.sizes[name] for name in ("times", "seed", "per_edge"))
    _, _, sizes = planned(3600)
    run.note(plan_table())
    for connections, count in (("as many as a verdict needs", 0), (f"{per_edge} an edge", per_edge)):
        rows = scenario(sizes, count, times, seed)
        run.note(table(rows))
        for row in rows:
            labels = {"connections": connections, "wave": row["wave"]}
            for name in ("was_wrong_arithmetic", "was_wrong", "budget", "wrong", "harm_seen"):
                run.figure(f"{name}_share", row[name], **labels)


BENCH = Bench(
    name="gate",
    summary="what a rollout of 3,000 edges spends of the gate's error budget, simulated",
    measure=measure,
    sizes={"times": (300, 2), "seed": (1, 1), "per_edge": (20, 20)},
    seconds=30,
    turns=None,
)
