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

from springtide.laws.columns import Bits, Columns, Picked
from springtide.laws.initcwnd.loss_guard import FEWEST_LOSSY, lower_bound, upper_bound
from springtide.laws.start.losses import (
    BLIND,
    BY_CHANCE,
    SURE,
    Lost,
    allowed_lossy,
    does_harm,
    has_risen,
    ints,
    is_flood,
    sends_much,
    too_many_lossy,
)
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats
from springtide.laws.start.trains import proves

Ints = NDArray[np.int64]

# What of default starts is remembered from round to round, and of how many flights at most, in multiples of
# trial_flights: what comes later must be able to change it.
_DEFAULT_KEPT, _MOST_DEFAULT = 0.9, 10
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
# A path carries all of a rate where it shows this part of it: with several at once the queue of what came before blurs
# it. (Rows have parts in half of a double, where 0.95 is a little less.) A step that brings less than a tenth is in
# vain.
CARRIED, _STEP_UP = 0.95 - 1e-6, 1.1
# What is counted from round to round: flights of the default (decayed), when there last were some, and how long they
# took beside a trial (medians of 50 and 100 kB), and when that was last seen; of the values in
# use since they are, and of the trial; `trial_log2_time` sums the trial's time over the others' (log2), each round's
# weighed by the fewer flights of both, which `trial_times` sums.
COUNTED = [
    ("default_flights", "<f4"),
    ("default_lossy", "<f4"),
    ("default_resent", "<f4"),
    ("default_at", "<u4"),
    ("default_t50_us", "<f4"),
    ("default_t100_us", "<f4"),
    ("default_timed_at", "<u4"),
    ("used_flights", "<u4"),
    ("used_lossy", "<u4"),
    ("used_segments", "<u4"),
    ("used_resent", "<u4"),
    ("trial_rounds", "<u4"),
    ("trial_flights", "<u4"),
    ("trial_lossy", "<u4"),
    ("trial_segments", "<u4"),
    ("trial_resent", "<u4"),
    ("trial_log2_time", "<f4"),
    ("trial_times", "<f4"),
]


@dataclass(frozen=True)
class Judged:
    """Of each unit; what is none of these is not known yet. `sound`: enough of the round's first flights went well with
    the values in use, on a path that nothing filled. `carried`, `trial_carried`: what the path carried of what a single
    one is given, in use and on trial, 1 where that is all of it, NaN unknown; `path_carried`, `trial_path_carried` of
    what all who start at once are given. `joined`: what is in use loses what only the default's loss of before
    explains, and clearly more than it did: the path has become less, or something else has come onto it. `flood`: harm
    of so much that the path was full. `asks`: that what is in use loses is explained by nothing but what the default
    lost long ago. `leans`: that it is explained by what the default loses alone, which no held-out edge shows.
    `left`: COUNTED for the next round, as if all stayed."""

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
    leans: Bits
    trial_harm: Bits
    trial_slower: Bits
    trial_in_vain: Bits
    trial_good: Bits
    left: Columns


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
    used, tried = before["window"] > 0, before["trial_window"] > 0
    beside = used & (before["trial_permille"] > 0) & ~tried
    live = ~is_frozen
    flights = [_counts(seen[f"flights_{arm}"], live) for arm in (0, 1)]
    lossy = [np.minimum(_counts(seen[f"lossy_{arm}"], live), flights[arm]) for arm in (0, 1)]
    segments = [_counts(seen[f"segments_{arm}"], live) for arm in (0, 1)]
    resent = [_counts(seen[f"resent_{arm}"], live) for arm in (0, 1)]
    left: dict[str, NDArray[Any]] = {}

    # Where nothing is in use, the trial's others start with the kernel's default; and the arm of a trial of nothing.
    own, own_lossy, own_resent = (
        np.where(used, np.where(beside, count[1], 0), count[0]) for count in (flights, lossy, resent)
    )
    default = _counts(seen["default_flights"], live) + own
    default_lossy = _counts(seen["default_lossy"], live) + own_lossy
    most = _MOST_DEFAULT * law.trial_flights / np.maximum(before["default_flights"], 1.0)
    kept = np.where(default > 0, np.minimum(_DEFAULT_KEPT, most), 1.0)
    left["default_flights"] = kept * before["default_flights"] + default
    left["default_lossy"] = np.minimum(kept * before["default_lossy"] + default_lossy, left["default_flights"])
    left["default_at"] = np.where(default > 0, now, before["default_at"]).astype(np.int64)
    share = left["default_lossy"] / np.maximum(left["default_flights"], 1.0)
    left |= _default_times(now, seen, before, ~used & (flights[0] >= law.min_connections), law)
    # Held-out edges say how many lose, not how much.
    newest = own_resent / np.maximum(own_lossy, 1)
    weight = np.where(own_lossy > 0, own_lossy / np.maximum(left["default_lossy"], 1.0), 0.0)
    # Where nothing is known yet, that is all of it.
    weight[(own_lossy > 0) & (before["default_resent"] == 0)] = 1.0
    left["default_resent"] = before["default_resent"] + np.minimum(weight, 1.0) * (newest - before["default_resent"])
    default_lost = Lost(share, left["default_resent"])

    worn = np.where(before["used_flights"] > _MOST_USED * law.trial_flights, 2, 1)
    used_flights = np.where(used, ints(before["used_flights"]) // worn + flights[0], 0)
    used_lossy = np.where(used, np.minimum(ints(before["used_lossy"]) // worn + lossy[0], used_flights), 0)
    left["used_flights"], left["used_lossy"] = used_flights, used_lossy
    left["used_segments"] = np.where(used, ints(before["used_segments"]) // worn + segments[0], 0)
    left["used_resent"] = np.where(used, ints(before["used_resent"]) // worn + resent[0], 0)
    now_much, all_much, harm, flood = does_harm(
        before, left, lossy[0], flights[0], segments[0], resent[0], default_lost, law
    )
    # What the default lost long ago was on another path: what only that explains is asked anew.
    age_s = now - left["default_at"]
    is_old = used & (age_s >= law.ttl_s) & (used_flights >= _ASKED_AFTER * law.trial_flights)
    is_old |= used & (age_s >= _OLDEST_DEFAULT * law.ttl_s)
    unexplained, joined = np.zeros((2, len(used)), bool)
    at = np.flatnonzero(used & ~harm & (lossy[0] > 0))
    *_, unexplained[at], _ = does_harm(
        Picked(before, at),
        Picked(left, at),
        lossy[0][at],
        flights[0][at],
        segments[0][at],
        resent[0][at],
        Lost.nothing(len(at)),
        law,
    )
    asks = is_old & unexplained
    # Where held-out edges show what it loses, if not in each round, nobody else need start with it.
    unseen_default = (seen["default_flights"] == 0) & (beside | (before["default_at"] < before["round"]))
    # Nor does it explain that more is lost than before. (What an operator set is judged by none of this.)
    at = np.flatnonzero(unexplained & (before["overridden"] == 0))
    joined[at] = has_risen(Picked(before, at), lossy[0][at], flights[0][at], segments[0][at], resent[0][at], law)
    with np.errstate(invalid="ignore"):
        is_filled = ~(seen["rtt_p50_us"] <= _FILLED * seen["min_rtt_us"])
    (carried, path_carried), (trial_carried, trial_path_carried) = (
        _carried(seen, before, arm, kind, flights[arm], law) for arm, kind in ((0, ""), (1, "trial_"))
    )
    sound = used & (flights[0] >= law.min_connections) & ~now_much & ~is_filled

    rounds = np.where(tried, ints(before["trial_rounds"]) + live, 0)
    on_trial = np.where(tried, ints(before["trial_flights"]) + flights[1], 0)
    trial_lossy = np.where(tried, np.minimum(ints(before["trial_lossy"]) + lossy[1], on_trial), 0)
    left["trial_rounds"], left["trial_flights"], left["trial_lossy"] = rounds, on_trial, trial_lossy
    left["trial_segments"] = np.where(tried, ints(before["trial_segments"]) + segments[1], 0)
    left["trial_resent"] = np.where(tried, ints(before["trial_resent"]) + resent[1], 0)
    much = sends_much(left["trial_resent"], left["trial_segments"], on_trial, default_lost, law)
    others = np.where(used & ~harm, used_lossy / np.maximum(used_flights, 1), share)
    bound = allowed_lossy(before["trial_window"], share, np.maximum(share, others), law)
    trial_harm = tried & (lossy[1] > 0) & much & too_many_lossy(trial_lossy, on_trial, bound, left["trial_segments"])
    trial_harm |= tried & much & is_flood(lossy[1], flights[1], segments[1], resent[1], default_lost)
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
    pooled_much = sends_much(pooled_resent, pooled_segments, pooled, Lost.nothing(len(group)), law)
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
    # What seems slower, or no faster, by less than chance explains goes on, up to so many flights.
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
    slower = judged & timed & (np.where(shown & brings, ratio - SURE * chance, sure) > too_slow)
    # Of small objects neither times nor parts are known: what a step brings is not seen, and nothing else is tried.
    unseen = steps & ~timed & is_enough
    in_vain = judged & ~slower & np.where(shown, ~brings, (steps & timed & (sure > no_gain)) | unseen)
    # Where a step's flights lose so much that none shows what was carried, half of all steps seem faster by chance.
    clearly = np.where(is_enough, ratio, ratio + chance)
    good = judged & np.where(steps, timed & (clearly <= no_gain), ~timed | (ratio <= too_slow))
    good = np.where(shown, judged & brings & ~slower, good)
    acted = live & (_counts(seen["braked"], live) > 0) & (used | tried)
    at, as_default = np.flatnonzero(acted), np.zeros(len(used), bool)
    as_default[at] = _loses_as_default(
        Picked(left, at),
        used[at],
        tried[at],
        (~more & ~now_much & ~all_much)[at],
        (~more & ~much)[at],
        flights[0][at],
        lossy[0][at],
        default[at],
        default_lossy[at],
        law,
        brake_share,
        brake_connections,
    )
    braked = acted & ~as_default
    asks |= is_old & as_default
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
        np.where(live, unexplained & unseen_default, beside),
        trial_harm,
        slower,
        in_vain,
        good,
        left,
    )


def _default_times(now: int, seen: Columns, before: Columns, shown: Bits, law: StartPolicy) -> Columns:
    """What first flights with the kernel's default last took, us, 0 is unknown, and when; `shown` by this round's."""
    newest = {name: np.where(shown & (seen[f"{name}_0_us"] > 0), seen[f"{name}_0_us"], 0.0) for name in ("t50", "t100")}
    is_new = (newest["t50"] > 0) | (newest["t100"] > 0)
    timed_at = np.where(is_new, now, before["default_timed_at"]).astype(np.int64)
    lives = now < timed_at + _OLDEST_DEFAULT * law.ttl_s
    left: dict[str, NDArray[Any]] = {"default_timed_at": np.where(lives, timed_at, 0)}
    for name, time in newest.items():
        left[f"default_{name}_us"] = np.where(is_new, time, np.where(lives, before[f"default_{name}_us"], 0.0))
    return left


def _loses_as_default(
    left: Columns,
    used: Bits,
    tried: Bits,
    used_little: Bits,
    trial_little: Bits,
    flights: Ints,
    lossy: Ints,
    default: Ints,
    default_lossy: Ints,
    law: StartPolicy,
    brake_share: float,
    brake_connections: int,
) -> Bits:
    """Where an edge's brake says nothing. Edges brake what loses, whatever the default loses: where as many lose with
    it that edges brake, now and then by chance, and flights of this round (`flights`, `lossy`) and of all before show
    that no more of them lose, nor more of them (`used_little`, `trial_little`). Few starts show the default's loss
    before there are values: half of what a trial needs says it, as long as no segments contradict."""
    fresh = default >= law.trial_flights
    asked = np.where(fresh, default, left["default_flights"])
    asked_lossy = np.minimum(np.where(fresh, default_lossy, left["default_lossy"]), asked)
    theirs = asked_lossy / np.maximum(asked, 1.0)
    explains = (2 * left["default_flights"] >= law.trial_flights) & brakes(theirs, brake_share, brake_connections)
    most_lossy = upper_bound(asked_lossy, asked)
    as_default = used_little & (left["used_flights"] >= law.trial_flights) & (flights > 0)
    as_default &= lower_bound(lossy, flights) <= most_lossy
    as_default &= lower_bound(left["used_lossy"], left["used_flights"]) <= most_lossy
    of_trial = trial_little & (left["trial_flights"] >= law.trial_flights)
    of_trial &= lower_bound(left["trial_lossy"], left["trial_flights"]) <= most_lossy
    return explains & np.where(tried, of_trial & (as_default | ~used), as_default)


def brakes(share: Floats, brake_share: float, brake_connections: int) -> Bits:
    """Whether edges brake, now and then by chance, where this share of connections loses something."""
    by_chance: Bits = share + BY_CHANCE * np.sqrt(share * (1.0 - share) / brake_connections) >= brake_share
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
            # (Of none nothing is known: NaN to the power of 0 is 1.)
            counts = np.minimum(2 * np.maximum(flights, 1) / law.trial_flights, 1.0)
            single, together = single**counts, together**counts
        return np.where(single >= CARRIED, 1.0, single), np.where(together >= CARRIED, 1.0, together)


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


def _together(group: Ints, values: Floats, which: Bits) -> Floats:
    """Of each row the sum over its group's rows that count."""
    sums = np.zeros(group.max(initial=0) + 1)
    np.add.at(sums, group[which], values[which])
    together: Floats = sums[group]
    return together


def _counts(column: NDArray[Any], live: Bits) -> Ints:
    return np.where(live, ints(column), 0)
