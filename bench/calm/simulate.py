"""Plays the controllers against the same paths, and counts what each does to its fleet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray
from springtide.laws.columns import Table
from springtide.laws.initcwnd.law import UNSEEN
from springtide.policy import Policy

from bench.calm import paths as model
from bench.calm.controllers import CMAX, CMIN, INTERVAL_S, Controller, LastValue, PlainAverage, Springtide, Threshold

START = 1_767_312_000
DEFAULT_INITCWND = 10
# Objects in segments: quantiles of the paper's sizes (Riptide figure 2; lab/sizes.py has the curve).
OBJECTS = (1, 2, 4, 8, 15, 35, 70, 140, 300, 690)
# Young connections that a pair closes in a round for each that earned its window.
YOUNG = model.YOUNG_PER_EARNED

# For each pair, round by round: the path's capacity and each controller's window, 0 for the default.
Shown = list[list[tuple[float, list[int]]]]


@dataclass
class Tally:
    """One controller's sums. Changes are of published windows; gain is in round trips an object, against the
    default."""

    name: str
    changes: list[int]
    by_round: list[int] = field(default_factory=list)
    gained: float = 0.0
    attainable: float = 0.0
    too_large: int = 0
    windows: int = 0

    def summary(self, days: float) -> dict[str, float | str]:
        per_day = sorted(count / days for count in self.changes)
        return {
            "controller": self.name,
            "changes_per_pair_and_day_median": round(median(per_day), 2),
            "changes_per_pair_and_day_p95": round(per_day[int(0.95 * (len(per_day) - 1))], 2),
            "changed_routes_per_round_median": median(self.by_round),
            "share_of_attainable_gain": round(self.gained / self.attainable, 4) if self.attainable else 0.0,
            "share_of_rounds_above_the_path": round(self.too_large / self.windows, 4) if self.windows else 0.0,
        }


def round_trips(segments: int, initcwnd: int, capacity: float) -> float:
    """Round trips for an object: slow start from `initcwnd`, and one more for each time that a burst does not fit."""
    sent, window, trips = 0.0, float(initcwnd), 0.0
    while sent < segments:
        burst = min(window, segments - sent)
        trips += 1
        if burst > capacity:
            # The rest is sent again, and the window falls to what the path carries.
            trips += 1
            window = max(1.0, capacity / 2)
        sent += min(burst, capacity)
        window = min(window * 2, max(capacity, 1.0))
        if trips >= 64:
            break
    return trips


def saved(initcwnd: int, capacity: float, cache: dict[tuple[int, int], float]) -> float:
    """Round trips that an object saves on average against the default; capacity to the segment, which is enough."""
    key = (initcwnd, min(int(capacity), 1000))
    if key not in cache:
        before = sum(round_trips(one, DEFAULT_INITCWND, key[1]) for one in OBJECTS)
        cache[key] = (before - sum(round_trips(one, initcwnd, key[1]) for one in OBJECTS)) / len(OBJECTS)
    return cache[key]


def initcwnd(
    pairs: int, days: float, seed: int, policy: Policy, on_day: Callable[[int, int], None] | None = None
) -> tuple[list[Tally], Shown]:
    """Every controller over the same paths; each meets the loss that its own windows cause.

    Gives back the tallies and, for the first six pairs, (capacity, each controller's window) round by round.
    """
    rounds = int(days * model.ROUNDS_PER_DAY)
    made = model.make(pairs, seed)
    series = [model.moments(path, rounds, f"{seed} {at}") for at, path in enumerate(made)]
    undamped = policy.model_copy(
        update={
            "initcwnd": policy.initcwnd.model_copy(update={"hysteresis": 0.0}),
            "damping": policy.damping.model_copy(update={"suppress_above": 100.0}),
        }
    )
    controllers: list[Controller] = [
        Springtide(policy),
        Springtide(undamped, "springtide, undamped"),
        PlainAverage(pairs),
        LastValue(pairs),
        Threshold(pairs),
    ]
    names = np.array([f"p{at:06}" for at in range(pairs)], "S64")
    tallies = [Tally(controller.name, [0] * pairs) for controller in controllers]
    in_use: list[list[int]] = [[0] * pairs for _ in controllers]
    cache: dict[tuple[int, int], float] = {}
    chance = np.random.default_rng([seed, pairs])
    shown: Shown = [[] for _ in range(min(6, pairs))]
    for now in range(rounds):
        if on_day is not None and now % model.ROUNDS_PER_DAY == 0:
            on_day(now // model.ROUNDS_PER_DAY, math.ceil(days))
        moments = [next(one) for one in series]
        attainable = [max(saved(best(one.capacity), one.capacity, cache), 0.0) for one in moments]
        for which, (controller, tally) in enumerate(zip(controllers, tallies, strict=True)):
            before = in_use[which]
            after = controller.decide(START + now * INTERVAL_S, _observe(names, moments, before, chance)).tolist()
            changed = [at for at in range(pairs) if after[at] != before[at]]
            tally.by_round.append(len(changed))
            for at in changed:
                tally.changes[at] += 1
            in_use[which] = after
            # The decision that serves in a round came from the rounds before it.
            for at, one in enumerate(moments):
                window = before[at]
                tally.attainable += attainable[at]
                if window:
                    tally.windows += 1
                    tally.gained += saved(window, one.capacity, cache)
                    tally.too_large += window > max(CMIN, 1.25 * one.capacity)
        for at, lines in enumerate(shown):
            lines.append((moments[at].capacity, [windows[at] for windows in in_use]))
    return tallies, shown


def best(capacity: float) -> int:
    """The window that an oracle that knows the path would set."""
    return int(min(max(capacity, CMIN), CMAX))


def _observe(
    names: NDArray[np.bytes_], moments: list[model.Moment], windows: list[int], chance: np.random.Generator
) -> Table:
    seen = np.full(len(moments), UNSEEN)
    earned = np.array([one.earned for one in moments])
    seen["src_pop"], seen["destination"], seen["ip_version"] = names, b"peer", 4
    seen["connections_earned"], seen["connections_seen"] = earned, earned + 5
    seen["mean_cwnd"] = np.where(earned > 0, [one.mean_cwnd for one in moments], np.nan)
    seen["max_cwnd"] = np.where(earned > 0, [one.max_cwnd for one in moments], -1)
    seen["young_connections"] = YOUNG * earned
    seen["young_lossy_connections"] = [
        model.young_lossy(one.capacity, window or DEFAULT_INITCWND, YOUNG * one.earned, chance)
        for one, window in zip(moments, windows, strict=True)
    ]
    return seen
