"""Paths between PoPs over days: how many segments each carries at once, and what its connections show of that.

Every number is drawn from one seed. The shapes are those that operators know: a daily tide, loss episodes, routes that
change for good, noise from round to round; their sizes are assumptions, stated here and nowhere hidden.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

ROUNDS_PER_DAY = 288

# The window that a path carries without loss, segments: median 60, one path in six below 20, one in six above 180.
MEDIAN_CAPACITY, CAPACITY_SIGMA = 60.0, 1.1
# At the busiest hour a path carries this much less than at the quietest, one draw a path.
TIDE = (0.05, 0.4)
# Between rounds, lognormal; a day's drift comes on top as a slow random walk.
NOISE_SIGMA, WALK_SIGMA = 0.08, 0.01
EPISODES_PER_DAY, EPISODE_ROUNDS, EPISODE_LEFT = 0.5, (3, 18), (0.1, 0.5)
ROUTE_CHANGES_PER_DAY, ROUTE_FACTOR = 0.3, (0.5, 2.0)
# Connections that earn their window in a round at the busiest hour: median 8, many pairs thin.
MEDIAN_EARNED, EARNED_SIGMA = 8.0, 1.0
# A long-lived connection's window moves between this share of what the path carries and all of it (CUBIC's sawtooth,
# RFC 9438: beta 0.7).
SAWTOOTH = (0.7, 1.0)
# A segment's odds of being lost by chance; the share of young connections whose object fills their first flight.
LOSS_FLOOR, FILL = 0.0003, 0.5
YOUNG_PER_EARNED = 10


@dataclass
class Path:
    """One ordered pair of PoPs; `rtt_ms` and the draws that make it what it is."""

    rtt_ms: float
    base: float
    tide: float
    busiest_round: float
    earned: float
    walk: float = 0.0
    route: float = 1.0
    episode_left: float = 1.0
    episode_until: int = 0


@dataclass(frozen=True)
class Moment:
    """A path in one round: the window that it carries, and what its live connections show."""

    capacity: float
    earned: int
    mean_cwnd: float
    max_cwnd: int


def make(count: int, seed: int) -> list[Path]:
    chance = random.Random(f"paths {seed}")
    return [
        Path(
            rtt_ms=math.exp(chance.uniform(math.log(10), math.log(280))),
            base=MEDIAN_CAPACITY * math.exp(chance.gauss(0, CAPACITY_SIGMA)),
            tide=chance.uniform(*TIDE),
            busiest_round=chance.uniform(0, ROUNDS_PER_DAY),
            earned=MEDIAN_EARNED * math.exp(chance.gauss(0, EARNED_SIGMA)),
        )
        for _ in range(count)
    ]


def moments(path: Path, rounds: int, seed: str) -> Iterator[Moment]:
    chance = random.Random(seed)
    for now in range(rounds):
        busy = 0.5 + 0.5 * math.cos(2 * math.pi * (now - path.busiest_round) / ROUNDS_PER_DAY)
        path.walk = 0.999 * path.walk + chance.gauss(0, WALK_SIGMA)
        if chance.random() < ROUTE_CHANGES_PER_DAY / ROUNDS_PER_DAY:
            path.route = min(4.0, max(0.25, path.route * math.exp(chance.uniform(*map(math.log, ROUTE_FACTOR)))))
        if now >= path.episode_until:
            path.episode_left = 1.0
            if chance.random() < EPISODES_PER_DAY / ROUNDS_PER_DAY:
                path.episode_until = now + chance.randint(*EPISODE_ROUNDS)
                path.episode_left = chance.uniform(*EPISODE_LEFT)
        noise = math.exp(chance.gauss(0, NOISE_SIGMA))
        capacity = path.base * (1 - path.tide * busy) * math.exp(path.walk) * path.route * path.episode_left * noise
        capacity = max(4.0, capacity)
        earned = _poisson(chance, path.earned * (0.2 + 0.8 * busy))
        windows = [max(2.0, capacity * chance.uniform(*SAWTOOTH)) for _ in range(min(earned, 50))]
        yield Moment(capacity, earned, sum(windows) / max(1, len(windows)), math.ceil(max(windows, default=0.0)))


def young_lossy(capacity: float, initcwnd: int, connections: int, chance: np.random.Generator) -> int:
    """The number of connections, of those that start with `initcwnd`, that lose any of their first flight. A burst that
    does not fit costs all that fill it; segments also get lost by chance."""
    by_chance = 1.0 - (1.0 - LOSS_FLOOR) ** initcwnd
    share = FILL + (1.0 - FILL) * by_chance if initcwnd > capacity else by_chance
    return int(chance.binomial(connections, share))


def _poisson(chance: random.Random, mean: float) -> int:
    if mean > 50:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), chance.random(), 0
    while product > limit:
        product *= chance.random()
        count += 1
    return count
