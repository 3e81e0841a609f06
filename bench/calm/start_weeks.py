"""The law of starts over simulated days, beside the initial-window law as a burst and Riptide's plain mean.

Fresh connections meet a model of one queue, which is held against the lab (bench/calm/measured.py, printed here first).
Gain is the share of the default's completion time that objects of 10 kB to 1 MB save, what is on trial included. It is
held against one who knows the path in every round and sends no more again than the default: whose edges keep a rate as
long, or for 60 kB or 1 MB as is best (`with any cap`). Held-out edges are on both sides. Harm is the share of segments
sent again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from springtide.policy import Policy

from bench.calm import measured
from bench.calm.controllers import INTERVAL_S, PlainAverage, Springtide
from bench.calm.start_controllers import Bursts, Controller, Late, Start
from bench.calm.start_flights import LIFTS, Given, Met, best, gained, meet
from bench.calm.start_paths import ROUNDS_PER_DAY, Floats, Paths
from bench.runner import Bench, Run, progress

START = 1_767_312_000
# A round does harm where the share of segments sent again is this much above the default's.
HARM = 0.002
# Rounds until paths have settled, and that a change is watched.
SETTLE, WATCH = 144, 96


@dataclass
class Tally:
    """One controller's sums over rounds, a column a path."""

    gain: Floats
    attainable: Floats
    at_all: Floats
    again: Floats
    default_again: Floats
    harmful: Floats
    rounds: int = 0

    @classmethod
    def of(cls, count: int) -> Tally:
        return cls(np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count))

    def add(self, met: Met, default: Met, oracle: Met, free: Met) -> None:
        self.gain += gained(met, default)
        self.attainable += np.maximum(gained(oracle, default), 0.0)
        self.at_all += np.maximum(gained(free, default), 0.0)
        self.again += met.resent_share()
        self.default_again += default.resent_share()
        self.harmful += met.resent_share() > default.resent_share() + HARM
        self.rounds += 1

    def summary(self, one: Controller, days: float, which: Sequence[bool] | slice) -> dict[str, float]:
        return {
            "time_saved_share": float(self.gain[which].mean() / self.rounds),
            "share_of_attainable_gain": float(self.gain[which].sum() / self.attainable[which].sum()),
            "share_of_gain_at_all": float(self.gain[which].sum() / self.at_all[which].sum()),
            "changes_per_pair_and_day_median": float(np.median(one.changes[which] / days)),
            "changes_per_pair_and_day_p95": float(np.quantile(one.changes[which] / days, 0.95)),
            "trial_changes_per_pair_and_day_median": float(np.median(one.trials[which] / days)),
            "sent_again_share": float(self.again[which].mean() / self.rounds),
            "sent_again_share_default": float(self.default_again[which].mean() / self.rounds),
            "harmful_rounds_share": float(self.harmful[which].mean() / self.rounds),
        }


def mixed(first: Met, other: Met, permille: Floats) -> Met:
    """Averages what connections meet where so many of a thousand are given other values."""
    part = permille[:, None] / 1000
    return Met(
        *(
            (1 - part) * getattr(first, name) + part * getattr(other, name)
            for name in ("trips", "resent", "lossy", "first")
        )
    )


def play(controllers: Sequence[Controller], paths: Paths, rounds: int) -> list[Tally]:
    """Every controller over the same paths; each meets what its own choice causes. The one who knows the path is an
    edge whose rates stay as long."""
    tallies = [Tally.of(paths.count) for _ in controllers]
    nothing = Given.default(paths.count)
    for now in range(rounds):
        if now % ROUNDS_PER_DAY == 0:
            progress(f"{paths.count} pairs: day {now // ROUNDS_PER_DAY + 1}")
        moment = paths.moment(now)
        default, free = meet(moment, nothing), best(moment)
        for one, tally in zip(controllers, tallies, strict=True):
            met = meet(moment, one.given()), meet(moment, one.trial)
            oracle = best(moment, (one.given().lift_bytes,))
            tally.add(mixed(*met, one.permille.astype(float)), default, oracle, free)
            one.round(START + now * INTERVAL_S, moment, met, default)
    return tallies


@dataclass(frozen=True)
class Change:
    """A change of all paths at once, in the middle of a run."""

    name: str
    rate: float
    queue: float


CHANGES = (Change("rate / 4, queue / 10", 0.25, 0.1), Change("rate x 4", 4.0, 1.0))


def after_change(change: Change, count: int, seed: int, policy: Policy) -> tuple[Floats, Floats]:
    """Rounds until no more is sent again than with the default, for good; and until nine tenths of the gain are there.
    WATCH where that never is."""
    paths = Paths(count, seed, calm=True)
    law = Start(policy, "springtide", paths)
    nothing = Given.default(count)
    unsafe, lacking = np.zeros(count), np.zeros(count)
    for now in range(SETTLE + WATCH):
        if now == SETTLE:
            paths.rate = paths.rate * change.rate
            paths.queue = paths.queue * change.queue
        moment = paths.moment(now)
        default, oracle = meet(moment, nothing), best(moment, (policy.enforce.lift_bytes,))
        met = meet(moment, law.given()), meet(moment, law.trial)
        after = now - SETTLE + 1
        if after > 0:
            # Values of all but those on trial.
            unsafe[met[0].resent_share() > default.resent_share() + HARM] = after
            lacking[gained(met[0], default) < 0.9 * gained(oracle, default) - 0.01] = after
        law.round(START + now * INTERVAL_S, moment, met, default)
    return unsafe, lacking


def means(found: Sequence[dict[tuple[str, str], dict[str, float]]]) -> dict[tuple[str, str], dict[str, float]]:
    """Over fleets."""
    return {
        which: {key: float(np.mean([each[which][key] for each in found])) for key in one}
        for which, one in found[0].items()
    }


LABELS = {
    "time_saved_share": ("time saved", True),
    "share_of_attainable_gain": ("share of attainable gain", True),
    "share_of_gain_at_all": ("with any cap", True),
    "changes_per_pair_and_day_median": ("changes per pair and day, median", False),
    "changes_per_pair_and_day_p95": ("p95", False),
    "trial_changes_per_pair_and_day_median": ("of trials, median", False),
    "sent_again_share": ("segments sent again", True),
    "sent_again_share_default": ("by the default", True),
    "harmful_rounds_share": ("rounds of harm", True),
}


def table(rows: dict[tuple[str, str], dict[str, float]]) -> str:
    """Markdown, as the docs show it."""
    names = ["controller", "pairs", *(label for label, _ in LABELS.values())]
    lines = ["| " + " | ".join(names) + " |", "|---|---" + "|---:" * len(LABELS) + "|"]
    for (name, which), one in rows.items():
        cells = [f"{one[key]:.2%}" if share else f"{one[key]:.1f}" for key, (_, share) in LABELS.items()]
        lines.append(f"| {name} | {which} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lifted(policy: Policy) -> Policy:
    """With rates that stay until 60 kB are acknowledged."""
    return policy.model_copy(update={"enforce": policy.enforce.model_copy(update={"lift_bytes": LIFTS[0]})})


def weeks(pairs: int, days: float, seed: int, policy: Policy) -> dict[tuple[str, str], dict[str, float]]:
    """Each controller's summaries: of all pairs with full evidence, then of a fleet half of which is thin."""
    rounds = int(days * ROUNDS_PER_DAY)
    paths = Paths(pairs, seed)
    controllers: list[Controller] = [
        Start(policy, "start", paths),
        Late(policy, "knows each path a round late", paths),
        Late(policy, "knows it, and tries first", paths, tries=True),
        Start(lifted(policy), "start, rates lifted at 60 kB", paths),
        Bursts(Springtide(policy), "initcwnd as a burst", paths),
        Bursts(PlainAverage(pairs), "plain mean as a burst", paths),
    ]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for one, tally in zip(controllers, play(controllers, paths, rounds), strict=True):
        found[one.name, "all"] = tally.summary(one, days, slice(None))
    paths = Paths(pairs, seed, thin=pairs // 2)
    controllers = [
        Start(policy, "start", paths),
        Start(policy, "the same without groups", paths, grouped=False),
        Late(policy, "knows it, and tries first", paths, tries=True),
        # As few as the law asks for where it is surest.
        Late(policy, "knows it, and shows flights first", paths, tries=True, flights=policy.start.trial_flights // 4),
        Bursts(Springtide(policy), "initcwnd as a burst", paths),
    ]
    for one, tally in zip(controllers, play(controllers, paths, rounds), strict=True):
        found[one.name, "half thin: all"] = tally.summary(one, days, slice(None))
        found[one.name, "half thin: the thin"] = tally.summary(one, days, slice(pairs // 2))
    return found


def measure(run: Run) -> None:
    points = measured.rows()
    run.note(measured.table(points))
    run.figure("model_median_error", measured.median_error(points))
    run.figure("model_points", len(points))
    policy = Policy()
    seeds = range(1, run.sizes["seeds"] + 1)
    found = [weeks(run.sizes["pairs"], run.sizes["days"], seed, policy) for seed in seeds]
    run.note(table(means(found)))
    for (name, which), one in found[0].items():
        for key in one:
            run.figure(key, [each[name, which][key] for each in found], controller=name, pairs=which)
    for change in CHANGES:
        unsafe, lacking = after_change(change, run.sizes["changed"], seeds[0], policy)
        for key, rounds in (("rounds_to_safety", unsafe), ("rounds_to_gain", lacking)):
            run.figure(f"{key}_median", float(np.median(rounds)), change=change.name)
            run.figure(f"{key}_p95", float(np.quantile(rounds, 0.95)), change=change.name)


BENCH = Bench(
    name="calm-start",
    summary="days of the law of starts beside bursts, half of the pairs thin, over three fleets, simulated",
    measure=measure,
    sizes={"pairs": (100, 24), "days": (3.0, 0.2), "seeds": (3, 1), "changed": (100, 12)},
    seconds=600,
    turns=None,
)
