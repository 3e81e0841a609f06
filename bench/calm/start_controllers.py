"""Who decides what connections start with: the law of starts, the initial-window law as a burst, and Riptide's plain
mean, each from what the connections of its own choice showed; and one who knows what the paths carried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from springtide.laws.columns import Table
from springtide.laws.initcwnd.law import UNSEEN as UNSEEN_PAIR
from springtide.laws.start.evidence import GROUPED
from springtide.laws.start.law import DECIDED, PREVIOUS, STARTS, UNSEEN, decide
from springtide.policy import Policy

from bench.calm.controllers import PlainAverage, Springtide
from bench.calm.flights import DEFAULT_WINDOW, SEGMENT, WIRE
from bench.calm.start_flights import PARTS, SEGMENTS, Given, Met
from bench.calm.start_paths import SINGLE_SIGMA, SUM_SIGMA, Floats, Ints, Moment, Paths

# A collector's samples show at most so many connections of a path's round.
MOST_SEEN = 50
# Each size's part of the connections with more than ten segments.
LONG = PARTS[1:] / PARTS[1:].sum()
# Medians of times differ by this much over the root of flights (natural logarithm).
TIME_SIGMA = 0.3
# And of what the path carried of a rate: over the lab's paths they were within 6 % of the truth.
CARRIED_SIGMA = 0.05
# Medians of how fast first segments were delivered: over the lab's paths within 4 % of the truth up to 50 Mbit/s, up to
# an eighth above it at 77 and up to a half at 200; and the slowest quarter within 5 % of them.
TRAIN_SIGMA, TRAIN_SPREAD = 0.04, 1.05


# Columns of each kind of evidence that a play may leave out.
EVIDENCE = {
    "train_rate": ("trains", "train_low_rate", "train_rate"),
    "share_rate": ("share_connections", "share_rate"),
    "path_rate": ("path_buckets", "path_rate", "at_once"),
    "reached_rate": ("reached_connections", "reached_rate"),
}
# Above this rate, bytes/s, a receiver may acknowledge first segments all at once, and short answers meet nothing: there
# `fast` leaves out all but `reached_rate`.
FAST = 1.25e7


class Controller(Protocol):
    name: str
    # Changes of what is in use; `trials` counts those of what is on trial.
    changes: Ints
    trials: Ints

    @property
    def permille(self) -> Ints:
        """Connections on trial, per thousand."""

    @property
    def trial(self) -> Given:
        """Values of connections on trial."""

    def given(self) -> Given:
        """Values in use."""

    def round(self, now: int, moment: Moment, met: tuple[Met, Met], default: Met) -> None:
        """Decides anew; `met` is what those of its choice met, in use and on trial."""


class Bursts:
    """A law of windows, without rates."""

    def __init__(self, law: Springtide | PlainAverage, name: str, paths: Paths) -> None:
        self.name, self._law, self._paths = name, law, paths
        self._draw = paths.another()
        self._windows = np.zeros(paths.count, np.int64)
        self._names = names(paths.count)
        self.changes, self.trials = np.zeros((2, paths.count), np.int64)

    @property
    def permille(self) -> Ints:
        return np.zeros(self._paths.count, np.int64)

    @property
    def trial(self) -> Given:
        return Given.default(self._paths.count)

    def given(self) -> Given:
        nothing = np.zeros(self._paths.count)
        return Given(self._windows, nothing, nothing, is_young=True)

    def round(self, now: int, moment: Moment, met: tuple[Met, Met], default: Met) -> None:
        draw = self._draw
        seen = np.full(self._paths.count, UNSEEN_PAIR)
        seen["src_pop"], seen["destination"], seen["ip_version"] = self._names, b"peer", 4
        # CUBIC's window is between 0.7 and 1 of what the pipe and the queue hold.
        held = (moment.share * WIRE / SEGMENT * moment.rtt_ms / 1000 / WIRE) + moment.queue / (
            moment.together / moment.share
        )
        seen["connections_seen"] = seen["connections_earned"] = moment.met
        mean = held * draw.uniform(0.8, 0.9, len(held))
        seen["mean_cwnd"] = np.where(moment.met > 0, np.maximum(2.0, mean), np.nan)
        long = draw.binomial(moment.young, PARTS[1:].sum())
        seen["young_connections"] = long
        seen["young_lossy_connections"] = draw.binomial(long, met[0].lossy_share())
        windows = self._law.decide(now, seen)
        self.changes += windows != self._windows
        self._windows = windows


class Late:
    """One who knows what each path carried in the round before, with the policy's part of the rate and its window: what
    a law reaches that never errs. Follows at once, or `tries`.

    Who tries falls at once by more than the policy's hysteresis. A rise beyond that goes to a part of the connections
    first, for a round and for as many `flights` as show it."""

    def __init__(self, policy: Policy, name: str, paths: Paths, tries: bool = False, flights: int = 0) -> None:
        self.name, self._policy, self._tries, self._needed = name, policy, tries, flights
        self._draw = paths.another()
        self._rate, self._tried, self._rtt_ms, self._shown = np.zeros((4, paths.count))
        self.changes, self.trials = np.zeros((2, paths.count), np.int64)

    @property
    def permille(self) -> Ints:
        return np.where(self._tried > 0, self._policy.enforce.max_trial_permille, 0)

    @property
    def trial(self) -> Given:
        return self._with(self._tried)

    def given(self) -> Given:
        return self._with(self._rate)

    def round(self, now: int, moment: Moment, met: tuple[Met, Met], default: Met) -> None:
        law = self._policy.start
        self._rtt_ms = moment.rtt_ms
        carried, before, tried = law.pace_gain * moment.together, self._rate, self._tried
        self._rate = carried
        if self._tries:
            held = np.where(carried < (1 - law.hysteresis) * before, carried, before)
            self._shown += self._draw.binomial(moment.young, self.permille / 1000 * PARTS[1:].sum())
            is_shown = self._shown >= self._needed
            self._rate = np.where(is_shown, np.maximum(held, np.minimum(tried, carried)), held)
            self._tried = np.where(carried > (1 + law.hysteresis) * self._rate, carried, 0.0)
            self._shown = np.where(is_shown | (self._tried == 0) | (tried == 0), 0.0, self._shown)
        self.changes += self._rate != before
        self.trials += (self._tried != tried) & (self._tried > 0)

    def _with(self, rate: Floats) -> Given:
        law = self._policy.start
        window = np.clip(law.headroom * rate * self._rtt_ms / 1000 / SEGMENT, DEFAULT_WINDOW, law.cmax)
        return Given(np.where(rate > 0, window, 0).astype(np.int64), rate, rate, self._policy.enforce.lift_bytes)


class Start:
    def __init__(
        self,
        policy: Policy,
        name: str,
        paths: Paths,
        grouped: bool = True,
        without: Sequence[str] = (),
        copy: int = 0,
    ) -> None:
        """`without`: rules of the law, kinds of EVIDENCE, or `fast`."""
        self.name, self._policy, self._paths = name, policy, paths
        self._lacks = [one for one in without if one in EVIDENCE]
        self._lacks_of_fast = [one for one in EVIDENCE if one != "reached_rate"] if "fast" in without else []
        self._without = [one for one in without if one not in EVIDENCE and one != "fast"]
        self._draw = paths.another(copy)
        self._last: Table = np.zeros(0, PREVIOUS)
        count = paths.count
        self.decided: Table = np.zeros(count, DECIDED)
        self._names = names(count)
        self._groups = np.zeros(count if grouped else 0, GROUPED)
        if grouped:
            self._groups["src_pop"], self._groups["destination"], self._groups["ip_version"] = self._names, b"peer", 4
            self._groups["group"] = [f"region{at}" for at in paths.region]
        self.changes, self.trials = np.zeros((2, count), np.int64)
        self.reasons: dict[int, int] = {}

    @property
    def permille(self) -> Ints:
        return self.decided["trial_permille"].astype(np.int64)

    @property
    def trial(self) -> Given:
        return _given(self.decided, "trial_", self._policy.enforce.lift_bytes)

    def given(self) -> Given:
        return _given(self.decided, "", self._policy.enforce.lift_bytes)

    def round(self, now: int, moment: Moment, met: tuple[Met, Met], default: Met) -> None:
        seen = self._observe(moment, met, default)
        decided = decide(now, self._policy, seen, self._last, self._groups, without=self._without)
        for kind, count in (("", self.changes), ("trial_", self.trials)):
            fields = [f"{kind}{name}" for name in ("window", "connection_rate", "path_rate")]
            count += np.any([decided[name] != self.decided[name] for name in fields], axis=0)
        for code, times in zip(*np.unique(decided["reason"], return_counts=True), strict=True):
            self.reasons[int(code)] = self.reasons.get(int(code), 0) + int(times)
        self.decided, self._last = decided.table(), STARTS.carry(decided, now).table()

    def _observe(self, moment: Moment, met: tuple[Met, Met], default: Met) -> Table:
        draw, count = self._draw, self._paths.count
        seen = np.full(count, UNSEEN)
        seen["src_pop"], seen["destination"], seen["ip_version"] = self._names, b"peer", 4
        seen["connections"], seen["mss"] = moment.met + moment.young, SEGMENT
        seen["min_rtt_us"] = moment.rtt_ms * 1000
        seen["share_rate"] = singles(moment.share, moment.met, self._share_quantile, draw)
        seen["share_connections"] = moment.met
        in_use = self.given()
        # Slow start shows what it reached: four default windows in a round trip, or what it was given.
        trip_s = moment.rtt_ms / 1000
        reached = np.maximum(4 * DEFAULT_WINDOW * SEGMENT / trip_s, in_use.rate)
        long = draw.binomial(moment.young, PARTS[2:].sum())
        seen["reached_connections"] = long
        seen["reached_rate"] = np.where(long > 0, np.minimum(reached, moment.share), np.nan)
        known = moment.met > 0
        seen["path_buckets"] = np.where(known, 10, 0)
        seen["path_rate"] = np.where(known, moment.together * np.exp(draw.normal(0, SUM_SIGMA, count)), np.nan)
        seen["at_once"] = moment.at_once
        # Every connection leaves a record; what it started with does not matter.
        seen["trains"] = draw.binomial(moment.young, PARTS[1:].sum())
        trains = moment.capacity * np.exp(draw.normal(0, TRAIN_SIGMA, count))
        seen["train_rate"] = np.where(seen["trains"] > 0, trains, np.nan)
        seen["train_low_rate"] = seen["train_rate"] / TRAIN_SPREAD
        seen["receiver_window"] = np.nan
        on_trial = draw.binomial(moment.young, self.permille / 1000)
        held_out = draw.binomial(moment.young - on_trial, 0.05)
        arms = (moment.young - on_trial - held_out, on_trial)
        for arm, (connections, found, given) in enumerate(zip(arms, met, (in_use, self.trial), strict=True)):
            flights = draw.binomial(connections, PARTS[1:].sum())
            seen[f"flights_{arm}"] = flights
            seen[f"lossy_{arm}"] = draw.binomial(flights, np.clip(found.lossy_share(), 0, 1))
            seen[f"segments_{arm}"] = flights * (SEGMENTS[1:] @ LONG)
            seen[f"resent_{arm}"] = draw.poisson(flights * (found.first[:, 1:] @ LONG))
            for size, name in ((2, "t100"), (1, "t50")):
                noise = np.exp(draw.normal(0, TIME_SIGMA / np.sqrt(np.maximum(flights, 1)), count))
                time = found.trips[:, size] * moment.rtt_ms * 1000 * noise
                seen[f"{name}_{arm}_us"] = np.where(flights > 0, time, np.nan)
            other = arms[1 - arm] / np.maximum(sum(arms), 1)
            parts = self._carried(given, (self.trial, in_use)[arm], other, arm == 1, moment, found, flights)
            for name, part in zip(("carried", "path_carried"), parts, strict=True):
                seen[f"{name}_{arm}"] = np.where(flights > 0, part, np.nan)
        flights = draw.binomial(held_out, PARTS[1:].sum())
        seen["default_flights"] = flights
        seen["default_lossy"] = draw.binomial(flights, np.clip(default.lossy_share(), 0, 1))
        for lacks, where in ((self._lacks, True), (self._lacks_of_fast, moment.capacity > FAST)):
            for column in (column for kind in lacks for column in EVIDENCE[kind]):
                seen[column] = np.where(where, UNSEEN[column], seen[column])
        return seen

    def _carried(
        self, given: Given, others: Given, other: Floats, is_trial: bool, moment: Moment, found: Met, flights: Ints
    ) -> tuple[Floats, Floats]:
        """The part that the path carries of what one connection is given, and of what all at once are given. Only the
        one that limits is known, the other is NaN. `other`: the part that starts with another arm's values."""
        each, theirs = (np.minimum(one.rate, one.path / moment.at_once) for one in (given, others))
        together = each * moment.at_once
        beside = each + (moment.at_once - 1) * ((1 - other) * each + other * np.where(theirs > 0, theirs, each))
        with np.errstate(divide="ignore", invalid="ignore"):
            sigma = CARRIED_SIGMA * np.sqrt(np.clip(10 / np.maximum(flights, 1), 1, None))
            back = np.minimum(moment.together * np.exp(sigma * self._draw.normal(0, 1, len(each))) / together, 1.0)
            gave = beside / together
        # As the roll-up has it (sql/rollup/4_path_flights.sql).
        known = (gave >= 0.95) | (back < 0.85 * gave)
        part = np.where(known, back, np.minimum(1.1 * gave, 1.0) if is_trial else np.nan)
        # Flights that lost anything do not count.
        shown = (given.window >= 36) & (each > 0) & (found.lossy[:, 2] < 0.8)
        of_path = (moment.at_once > 1) & (given.rate * moment.at_once > given.path)
        return np.where(shown & ~of_path, part, np.nan), np.where(shown & of_path, part, np.nan)

    @property
    def _share_quantile(self) -> float:
        return self._policy.start.share_quantile


def singles(share: Floats, met: Ints, quantile: float, draw: np.random.Generator) -> Floats:
    """A quantile of so many single delivery rates; NaN of none."""
    most = min(MOST_SEEN, max(1, int(met.max())))
    rates = np.sort(
        np.where(np.arange(most) < met[:, None], draw.normal(0, SINGLE_SIGMA, (len(met), most)), np.inf), axis=1
    )
    count = np.minimum(met, most)
    at = np.floor(quantile * np.maximum(count - 1, 0)).astype(int)
    chosen = rates[np.arange(len(met)), at]
    known = count > 0
    return np.where(known, share * np.exp2(np.where(known, chosen, 0.0)), np.nan)


def names(count: int) -> NDArray[np.bytes_]:
    return np.array([f"p{at:06}" for at in range(count)], "S64")


def _given(decided: Table, kind: str, lift_bytes: int) -> Given:
    window = decided[f"{kind}window"].astype(np.int64)
    return Given(window, decided[f"{kind}connection_rate"].copy(), decided[f"{kind}path_rate"].copy(), lift_bytes)
