"""What first flights say of the values that they started with: of those in use, and of those on trial.

**Harm**: clearly more of the flights lost anything than random loss explains (initcwnd/loss_guard.py: Wilson's interval
against the policy's bound or what the kernel's default loses). **Good**: enough flights of the trial over enough
rounds, no more of them lost than may, and their 50 or 100 kB are not slower than the others'; of a step beyond what was
reached, they must be faster. Units that borrow from their group are judged by all of the group's borrowers together,
and by their own losses: alone, they would wait for days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits, Columns
from springtide.laws.initcwnd.loss_guard import FEWEST_LOSSY, KERNEL_DEFAULT, allowed_share, lower_bound, upper_bound
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats
from springtide.laws.start.trains import proves

Ints = NDArray[np.int64]

# So many standard errors are chance.
_BY_CHANCE = 2.0
# What of default starts is remembered from round to round, and of how many flights at most, in multiples of
# trial_flights: what comes later must be able to change it.
_DEFAULT_KEPT, _MOST_DEFAULT = 0.9, 10
# Where the default loses something in nearly all of its flights, their share says nothing: only segments are compared.
BLIND = 0.9
# Of all segments this part sent again, and so many times the default's, is harm where more than half of the flights
# say so: where they are large, random loss may explain that each loses something; and one host's say it of one host.
_FLOOD, _FLOOD_OF_DEFAULT = 0.1, 2.0
# A round trip of twice the lowest: what starts meets a queue, which hides that the path carries less.
_FILLED = 2.0
# What the default lost is old once this many trials' flights started with the values in use since they are: to ask it
# takes one trial's. And after this many times start.ttl_s, however few start.
_ASKED_AFTER, _OLDEST_DEFAULT = 2, 4
# Flights of values in use that are remembered, in multiples of trial_flights: what comes later must be able to count.
_MOST_USED = 10
# The standard error of the log2 of two medians' ratio, times the root of the flights in each: single times differ by a
# third. And what of a trial's flights is waited for at most, in multiples of trial_flights.
_OF_MEDIANS, _MOST_TRIAL = 0.76, 4
# So many of these are no chance, where something else shows the contrary, or where it is asked in each round.
_SURE = 3.0
# What is sent again has risen where it is this many times as much, and by this part of the segments: in fleets with
# thousands of flights a round anything is more than chance.
_RISEN, _RISE = 1.5, 0.005
# A path carries all of a rate where it shows this part of it: with several at once the queue of what came before blurs
# it. A step that brings less than a tenth is in vain.
CARRIED, _STEP_UP = 0.95, 1.1
# What is counted from round to round: flights of the default (decayed), and when there last were some, of the values in
# use since they are, and of the trial; `trial_log2_time` sums the trial's time over the others' (log2), each round's
# weighed by the fewer flights of both, which `trial_times` sums.
COUNTED = [
    ("default_flights", "<f8"),
    ("default_lossy", "<f8"),
    ("default_resent", "<f8"),
    ("default_at", "<u4"),
    ("used_flights", "<u8"),
    ("used_lossy", "<u8"),
    ("used_segments", "<u8"),
    ("used_resent", "<u8"),
    ("trial_rounds", "<u4"),
    ("trial_flights", "<u8"),
    ("trial_lossy", "<u8"),
    ("trial_segments", "<u8"),
    ("trial_resent", "<u8"),
    ("trial_log2_time", "<f8"),
    ("trial_times", "<f8"),
]


@dataclass(frozen=True)
class Judged:
    """Of each unit; what is none of these is not known yet. `sound`: enough of the round's first flights went well with
    the values in use, on a path that nothing filled. `carried`, `trial_carried`: what the path carried of what a single
    one is given, in use and on trial, 1 where that is all of it, NaN unknown; `path_carried`, `trial_path_carried` of
    what all who start at once are given. `joined`: what is in use loses what only the default's loss of before
    explains, and clearly more than it did: the path has become less, or something else has come onto it. `flood`: harm
    of so much that the path was full. `asks`: that what is in use loses is explained by nothing but what the default
    lost long ago. `left`: COUNTED for the next round, as if all stayed."""

    sound: Bits
    carried: Floats
    path_carried: Floats
    trial_carried: Floats
    trial_path_carried: Floats
    joined: Bits
    harm: Bits
    flood: Bits
    braked: Bits
    asks: Bits
    trial_harm: Bits
    trial_slower: Bits
    trial_in_vain: Bits
    trial_good: Bits
    left: Columns


@dataclass(frozen=True)
class Lost:
    """What flights lose: the share of them that lose any, and the segments that one of these sends again; of the
    default's, but where another is named."""

    share: Floats
    of_lossy: Floats

    @classmethod
    def nothing(cls, count: int) -> Lost:
        return cls(np.zeros(count), np.zeros(count))

    def most(self, flights: NDArray[Any], of: NDArray[Any] | None = None, errors: float = _BY_CHANCE) -> Floats:
        """Segments that so many flights send again, with chance: whether one loses and how much one does vary; and so
        does what is known, where it is of so few others."""
        each = self.share * self.of_lossy
        known = 1.0 if of is None else 1.0 + flights / np.maximum(of, 1)
        by_chance = errors * np.sqrt(each * (1.0 + self.of_lossy) * flights * known)
        most: Floats = each * flights + by_chance
        return most


def judge(
    now: int,
    seen: Columns,
    before: Columns,
    is_frozen: Bits,
    group: Ints,
    law: StartPolicy,
    brake_share: float,
    brake_connections: int,
) -> Judged:
    """`seen` are OBSERVED and `before` PREVIOUS rows of the same units; `group` the numbers of their groups, 0 is none.
    `brake_share`: of so many connections those that lose anything, at which edges brake.

    Long: one count after the other, each over all units at once.
    """
    used, tried = before["window"] > 0, before["trial_permille"] > 0
    live = ~is_frozen
    flights = [_counts(seen[f"flights_{arm}"], live) for arm in (0, 1)]
    lossy = [np.minimum(_counts(seen[f"lossy_{arm}"], live), flights[arm]) for arm in (0, 1)]
    segments = [_counts(seen[f"segments_{arm}"], live) for arm in (0, 1)]
    resent = [_counts(seen[f"resent_{arm}"], live) for arm in (0, 1)]
    left: dict[str, NDArray[Any]] = {}

    # Where nothing is in use, the trial's others start with the kernel's default.
    default = _counts(seen["default_flights"], live) + np.where(used, 0, flights[0])
    default_lossy = _counts(seen["default_lossy"], live) + np.where(used, 0, lossy[0])
    most = _MOST_DEFAULT * law.trial_flights / np.maximum(before["default_flights"], 1.0)
    kept = np.where(default > 0, np.minimum(_DEFAULT_KEPT, most), 1.0)
    left["default_flights"] = kept * before["default_flights"] + default
    left["default_lossy"] = np.minimum(kept * before["default_lossy"] + default_lossy, left["default_flights"])
    left["default_at"] = np.where(default > 0, now, before["default_at"]).astype(np.int64)
    share = left["default_lossy"] / np.maximum(left["default_flights"], 1.0)
    # Held-out edges say how many lose, not how much.
    own_lossy, own_resent = np.where(used, 0, lossy[0]), np.where(used, 0, resent[0])
    newest = own_resent / np.maximum(own_lossy, 1)
    weight = np.where(own_lossy > 0, own_lossy / np.maximum(left["default_lossy"], 1.0), 0.0)
    # Where nothing is known yet, that is all of it.
    weight[(own_lossy > 0) & (before["default_resent"] == 0)] = 1.0
    left["default_resent"] = before["default_resent"] + np.minimum(weight, 1.0) * (newest - before["default_resent"])
    default_lost = Lost(share, left["default_resent"])

    worn = np.where(before["used_flights"] > _MOST_USED * law.trial_flights, 2, 1)
    used_flights = np.where(used, _ints(before["used_flights"]) // worn + flights[0], 0)
    used_lossy = np.where(used, np.minimum(_ints(before["used_lossy"]) // worn + lossy[0], used_flights), 0)
    left["used_flights"], left["used_lossy"] = used_flights, used_lossy
    left["used_segments"] = np.where(used, _ints(before["used_segments"]) // worn + segments[0], 0)
    left["used_resent"] = np.where(used, _ints(before["used_resent"]) // worn + resent[0], 0)
    now_much, all_much, harm, flood = _harm(
        before, left, lossy[0], flights[0], segments[0], resent[0], default_lost, law
    )
    # What the default lost long ago was on another path: what only that explains is asked anew.
    age_s = now - left["default_at"]
    is_old = used & (age_s >= law.ttl_s) & (used_flights >= _ASKED_AFTER * law.trial_flights)
    is_old |= used & (age_s >= _OLDEST_DEFAULT * law.ttl_s)
    *_, unexplained, _ = _harm(before, left, lossy[0], flights[0], segments[0], resent[0], Lost.nothing(len(used)), law)
    asks = is_old & unexplained & ~harm
    # Nor does it explain that more is lost than before. (What an operator set is judged by none of this.)
    joined = used & ~harm & unexplained & (before["overridden"] == 0)
    joined &= _has_risen(before, lossy[0], flights[0], segments[0], resent[0], law)
    with np.errstate(invalid="ignore"):
        is_filled = ~(seen["rtt_p50_us"] <= _FILLED * seen["min_rtt_us"])
    (carried, path_carried), (trial_carried, trial_path_carried) = (
        _carried(seen, before, arm, kind, flights[arm], law) for arm, kind in ((0, ""), (1, "trial_"))
    )
    sound = used & (flights[0] >= law.min_connections) & ~now_much & ~is_filled

    rounds = np.where(tried, _ints(before["trial_rounds"]) + live, 0)
    on_trial = np.where(tried, _ints(before["trial_flights"]) + flights[1], 0)
    trial_lossy = np.where(tried, np.minimum(_ints(before["trial_lossy"]) + lossy[1], on_trial), 0)
    left["trial_rounds"], left["trial_flights"], left["trial_lossy"] = rounds, on_trial, trial_lossy
    left["trial_segments"] = np.where(tried, _ints(before["trial_segments"]) + segments[1], 0)
    left["trial_resent"] = np.where(tried, _ints(before["trial_resent"]) + resent[1], 0)
    much = _much(left["trial_resent"], left["trial_segments"], on_trial, default_lost, law)
    others = np.where(used & ~harm, used_lossy / np.maximum(used_flights, 1), share)
    bound = _allowed(before["trial_window"], share, np.maximum(share, others), law)
    trial_harm = tried & (lossy[1] > 0) & much & _too_many(trial_lossy, on_trial, bound, left["trial_segments"])
    trial_harm |= tried & much & _flood(lossy[1], flights[1], segments[1], resent[1], default_lost)
    log2_time, times = _times(seen, flights)
    left["trial_log2_time"] = np.where(tried & live, before["trial_log2_time"] + log2_time, before["trial_log2_time"])
    left["trial_times"] = np.where(tried & live, before["trial_times"] + times, before["trial_times"])
    ratio = left["trial_log2_time"] / np.maximum(left["trial_times"], 1.0)
    # Of what all at once are given, the times of flights that are alone now and then say nothing.
    steps = before["trial_step"] > 0
    for_all = steps & (before["trial_connection_rate"] <= before["connection_rate"])
    timed = (left["trial_times"] > 0) & ~for_all

    borrowed = tried & (before["trial_borrowed"] > 0)
    # Of a group's borrowers those count that are on trial, and those that already use what they borrowed.
    lends = (group != 0) & (borrowed | (used & (before["borrowed"] > 0)))
    # None of them counts for more than a trial needs: by its own losses it would decide for the others.
    of_each = np.where(borrowed, on_trial, used_flights)
    part = np.minimum(1.0, law.trial_flights / np.maximum(of_each, 1))
    pooled, pooled_lossy, pooled_segments, pooled_resent = (
        _together(group, part * np.where(borrowed, of_trial, of_used), lends)
        for of_trial, of_used in (
            (on_trial, used_flights),
            (trial_lossy, used_lossy),
            (left["trial_segments"], left["used_segments"]),
            (left["trial_resent"], left["used_resent"]),
        )
    )
    pooled_much = _much(pooled_resent, pooled_segments, pooled, Lost.nothing(len(group)), law)
    # Half as many of which none lost anything show as much: of ten, a quarter that lose would show in 19 of 20 trials.
    # And what sharp trains show needs no proof but that nobody else is there.
    parts = np.where(np.where(borrowed, pooled_lossy, trial_lossy) == 0, 2, 1)
    needed = np.ceil(law.trial_flights / np.where(proves(now, before, law), 4, parts))
    enough = np.where(borrowed, pooled, on_trial) >= needed
    clean = trial_lossy <= bound * np.maximum(on_trial, FEWEST_LOSSY)
    clean |= ~much
    of_all = (pooled_lossy <= bound * pooled) | ~pooled_much
    clean &= np.where(borrowed, of_all, (trial_lossy <= bound * on_trial) | ~much)
    clean &= (bound < BLIND) | ~much | (left["trial_segments"] == 0)
    judged = tried & live & enough & (rounds >= law.trial_rounds)
    trial_harm |= judged & ~clean
    judged &= ~trial_harm
    # What seems slower, or no faster, by less than chance explains goes on, up to so many flights. A step must save
    # something; and so must what takes the kernel's default's place: ten segments each may be all that several at once
    # have room for.
    gains = steps | (~used & timed)
    chance = _OF_MEDIANS / np.sqrt(np.maximum(left["trial_times"], 1.0))
    is_enough = on_trial >= _MOST_TRIAL * law.trial_flights
    sure = np.where(is_enough, ratio, ratio - chance)
    too_slow, no_gain = np.log2(1.0 + law.slower), np.log2(1.0 - law.step_gain)
    # Times say little where connections start with others now and then without: what the path carried says more.
    more = steps | (used & (before["trial_connection_rate"] > _STEP_UP * before["connection_rate"]))
    shown = more & np.isfinite(trial_carried)
    with np.errstate(invalid="ignore"):
        brings = trial_carried * before["trial_connection_rate"] >= _STEP_UP * before["connection_rate"]
        brings |= trial_path_carried * before["trial_path_rate"] >= _STEP_UP * before["path_rate"]
    slower = judged & timed & (np.where(shown & brings, ratio - _SURE * chance, sure) > too_slow)
    # Of small objects neither times nor parts are known: what a step brings is not seen, and nothing else is tried.
    unseen = steps & ~timed & is_enough
    in_vain = judged & ~slower & np.where(shown, ~brings, (steps & timed & (sure > no_gain)) | unseen)
    in_vain |= judged & ~slower & gains & timed & is_enough & (ratio > no_gain) & ~shown
    # Where a step's flights lose so much that none shows what was carried, half of all steps seem faster by chance.
    clearly = np.where(is_enough, ratio, ratio + chance)
    good = judged & np.where(gains, timed & (clearly <= no_gain), ~timed | (ratio <= too_slow))
    good = np.where(shown, judged & brings & ~slower, good)
    # Edges brake what loses, whatever the default loses: where as many lose with it that edges brake, now and then by
    # chance, and flights of this round and of all before show that no more of them lose, nor more of them, it says
    # nothing. Few starts show the default's loss before there are values: half of what a trial needs says it, as long
    # as no segments contradict.
    fresh = default >= law.trial_flights
    asked = np.where(fresh, default, left["default_flights"])
    asked_lossy = np.minimum(np.where(fresh, default_lossy, left["default_lossy"]), asked)
    theirs = asked_lossy / np.maximum(asked, 1.0)
    explains = (2 * left["default_flights"] >= law.trial_flights) & brakes(theirs, brake_share, brake_connections)
    most_lossy = upper_bound(asked_lossy, asked)
    as_default = ~more & ~now_much & ~all_much & (used_flights >= law.trial_flights) & (flights[0] > 0)
    as_default &= lower_bound(lossy[0], flights[0]) <= most_lossy
    as_default &= lower_bound(used_lossy, used_flights) <= most_lossy
    of_trial = ~more & ~much & (on_trial >= law.trial_flights)
    of_trial &= lower_bound(trial_lossy, on_trial) <= most_lossy
    as_default = explains & np.where(tried, of_trial & (as_default | ~used), as_default)
    acted = live & (_counts(seen["braked"], live) > 0) & (used | tried)
    braked = acted & ~as_default
    asks |= is_old & acted & as_default
    return Judged(
        sound & ~harm & ~asks,
        carried,
        path_carried,
        trial_carried,
        trial_path_carried,
        joined,
        harm,
        flood,
        braked,
        asks & ~braked,
        trial_harm,
        slower,
        in_vain,
        good,
        left,
    )


def brakes(share: Floats, brake_share: float, brake_connections: int) -> Bits:
    """Whether edges brake, now and then by chance, where this share of connections loses something."""
    by_chance: Bits = share + _BY_CHANCE * np.sqrt(share * (1.0 - share) / brake_connections) >= brake_share
    return by_chance


def _carried(
    seen: Columns, before: Columns, arm: int, kind: str, flights: Ints, law: StartPolicy
) -> tuple[Floats, Floats]:
    """Of what a single one and of what all at once are given: 1 where nearly all was carried, NaN where too few flights
    say it. Where none was limited by what a single one is given, it gets no more than all of them together."""
    few = flights < law.min_connections
    single, together = (np.where(few, np.nan, seen[f"{name}_{arm}"]) for name in ("carried", "path_carried"))
    rate, path = before[f"{kind}connection_rate"], before[f"{kind}path_rate"]
    with np.errstate(invalid="ignore"):
        of_all = together * path / np.where(rate > 0, rate, np.nan)
        single = np.where(np.isnan(single), of_all, single)
        if not kind:
            # A trial's part is given to no one before it is judged, by its losses too; what is in use falls at once,
            # and single flights differ much: what few of them show counts in part.
            counts = np.minimum(2 * flights / law.trial_flights, 1.0)
            single, together = single**counts, together**counts
        return np.where(single >= CARRIED, 1.0, single), np.where(together >= CARRIED, 1.0, together)


def _allowed(window: NDArray[Any], default: Floats, others: Floats, law: StartPolicy) -> Floats:
    """Share of flights that may lose anything: what random loss explains, or what others lose who start with less and
    the policy's bound on top."""
    started = np.maximum(_ints(window), KERNEL_DEFAULT)
    no_loss = np.zeros(len(started))
    more = np.minimum(others + allowed_share(started, no_loss, law), 1.0)
    allowed: Floats = np.maximum(allowed_share(started, default, law), more)
    return allowed


def _times(seen: Columns, flights: list[Ints]) -> tuple[Floats, Floats]:
    """The log2 of the trial's time over the others', of 100 kB, else of 50, times its weight; and the weight."""
    fewer = np.minimum(flights[0], flights[1]).astype(np.float64)
    total, weight = np.zeros((2, len(fewer)))
    for name in ("t100", "t50"):
        ours, theirs = seen[f"{name}_1_us"], seen[f"{name}_0_us"]
        with np.errstate(invalid="ignore"):
            known = (ours > 0) & (theirs > 0) & np.isfinite(ours) & np.isfinite(theirs) & (weight == 0)
        total[known] = fewer[known] * np.log2(ours[known] / theirs[known])
        weight[known] = fewer[known]
    return total, weight


def _clearly(lossy: Ints, flights: Ints, bound: Floats) -> Bits:
    clearly: Bits = (lossy >= FEWEST_LOSSY) & (lower_bound(lossy, flights) > bound)
    return clearly


def _too_many(lossy: Ints, flights: Ints, bound: Floats, segments: NDArray[Any]) -> Bits:
    """Whether clearly more flights lose anything than may; where the bound says nothing, their segments do."""
    blind: Bits = (bound >= BLIND) & (segments > 0) & (lossy >= FEWEST_LOSSY)
    return _clearly(lossy, flights, bound) | blind


def _much(resent: NDArray[Any], segments: NDArray[Any], flights: NDArray[Any], default: Lost, law: StartPolicy) -> Bits:
    """Whether of the flights' segments more were sent again than does no harm, and more than as many flights with the
    kernel's default send again, and than chance adds; unknown is much."""
    harmless = np.maximum(law.loss_segments * _ints(segments), default.most(flights))
    much: Bits = (_ints(segments) == 0) | (_ints(resent) > harmless)
    return much


def _harm(
    before: Columns,
    left: Columns,
    lossy: Ints,
    flights: Ints,
    segments: Ints,
    resent: Ints,
    default: Lost,
    law: StartPolicy,
) -> tuple[Bits, Bits, Bits, Bits]:
    """Of the values in use: whether this round's flights, and all since they are, send much again; whether they do
    harm, beside what the default loses; and whether that is a flood."""
    used = before["window"] > 0
    bound = _allowed(before["window"], default.share, default.share, law)
    now_much = _much(resent, segments, flights, default, law)
    flood = used & now_much & _flood(lossy, flights, segments, resent, default)
    all_much = _much(left["used_resent"], left["used_segments"], left["used_flights"], default, law)
    too_many = now_much & _too_many(lossy, flights, bound, segments)
    too_many |= (
        all_much & (lossy > 0) & _too_many(left["used_lossy"], left["used_flights"], bound, left["used_segments"])
    )
    return now_much, all_much, used & (too_many | flood), flood


def _has_risen(before: Columns, lossy: Ints, flights: Ints, segments: Ints, resent: Ints, law: StartPolicy) -> Bits:
    """Whether a round's flights with the values in use clearly send more again than those before them did, whatever the
    default loses: what that lost before says nothing of who else has come onto the path since."""
    had, had_lossy = (before[f"used_{name}"].astype(np.float64) for name in ("flights", "lossy"))
    # Of none the next one may lose, as much as one does now.
    of_lossy = np.where(
        had_lossy > 0, before["used_resent"] / np.maximum(had_lossy, 1.0), resent / np.maximum(lossy, 1)
    )
    own = Lost((had_lossy + 1.0) / (had + 1.0), of_lossy)
    expected = own.share * own.of_lossy * flights
    risen: Bits = (resent > _RISEN * expected) & (resent > expected + _RISE * segments)
    risen &= (resent > own.most(flights, had, _SURE)) & (had >= law.trial_flights)
    # Most say so: one of several hosts does not, nor do episodes of random loss.
    risen &= (lossy >= FEWEST_LOSSY) & (2 * lossy > flights)
    return risen


def _flood(lossy: Ints, flights: Ints, segments: Ints, resent: Ints, default: Lost) -> Bits:
    """Whether a round's flights lost so much that the path was full. One is enough: where few connections start others
    follow only rounds later, and each of them would lose as much."""
    flood: Bits = (2 * lossy > flights) & (resent > _FLOOD * segments)
    return flood & (resent > _FLOOD_OF_DEFAULT * default.share * default.of_lossy * flights)


def _together(group: Ints, values: Floats, which: Bits) -> Floats:
    """Of each row the sum over its group's rows that count."""
    sums = np.zeros(group.max(initial=0) + 1)
    np.add.at(sums, group[which], values[which])
    together: Floats = sums[group]
    return together


def _counts(column: NDArray[Any], live: Bits) -> Ints:
    return np.where(live, _ints(column), 0)


def _ints(column: NDArray[Any]) -> Ints:
    # What a broken row claims beyond this is as much as this: sums stay numbers.
    return np.minimum(column.astype(np.uint64, copy=False), np.uint64(2**40)).view(np.int64)
