"""The congestion law over days: simulated client prefixes, our law and the naive ones side by side.

Also draws the days, beside the JSON.

The shapes are those that operators know, their sizes are assumptions, stated here: rates are lognormal over prefixes,
have a daily tide, wander, jitter, fall in loss episodes and change for good with routes. BBR makes most of the slow
paths faster, some slower, and costs the others a little. Every number is drawn from one seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from springtide.frame import Frame
from springtide.laws.columns import Table
from springtide.laws.congestion.law import EVIDENCE, PREVIOUS, decide
from springtide.laws.congestion.rows import PREFIXES
from springtide.policy import Policy

from bench.calm.plot import OURS, drawn
from bench.runner import Bench, BenchError, Run, progress

ROUNDS_PER_DAY, INTERVAL_S, START = 288, 300, 1_767_312_000
ROUNDS_AN_HOUR = 12
POPS = 20
# Everything of rates is in powers of two.
LEVEL, LEVEL_SIGMA = 20.0, 1.7
TIDE, WALK_SIGMA, WALK_KEPT, NOISE_SIGMA = (0.05, 0.6), 0.02, 0.999, 0.35
EPISODES_PER_DAY, EPISODE_ROUNDS, EPISODE_DEPTH = 0.25, (6, 72), (1.0, 3.0)
ROUTES_PER_DAY, ROUTE_SIGMA = 0.05, 0.7
MEASURED = 0.9
# Effect of BBR on a path in its PoP's slowest fifth; elsewhere it costs a little.
HELPED, HELPED_GAIN, HARMED_GAIN, ELSEWHERE = 0.7, (0.2, 1.0), (-0.3, 0.0), -0.05

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


def is_held_out(pop: bytes, address: bytes, share: float) -> bool:
    """As core/src/step/congestion/holdout.rs says it of a prefix, once that is chosen."""
    found = hashlib.sha256(b"springtide congestion holdout\0" + pop + b"\0" + address).digest()
    return int.from_bytes(found[:8], "big") < share * 2.0**64


class Controller(Protocol):
    name: str

    def decide(self, now: int, low: Flags, measured: Flags, rate: Floats) -> Flags:
        """Prefixes that use BBR from now on."""

    @property
    def discount(self) -> float:
        """Powers of two by which rates under BBR are lowered before they are ranked."""


class Springtide:
    def __init__(self, policy: Policy, count: int, name: str = "springtide") -> None:
        self.name, self._policy, self._count = name, policy, count
        self._last = Frame.empty(0, PREVIOUS)
        self._masks = {key: np.zeros(count, np.uint64) for key in ("measured_0", "measured_1", "low_0", "low_1")}
        self._rates = np.full((policy.congestion.window_rounds, count), np.nan)
        self._pop = np.array([f"pop{at * POPS // count}" for at in range(count)], "S64")
        self._names = np.array([f"{at:08}" for at in range(count)], "S64")
        share, places = policy.congestion.holdout_share, zip(self._pop, range(count), strict=True)
        # Whenever it is chosen.
        self.held_out = np.array([is_held_out(bytes(pop), at.to_bytes(16, "big"), share) for pop, at in places], bool)

    @property
    def discount(self) -> float:
        return float(np.log2(self._policy.congestion.bbr_discount))

    def decide(self, now: int, low: Flags, measured: Flags, rate: Floats) -> Flags:
        for kind, flags in (("measured", measured), ("low", low & measured)):
            newest, older = self._masks[f"{kind}_0"], self._masks[f"{kind}_1"]
            self._masks[f"{kind}_1"] = older << np.uint64(1) | newest >> np.uint64(63)
            self._masks[f"{kind}_0"] = newest << np.uint64(1) | flags
        at = now // INTERVAL_S % len(self._rates)
        self._rates[at] = np.where(measured, rate, np.nan)
        decided = decide(now, self._policy, self._evidence(at), self._last)
        self._last = PREFIXES.carry(decided, now)
        chosen = np.zeros(self._count, bool)
        chosen[decided["destination"][decided["algorithm"] > 0].astype(int)] = True
        return chosen

    def _evidence(self, at: int) -> Table:
        """The evidence of prefixes that were low often enough to matter, or are remembered, as the engine gives it."""
        often = np.bitwise_count(self._masks["low_0"]) + np.bitwise_count(self._masks["low_1"])
        often[self._last["destination"].astype(int)] = 255
        where = np.flatnonzero(often >= 8)
        table = np.zeros(len(where), EVIDENCE)
        table["src_pop"], table["destination"], table["ip_version"] = self._pop[where], self._names[where], 4
        table["low"] = where
        for name, mask in self._masks.items():
            table[name] = mask[where]
        table["rtt_us"], table["retransmit_ratio"] = 80_000, 0.02
        newest = (at - np.arange(self._policy.congestion.benefit_rounds)) % len(self._rates)
        for name, rows in (("log2_rate", self._rates), ("recent_log2_rate", self._rates[newest])):
            own = rows[:, where]
            known = np.isfinite(own)
            table[name] = np.where(known.any(0), np.where(known, own, 0).sum(0) / np.maximum(known.sum(0), 1), -1.0)
        return table


@dataclass
class LastRound:
    """Whatever is low in this round."""

    name: str = "last round"
    discount: float = 0.0

    def decide(self, now: int, low: Flags, measured: Flags, rate: Floats) -> Flags:
        return low & measured


@dataclass
class Average:
    """Low more often than not, by a moving average."""

    name: str = "plain EWMA"
    discount: float = 0.0
    share: Floats | None = None

    def decide(self, now: int, low: Flags, measured: Flags, rate: Floats) -> Flags:
        share = np.zeros(len(low)) if self.share is None else self.share
        self.share = np.where(measured, 0.9 * share + 0.1 * low, share)
        return self.share > 0.5


@dataclass
class Duty:
    """The article's duty cycle over six hours against one threshold, without hysteresis or stay."""

    name: str = "duty cycle, one threshold"
    discount: float = 0.0
    flags: list[Flags] = field(default_factory=list)

    def decide(self, now: int, low: Flags, measured: Flags, rate: Floats) -> Flags:
        self.flags = [*self.flags[-71:], low & measured]
        share: Flags = np.mean(self.flags, axis=0) >= 0.8 * MEASURED
        return share


@dataclass
class Tally:
    name: str
    selected: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    changes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    gained: float = 0.0
    attainable: float = 0.0
    # Without what it holds out, whatever it chooses: an oracle that pays for the same comparison reaches that.
    limit: float = 0.0

    def summary(self, days: float) -> dict[str, Any]:
        """Over the rounds after the first day: before, our law's window is filling."""
        settled = slice(min(ROUNDS_PER_DAY, len(self.new) // 2), None)
        selected, new = float(np.median(self.selected[settled])), float(np.median(self.new[settled]))
        ever = self.changes[self.changes > 0]
        return {
            "controller": self.name,
            "selected_median": selected,
            "new_per_round_median": new,
            "new_share_of_selected": round(new / selected, 4) if selected else None,
            "changes_per_round_mean": round(float(self.changes.sum()) / len(self.new), 1),
            "changes_per_ever_selected_and_day_p95": round(float(np.quantile(ever, 0.95)) / days, 2)
            if len(ever)
            else 0,
            "prefixes_with_four_changes_or_more": int((self.changes >= 4).sum()),
            "share_of_attainable_gain": round(self.gained / self.attainable, 4) if self.attainable else None,
            "share_of_oracle_with_its_holdout": round(self.gained / self.limit, 4) if self.limit else None,
        }


def run(count: int, days: float, seed: int, policy: Policy, on_day: Callable[[int], None] | None = None) -> list[Tally]:
    """Every controller over the same paths; each sees the rates that its own choices make."""
    draw = np.random.default_rng(seed)
    rounds = int(days * ROUNDS_PER_DAY)
    controllers = _controllers(policy, count)
    tallies = [Tally(one.name, changes=np.zeros(count, np.int64)) for one in controllers]
    on = [np.zeros(count, bool) for _ in controllers]
    level = draw.normal(LEVEL, LEVEL_SIGMA, count)
    tide, busiest = draw.uniform(*TIDE, count), draw.uniform(0, ROUNDS_PER_DAY, count)
    helped = draw.random(count) < HELPED
    gain_if_slow = np.where(helped, draw.uniform(*HELPED_GAIN, count), draw.uniform(*HARMED_GAIN, count))
    walk, depth, until = np.zeros(count), np.zeros(count), np.zeros(count)
    for number in range(rounds):
        if on_day is not None and number % ROUNDS_PER_DAY == 0:
            on_day(number // ROUNDS_PER_DAY)
        walk = WALK_KEPT * walk + draw.normal(0, WALK_SIGMA, count)
        level += (draw.random(count) < ROUTES_PER_DAY / ROUNDS_PER_DAY) * draw.normal(0, ROUTE_SIGMA, count)
        starts = (draw.random(count) < EPISODES_PER_DAY / ROUNDS_PER_DAY) & (until <= number)
        until = np.where(starts, number + draw.integers(*EPISODE_ROUNDS, count), until)
        depth = np.where(starts, draw.uniform(*EPISODE_DEPTH, count), depth)
        path = level + walk - depth * (until > number)
        path -= tide * (0.5 + 0.5 * np.cos(2 * np.pi * (number - busiest) / ROUNDS_PER_DAY))
        measured = draw.random(count) < MEASURED
        noise = draw.normal(0, NOISE_SIGMA, count)
        slow = _low(path, np.ones(count, bool))
        gain = np.where(slow, gain_if_slow, ELSEWHERE)
        attainable = float(np.maximum(gain, 0).sum())
        for which, (controller, tally) in enumerate(zip(controllers, tallies, strict=True)):
            # The decision that serves in a round came from the rounds before it.
            before = on[which]
            tally.attainable += attainable
            if isinstance(controller, Springtide):
                tally.limit += float(np.maximum(gain, 0)[~controller.held_out].sum())
            tally.gained += float(gain[before].sum())
            rate = path + noise + gain * before
            low = _low(rate - controller.discount * before, measured)
            after = controller.decide(START + number * INTERVAL_S, low, measured, rate)
            tally.selected.append(int(after.sum()))
            tally.new.append(int((after & ~before).sum()))
            tally.changes += after != before
            on[which] = after
    return tallies


def _controllers(policy: Policy, count: int) -> list[Controller]:
    undamped = policy.congestion_damping.model_copy(update={"suppress_above": 100.0})
    bare = {"min_stay_s": 0, "leave_duty": policy.congestion.enter_duty - 1e-6, "give_back_hold_s": 0}
    return [
        Springtide(policy, count),
        Springtide(policy.model_copy(update={"congestion_damping": undamped}), count, "springtide, undamped"),
        Springtide(
            policy.model_copy(
                update={"congestion_damping": undamped, "congestion": policy.congestion.model_copy(update=bare)}
            ),
            count,
            "springtide, no hysteresis either",
        ),
        Duty(),
        Average(),
        LastRound(),
    ]


def _low(rate: Floats, measured: Flags) -> Flags:
    """Below the 20th percentile of its PoP."""
    by_pop = np.where(measured, rate, np.inf).reshape(POPS, -1)
    seen = measured.reshape(POPS, -1).sum(1)
    bound = np.sort(by_pop, axis=1)[np.arange(POPS), (0.2 * seen).astype(int)]
    low: Flags = (by_pop < bound[:, None]).reshape(-1)
    return low


def draw_plot(tallies: list[Tally], path: Path) -> None:
    """A row a controller: six curves in one plot would hide one another."""
    with drawn(8.5, path) as figure:
        grid = figure.subplots(len(tallies), 2, sharex=True, sharey="col")
        for number, (tally, (left, right)) in enumerate(zip(tallies, grid, strict=True)):
            # One point an hour: a week of rounds would be a megabyte of lines.
            hours = len(tally.new) // ROUNDS_AN_HOUR
            for axes, values in ((left, tally.selected), (right, tally.new)):
                by_hour = np.reshape(values[: hours * ROUNDS_AN_HOUR], (hours, ROUNDS_AN_HOUR)).mean(axis=1)
                axes.plot(np.arange(hours) + 0.5, by_hour, color="#222" if number else OURS, linewidth=1)
            left.set_title(tally.name, fontsize=9, loc="left")
            right.set_yscale("symlog")
            right.yaxis.set_major_formatter("{x:g}")
        # Last: it ends the scaling to what is drawn.
        grid[0][0].set_ylim(bottom=0)
        figure.supylabel("left: prefixes on BBR; right: new in a round, mean of an hour", fontsize=9)
        figure.supxlabel("hours", fontsize=9)


def measure(bench: Run) -> None:
    prefixes, days = bench.sizes["prefixes"], bench.sizes["days"]
    if prefixes % POPS:
        raise BenchError(f"--prefixes {prefixes} is not a multiple of {POPS}, the number of PoPs")

    def on_day(day: int) -> None:
        progress(f"{prefixes} prefixes: day {day + 1} of {days:g}")

    tallies = run(prefixes, days, bench.sizes["seed"], Policy(), on_day)
    summaries = [tally.summary(days) for tally in tallies]
    draw_plot(tallies, bench.out.with_suffix(".svg"))
    bench.note(table(summaries))
    for one in summaries:
        for name, value in one.items():
            if isinstance(value, int | float):
                bench.figure(name, value, controller=one["controller"])


def table(summaries: list[dict[str, Any]]) -> str:
    """Markdown."""
    names = list(summaries[0])
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(str(one[name]) for name in names) + " |" for one in summaries]
    return "\n".join(lines)


BENCH = Bench(
    name="calm-prefixes",
    summary="20,000 client prefixes over seven days under our law and the naive ones, simulated",
    measure=measure,
    sizes={"prefixes": (20_000, 200), "days": (7.0, 0.1), "seed": (1, 1)},
    seconds=600,
    turns=None,
)
