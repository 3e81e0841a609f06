"""What a unit's path has proved: what it carries, as the trains of segments show with which connections start; a single
connection's share, and the rate of all together, smoothed, and borrowed where its own evidence is thin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits, Columns
from springtide.laws.start import shrink
from springtide.laws.start.losses import BLIND
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats, Grouped
from springtide.laws.start.trains import TRAINS, log2_of, read_trains, shown_before, shows_less
from springtide.laws.start.trial import Judged

# The variance of a normal sample's lower quartile, in the sample's variance over its size.
_OF_QUARTILE = 1.86
# Of log2 of single delivery rates, where it is unknown, and at least: rates differ by a quarter, as with CUBIC's
# sawtooth.
_USUAL_VARIANCE, _LEAST_VARIANCE = 0.25, 0.02
# How a path's rate is followed, weights of what was known: what was delivered once was there, what was not may have
# been lack of traffic. A collapsed share takes the path's rate with it.
_PATH_RISE, _PATH_FALL = 0.5, 0.95

# What is shown_before: log2 of bytes/s, its variance, and connections, decayed; and of trains.
LEARNT = [
    ("share_log2", "<f4"),
    ("share_var", "<f4"),
    ("share_weight", "<f4"),
    ("path_log2", "<f4"),
    *TRAINS,
]


@dataclass(frozen=True)
class Proved:
    """Of each unit, rates in bytes/s, NaN where there is none. `share`: what a single connection may be given, `known`
    from trains or from what met the path (shrunken: `own_weight` is its own evidence's), `borrowed` from the group,
    else only a lower bound; never below what was reached in the round. `carries`: what the path carries, where
    trains show that much and no more. `shown`: `share` is what trains show, of a path that nobody else is on.
    `measured`: the round has evidence, `met` some of what shows the path. `fell`: it is far below what was known or
    is in use."""

    share: Floats
    path: Floats
    carries: Floats
    shown: Bits
    known: Bits
    borrowed: Bits
    measured: Bits
    met: Bits
    fell: Bits
    own_weight: Floats
    group: Grouped
    left: Columns


def prove(
    now: int,
    seen: Columns,
    before: Columns,
    in_use: Floats,
    is_shared: Bits,
    is_sound: Bits,
    alive: Bits,
    is_frozen: Bits,
    group: NDArray[np.int64],
    law: StartPolicy,
) -> Proved:
    """`seen` are OBSERVED and `before` PREVIOUS rows of the same units; `in_use` the share that is in use, 0 is none;
    `is_shared`: first flights were carried less of a rate than trains show; `is_sound`: the round's went well with what
    is in use; `alive`: what was known has not expired.

    What a connection was delivered after its window collapsed is less than the path gives: nothing is below what
    others of the round reached, or started with and lost nothing. And where trains show more it may not be the path's:
    that is asked first, and what is known of shares counts where others were on the path.

    Long: one estimate after the other, each of the one before.
    """
    count = np.where(is_frozen, 0, seen["share_connections"]).astype(np.float64)
    reached = np.where(is_frozen | (seen["reached_connections"] == 0), np.nan, log2_of(seen["reached_rate"]))
    # A few, who may be one host's, prove no more than trains showed.
    few = seen["reached_connections"] < law.min_connections
    reached = np.where(few & np.isfinite(reached), np.fmin(reached, log2_of(shown_before(before, law))), reached)
    floor = np.fmax(reached, np.where(is_sound, log2_of(in_use), np.nan))
    met = log2_of(seen["share_rate"])
    count[np.isnan(met)] = 0.0
    newest = np.where(np.isnan(met), np.nan, np.fmax(met, floor))
    variance = np.where(seen["share_log2_var"] > 0, seen["share_log2_var"], _USUAL_VARIANCE)
    variance = np.clip(np.where(np.isfinite(variance), variance, _USUAL_VARIANCE), _LEAST_VARIANCE, 16.0)

    weight = np.where(alive & np.isfinite(before["share_log2"]), before["share_weight"], 0.0)
    known_before = np.where(weight > 0, before["share_log2"], -np.inf)
    highest = np.maximum(known_before, log2_of(in_use, -np.inf))
    fell = (count >= law.min_connections) & (newest <= highest + np.log2(law.collapse))
    # Up it leads to a trial only: what is far above what was known is followed as well.
    rose = (count >= law.min_connections) & (weight > 0) & (newest >= known_before - np.log2(law.collapse))
    weight = np.where(fell | rose, 0.0, np.where(count > 0, law.history_weight * weight, weight))
    total = weight + count
    old, new = np.where(weight > 0, before["share_log2"], 0.0), np.where(count > 0, newest, 0.0)
    old_variance = np.where(weight > 0, before["share_var"], 0.0)
    some = np.maximum(total, 1e-9)
    own = np.where(total > 0, (weight * old + count * new) / some, np.nan)
    # Within rounds and between them.
    between = np.where((weight > 0) & (count > 0), weight * count / some**2 * (new - old) ** 2, 0.0)
    own_variance = np.where(total > 0, (weight * old_variance + count * variance) / some + between, np.nan)

    enough = total >= law.min_connections
    of_mean = np.where(total > 0, _OF_QUARTILE * own_variance / some, np.nan)
    of_group = shrink.grouped(group, own, of_mean, enough, law.group_quantile)
    drawn, own_weight = shrink.shrunken(own, np.where(enough, of_mean, 1.0), of_group, law.group_units)

    lower = np.fmax(reached, log2_of(in_use))
    lends = ~enough & (of_group.units >= law.group_units)
    borrowed = lends & ~(lower >= of_group.low)
    share = np.where(enough, np.fmax(drawn, floor), np.where(borrowed, of_group.low, lower))
    path = _path(seen, before, own, alive, is_frozen, fell)
    trains = read_trains(now, seen, before, reached, alive, is_frozen, law)
    carries, sharp = trains.carries, trains.sharp
    shown = np.isfinite(carries) & ~is_shared
    share = np.where(shown, np.where(sharp, carries, np.fmax(carries, share)), share)
    left = {"share_log2": own, "share_var": own_variance, "share_weight": total, "path_log2": path} | trains.left
    return Proved(
        share=np.exp2(share),
        path=np.exp2(np.where(shown & sharp, carries, np.fmax(path, share))),
        carries=np.exp2(np.where(sharp, carries, np.nan)),
        shown=shown,
        known=enough | shown,
        borrowed=borrowed & ~shown,
        measured=(count > 0) | np.isfinite(reached) | trains.is_new,
        met=(count > 0) | (shown & trains.is_new),
        fell=np.where(shown & sharp & trains.is_new, carries <= log2_of(in_use, -np.inf) + np.log2(law.collapse), fell),
        own_weight=np.where(enough, own_weight, 0.0),
        group=of_group,
        left=left,
    )


def shows_others(now: int, seen: Columns, before: Columns, judged: Judged, is_frozen: Bits, law: StartPolicy) -> Bits:
    """Where clearly less of a rate was carried than trains show that the path carries: something else is on it. Of
    flights that lose something none says it: where they lose much, or harm comes again, connections that met the path
    do. (Once is no sign: what connections meet is bounded by their sizes, and by what they overshot.) Too few flights
    for a median say it together with those: where few connections start, there are never more of them. Nor does a rate
    say it that is far below what trains show, unless others were there just now: hosts that are late look the same."""
    known = shown_before(before, law)
    shown = np.where(seen["trains"] >= law.min_connections, seen["train_rate"], known)
    found = np.zeros(len(known), bool)
    # The path counted as shared until now.
    still = (before["shared_at"] > 0) & (now <= before["shared_at"].astype(np.int64) + law.ttl_s)
    for part, given in (
        (judged.carried, before["connection_rate"]),
        (judged.path_carried, before["path_rate"]),
        (judged.trial_carried, before["trial_connection_rate"]),
        (judged.trial_path_carried, before["trial_path_rate"]),
    ):
        found |= (part < 1) & shows_less(part, given, shown) & (still | (given >= law.collapse * shown))
    met = np.fmax(np.exp2(np.fmax(before["share_log2"], before["path_log2"])), seen["reached_rate"])
    is_less = (before["share_weight"] >= law.min_connections) & shows_less(1.0, met, known)
    is_less &= ~((judged.carried >= 1) | (judged.path_carried >= 1)) & (before["overridden"] == 0)
    for arm, kind in ((0, ""), (1, "trial_")):
        few = is_less & ~is_frozen & (seen[f"flights_{arm}"] < law.min_connections)
        for name, value in (("carried", "connection_rate"), ("path_carried", "path_rate")):
            few_carried = seen[f"{name}_{arm}"]
            with np.errstate(invalid="ignore"):
                found |= few & (few_carried < 1) & shows_less(few_carried, before[f"{kind}{value}"], shown)
    flights, resent = judged.left["used_flights"], judged.left["used_resent"]
    blind = (flights >= law.trial_flights) & (judged.left["used_lossy"] >= BLIND * flights)
    blind &= resent > law.loss_segments * judged.left["used_segments"]
    again = now < before["hold_until"].astype(np.int64) + before["hold_s"]
    found |= is_less & ((judged.harm & again) | blind) & shows_less(1.0, met, before["connection_rate"])
    found |= is_less & judged.trial_harm & again & shows_less(1.0, met, before["trial_connection_rate"])
    return found


def _path(seen: Columns, before: Columns, own: Floats, alive: Bits, is_frozen: Bits, fell: Bits) -> Floats:
    newest = np.where(is_frozen | (seen["path_buckets"] == 0), np.nan, log2_of(seen["path_rate"]))
    known = np.where(alive, before["path_log2"], np.nan)
    weight = np.where(newest > known, _PATH_RISE, _PATH_FALL)
    mixed = np.where(np.isnan(known), newest, np.where(np.isnan(newest), known, weight * known + (1 - weight) * newest))
    lowered = known - np.maximum(before["share_log2"] - own, 0.0)
    fallen = fell & np.isfinite(lowered)
    followed: Floats = np.where(fallen, np.where(np.isnan(newest), lowered, np.maximum(lowered, newest)), mixed)
    return followed
