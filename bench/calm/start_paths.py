"""Paths over days as the law of starts meets them: a rate, a round trip, a queue, others that share it.

Every number is drawn from one seed; the sizes are assumptions. A path's rate walks and jitters, changes for good with
routes, falls in loss episodes; bulk connections beside it come and go with the day, and leave each fresh one an equal
part. Now and then it collapses (a quarter of the rate, a tenth of the queue) or opens (four times the rate) for hours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.calm.flights import SEGMENT, WIRE

ROUNDS_PER_DAY = 288
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Mbit/s: median 60, one path in six below 18, one in six above 200. Round trips in ms, log-uniform.
RATE, RATE_SIGMA, RTT_MS = 60.0, 1.2, (10.0, 280.0)
# The queue as a part of what the path carries in a round trip, log-uniform: a tenth to twice.
QUEUE = (0.1, 2.0)
# Bulk connections beside at the busiest hour, one draw a path; how many fresh connections start at once, and how many
# paths have so many.
BULK, AT_ONCE, MANY = (0.1, 2.0), 4, 0.3
NOISE_SIGMA, WALK_SIGMA, WALK_KEPT = 0.08, 0.01, 0.999
EPISODES_PER_DAY, EPISODE_ROUNDS, EPISODE_LEFT = 0.5, (3, 18), (0.1, 0.5)
ROUTES_PER_DAY, ROUTE_FACTOR = 0.3, (0.5, 2.0)
TURNS_PER_DAY, TURN_ROUNDS, TURN_FACTOR, TURN_QUEUE = 0.1, (36, 288), (0.25, 4.0), (0.1, 1.0)
# Connections that met the path in a round, and young ones, at the busiest hour: medians. Thin paths have no more than
# three in all.
MET, MET_SIGMA, YOUNG_PER_MET, THIN_MOST, THIN_MET = 8.0, 1.0, 10, 3, 0.3
# Spread of single delivery rates (log2), and of the sum of all.
SINGLE_SIGMA, SUM_SIGMA = 0.4, 0.1
REGIONS = 6


@dataclass(frozen=True)
class Moment:
    """One round of all paths: bytes/s of payload that one fresh connection may have (`share`), that `at_once` have
    together (`together`), and that the link carries (`capacity`); the queue in packets; connections that met the path,
    and young ones."""

    share: Floats
    together: Floats
    capacity: Floats
    rtt_ms: Floats
    queue: Floats
    at_once: Ints
    met: Ints
    young: Ints


class Paths:
    """`thin`: how many of the paths, the first ones, have few connections. `calm`: nothing changes by itself."""

    def __init__(self, count: int, seed: int, thin: int = 0, calm: bool = False) -> None:
        self.chance = np.random.default_rng([seed, count])
        self._seed, draw = [seed, count], self.chance
        self.count, self.thin, self.calm = count, np.arange(count) < thin, calm
        self.region = draw.integers(0, REGIONS, count)
        # Paths of one region are more alike than others.
        of_region = draw.normal(0, 0.8, REGIONS)[self.region]
        self.rate = RATE * 125_000 * np.exp(of_region + draw.normal(0, RATE_SIGMA - 0.3, count))
        self.rtt_ms = _log_uniform(draw, RTT_MS, count)
        carried = self.rate * self.rtt_ms / 1000 / WIRE
        self.queue = np.maximum(4.0, carried * _log_uniform(draw, QUEUE, count))
        self.bulk = draw.uniform(*BULK, count)
        self.at_once = np.where(draw.random(count) < MANY, AT_ONCE, 1)
        self.busiest = draw.uniform(0, ROUNDS_PER_DAY, count)
        self.met = MET * np.exp(draw.normal(0, MET_SIGMA, count))
        self.walk, self.route, self.episode, self.turn = np.zeros(count), np.ones(count), np.ones(count), np.ones(count)
        self.turn_queue = np.ones(count)
        self.episode_until, self.turn_until = np.zeros(count, int), np.zeros(count, int)

    def another(self, copy: int = 0) -> np.random.Generator:
        """For what a controller sees of the paths: the same for each of one copy; nothing of it changes the paths."""
        return np.random.default_rng([*self._seed, 1 + copy])

    def moment(self, now: int) -> Moment:
        draw, count = self.chance, self.count
        busy = np.full(count, 0.5)
        noise = np.ones(count)
        if not self.calm:
            busy = 0.5 + 0.5 * np.cos(2 * np.pi * (now - self.busiest) / ROUNDS_PER_DAY)
            self._change(now)
            noise = np.exp(draw.normal(0, NOISE_SIGMA, count))
        rate = self.rate * np.exp(self.walk) * self.route * self.episode * self.turn * noise * SEGMENT / WIRE
        bulk = self.bulk * busy
        young = draw.poisson(YOUNG_PER_MET * self.met * (0.2 + 0.8 * busy))
        met = draw.poisson(self.met * (0.2 + 0.8 * busy))
        few = draw.integers(0, THIN_MOST + 1, count)
        return Moment(
            share=rate / (1 + bulk),
            together=rate * self.at_once / (self.at_once + bulk),
            capacity=rate,
            rtt_ms=self.rtt_ms,
            queue=np.maximum(4.0, self.queue * self.turn_queue),
            at_once=self.at_once,
            met=np.where(self.thin, draw.binomial(few, THIN_MET), met),
            young=np.where(self.thin, few, young),
        )

    def _change(self, now: int) -> None:
        draw, count = self.chance, self.count

        def begins(per_day: float) -> NDArray[np.bool_]:
            chosen: NDArray[np.bool_] = draw.random(count) < per_day / ROUNDS_PER_DAY
            return chosen

        self.walk = WALK_KEPT * self.walk + draw.normal(0, WALK_SIGMA, count)
        factor = _log_uniform(draw, ROUTE_FACTOR, count)
        self.route = np.clip(np.where(begins(ROUTES_PER_DAY), self.route * factor, self.route), 0.25, 4.0)
        self.episode[now >= self.episode_until] = 1.0
        new = begins(EPISODES_PER_DAY) & (now >= self.episode_until)
        self.episode = np.where(new, draw.uniform(*EPISODE_LEFT, count), self.episode)
        self.episode_until = np.where(new, now + draw.integers(*EPISODE_ROUNDS, count), self.episode_until)
        over = now >= self.turn_until
        self.turn[over], self.turn_queue[over] = 1.0, 1.0
        new, which = begins(TURNS_PER_DAY) & over, draw.integers(0, 2, count)
        self.turn = np.where(new, np.array(TURN_FACTOR)[which], self.turn)
        self.turn_queue = np.where(new, np.array(TURN_QUEUE)[which], self.turn_queue)
        self.turn_until = np.where(new, now + draw.integers(*TURN_ROUNDS, count), self.turn_until)


def _log_uniform(draw: np.random.Generator, ends: tuple[float, float], count: int) -> Floats:
    return np.exp(draw.uniform(np.log(ends[0]), np.log(ends[1]), count))
