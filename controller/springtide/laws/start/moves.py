"""How values move: down at once, up by what was judged on trial, and what is tried next.

Long: one step after the other over the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from springtide.laws.columns import Bits, Columns, Picked
from springtide.laws.initcwnd.loss_guard import KERNEL_DEFAULT
from springtide.laws.start.decision import Reason
from springtide.laws.start.estimate import Proved
from springtide.laws.start.gain import transfer_us
from springtide.laws.start.policy import StartPolicy
from springtide.laws.start.shrink import Floats
from springtide.laws.start.trains import BEYOND, MOVED, shown_before
from springtide.laws.start.trial import CARRIED, Judged
from springtide.laws.start.values import Values, most_paced, segment
from springtide.laws.vocabulary import codes
from springtide.section import MAX_TTL_S

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]

_CODE = codes(Reason)
# RFC 9959: what was learnt holds while the round trip is above this part of the one then, and at most so many times it.
_RTT_RANGE = 0.5, 10.0
# Harm within the hold cuts as much as so many cuts.
_CUT_AGAIN = 3
# Of what is in use or was on trial no less is given a round later, whatever its first flights show; and after harm,
# where few connections' flights and polls show less than the path carries.
_LEAST_PART, _LEAST_AFTER_HARM = 0.5, 0.25
# Larger than any policy's hysteresis lets pass is of no use.
_SMALL_STEP = 1.3
# Of start.hysteresis so much is enough for a rise, which is on trial first: a rate that is too low costs each one time,
# and a fifth for a quarter gains 0.3 points for a change a day.
_RISES = 0.8
# What is in use stays where the path carries this part of it: medians of a dozen flights differ by less, and a path's
# rate by a tenth from round to round. To follow that is two changes for nothing.
_STAYS = 0.78 - 1e-6


@dataclass(frozen=True)
class Moves:
    """Of each unit: the values from now on; whether a trial was promoted, failed (or what is in use did), or goes on.
    `harmful_rate`: what did harm now, 0 is nothing. `cut`: what was in use did, and this is what is left of it.
    `changed`: what is in use is another than before. `asks`: it goes back on trial, beside the kernel's default."""

    value: Values
    reason: Codes
    promoted: Bits
    failed: Bits
    harmful_rate: Floats
    goes_on: Bits
    cut: Bits
    changed: Bits
    asks: Bits


def falls(
    now: int,
    seen: Columns,
    before: Columns,
    in_use: Values,
    target: Values,
    most: Values,
    rtt_us: Floats,
    proved: Proved,
    judged: Judged,
    is_frozen: Bits,
    law: StartPolicy,
) -> Moves:
    """What trials and evidence make of the values in use; `target` is what the evidence asks for, and `most` what the
    path carries, 0 is nothing.

    Long: one move after the other, each of the values that the one before it left.
    """
    used, runs = in_use.window > 0, before["trial_window"] > 0
    on_trial = Values.of(before, "trial_").scaled(1.0, law.cmax)
    # While something is on trial, and what is in use loses nothing, it was the trial that the brake stopped.
    harm = used & (judged.harm | (judged.braked & ~runs))
    trial_harm = runs & (judged.trial_harm | (judged.braked & ~harm))
    slower, in_vain = judged.trial_slower & ~trial_harm, judged.trial_in_vain & ~trial_harm
    # A step is beyond what single connections met, which is asked for where it is less than what is in use.
    overtaken = runs & (before["trial_step"] == 0) & ~is_frozen & proved.known & (target.window > 0)
    overtaken &= target.rate <= law.collapse * on_trial.rate
    # Where it is known what was carried of it, all get that.
    overtaken &= ~(judged.trial_good & np.isfinite(judged.trial_carried))
    # Where trains show the path as it was, what loses more than it did has somebody beside it.
    alone = law.pace_gain * proved.carries
    with np.errstate(invalid="ignore"):
        beside = used & judged.joined & (CARRIED * in_use.rate <= alone) & (2 * in_use.rate > alone)
    good = judged.trial_good & ~harm & ~beside & ~trial_harm & ~overtaken & ~proved.fell & ~judged.asks
    # Far less than what is known now, where it shows nothing yet: the next trial is of that, as far as a ceiling lets.
    reachable = np.where(before["harmful_rate"] > 0, np.minimum(target.rate, before["harmful_rate"]), target.rate)
    far = runs & ~good & ~trial_harm & ~is_frozen & (law.collapse * reachable > on_trial.rate)
    # That it was slower, or no faster, says nothing of what is far above it.
    overtaken, slower, in_vain = overtaken | far, slower & ~far, in_vain & ~far
    # And what is beyond the trains of now ends: of few connections a trial lasts for hours.
    too_much = runs & ~trial_harm & ~is_frozen & (most.window > 0) & (on_trial.rate > BEYOND * most.rate)
    # Nor is what would take longer than the default's starts did.
    delays = runs & ~is_frozen & _is_slower_than_default(on_trial, rtt_us, seen, judged.left)
    too_much |= delays
    overtaken, good = overtaken | too_much, good & ~too_much
    # Of a trial that the path carried in part, that part.
    at = np.flatnonzero(good)
    carried = judged.trial_carried[at], judged.trial_path_carried[at]
    given = in_use.but(at, _given(on_trial.at(at), *carried, law).most(in_use.at(at)))
    # Of what was carried of one, alone on one of several edges, and was not of all, nothing may be left.
    promoted = good & given.above(in_use)
    in_vain |= good & ~promoted

    value = given.where(promoted, in_use)
    reason = np.where(used, _CODE[Reason.PROVED], _CODE[Reason.NO_EVIDENCE]).astype(np.uint8)
    reason[used & ~proved.known & ~proved.borrowed & ~proved.measured] = _CODE[Reason.HELD_THIN_EVIDENCE]
    for which, why in (
        (promoted, Reason.PROMOTED),
        (promoted & (before["trial_borrowed"] > 0), Reason.PROMOTED_BORROWED),
        (overtaken, Reason.TRIAL_OVERTAKEN),
        (delays, Reason.TRIAL_SLOWER),
        (in_vain, Reason.TRIAL_NO_GAIN),
        (slower, Reason.TRIAL_SLOWER),
        (trial_harm, Reason.TRIAL_LOSS),
    ):
        reason[which] = _CODE[why]

    # A lower bound asks for nothing less; what was promoted may be beyond what is asked, and was judged.
    asked = proved.known & proved.met & (target.window > 0) & (value.window > 0) & ~is_frozen & ~promoted
    less = value.least(target)
    lower = asked & less.below(value, law.hysteresis)
    value = less.where(lower, value)
    reason[lower] = _CODE[Reason.LOWERED]
    reason[lower & proved.fell] = _CODE[Reason.COLLAPSED]
    over = used & ~is_frozen & ~promoted & ((judged.carried < _STAYS) | (judged.path_carried < _STAYS))
    at = np.flatnonzero(over)
    part = _given(in_use.at(at), judged.carried[at], judged.path_carried[at], law)
    value = value.but(at, part.least(value.at(at)))
    beyond = used & ~is_frozen & (most.window > 0)
    beyond &= (value.rate > BEYOND * most.rate) | (value.path > BEYOND * most.path)
    value = value.least(most).where(beyond, value)
    reason[over | beyond] = _CODE[Reason.LOWERED]
    at = np.flatnonzero(harm)
    cut = Values.none(len(harm)).but(at, _cut(at, now, seen, before, in_use, target, proved, judged, law))
    # Where nothing would be left of what trains show, it is not the rate that is in doubt, but what the default loses.
    followed = harm & (cut.window == 0) & (most.window > 0) & ~(in_use.rate > BEYOND * most.rate)
    harm &= ~followed
    value = cut.where(harm, value)
    reason[harm] = np.where(judged.harm, _CODE[Reason.LOSS], _CODE[Reason.BRAKED])[harm]
    at = np.flatnonzero(beside)
    value = value.but(at, _beside_one_more(in_use.at(at), alone[at], law).least(value.at(at)))
    reason[beside] = _CODE[Reason.LOSS]
    asks = (judged.asks & ~harm & ~beside) | followed
    value = Values.none(len(asks)).where(asks, value)
    reason[asks] = _CODE[Reason.DEFAULT_ASKED]
    # What carries less than the kernel's default would only slow connections down.
    fallen = lower | over | beyond | harm | beside
    delays = (value.window > 0) & ~is_frozen & ~proved.fell & _is_slower_than_default(value, rtt_us, seen, judged.left)
    reason[delays & ~fallen] = _CODE[Reason.LOWERED]
    value = Values.none(len(lower)).where((fallen & idle(value.rate, rtt_us, seen)) | delays, value)
    if law.careful:
        ratio = rtt_us / np.where(before["learnt_rtt_us"] > 0, before["learnt_rtt_us"], np.nan)
        outside = used & ~is_frozen & ((ratio <= _RTT_RANGE[0]) | (ratio > _RTT_RANGE[1]))
        value = Values.none(len(outside)).where(outside, value)
        reason[outside] = _CODE[Reason.ROUND_TRIP_CHANGED]

    changed = value.differs(in_use)
    failed = harm | beside | trial_harm | slower | in_vain
    # What was only slower, or not faster, is no danger: it waits, and leaves no ceiling.
    harmful = np.where(harm | beside, in_use.rate, np.where(trial_harm, on_trial.rate, 0.0))
    goes_on = runs & ~failed & ~overtaken & ~changed & ~promoted
    return Moves(value, reason, promoted, failed, harmful, goes_on, harm & (value.window > 0), changed, asks)


def _given(values: Values, single: Floats, together: Floats, law: StartPolicy, least: float = _LEAST_PART) -> Values:
    """What is left of values of which the path carried these parts, 1 or NaN all; of less than all what was carried,
    less what else is on the path, and at least a part. A single one is given no more than all at once: alone on one
    of several edges it started with its edge's part, and what was carried of that says nothing of the whole."""
    kept, path_kept = (np.where(part < 1, np.maximum(law.pace_gain * part, least), 1.0) for part in (single, together))
    path = np.where(values.window > 0, np.maximum(np.floor(path_kept * values.path), 1.0), 0.0)
    scaled = values.scaled(kept, law.cmax)
    within = scaled.scaled(path / np.maximum(scaled.rate, 1.0), law.cmax).where(path < scaled.rate, scaled)
    return replace(within, path=path)


def _cut(
    at: NDArray[np.intp],
    now: int,
    seen: Columns,
    before: Columns,
    in_use: Values,
    target: Values,
    proved: Proved,
    judged: Judged,
    law: StartPolicy,
) -> Values:
    """What is left in these rows after harm: what the path carried, at once; where that much was lost that no flight
    shows it, what all together were delivered meanwhile. Loss in spite of a cut: the path has become less, and each
    round of it costs; where the edges' brakes act they have cut already. And in spite of a cut to less than a half:
    what was learnt is of another path, and what the kernel's default loses on this one is not known: all begins anew
    with it."""
    seen, before, in_use, target, harm = (
        Picked(seen, at),
        Picked(before, at),
        in_use.at(at),
        target.at(at),
        judged.harm[at],
    )
    again = harm & (before["was_cut"] > 0) & (before["hold_until"].astype(np.int64) > now)
    # What trains show is not far from what the path carries: of that half a cut is enough.
    once = np.where(proved.shown[at], np.sqrt(law.cut), law.cut)
    cut = in_use.scaled(np.where(again, law.cut**_CUT_AGAIN, once), law.cmax)
    carried = _given(in_use, judged.carried[at], judged.path_carried[at], law, _LEAST_AFTER_HARM)
    cut = carried.least(cut).where(harm, cut)
    full = judged.flood[at] & (seen["path_buckets"] > 0) & np.isfinite(seen["path_rate"])
    part = law.pace_gain * seen["path_rate"] / np.maximum(in_use.path, 1.0)
    part = np.where(full, np.clip(part, _LEAST_AFTER_HARM, 1.0), 1.0)
    cut = in_use.scaled(part, law.cmax).least(cut)
    cut = cut.least(target).where(target.window > 0, cut)
    return Values.none(len(again)).where(again & (in_use.rate <= law.collapse * before["harmful_rate"]), cut)


def _beside_one_more(in_use: Values, alone: Floats, law: StartPolicy) -> Values:
    """Of what was given of the path alone (bytes/s), an equal part beside one more, at most. Of those who start at once
    each has as much beside it alone: together they keep nearly all."""
    part = np.clip(alone / 2 / np.maximum(in_use.rate, 1.0), 0.0, 1.0)
    single = in_use.scaled(np.where(np.isfinite(part), part, 1.0), law.cmax)
    kept = in_use.scaled(np.sqrt(law.cut), law.cmax)
    return replace(single, path=np.maximum(kept.path, single.rate))


def ceiling(
    now: int, before: Columns, target: Values, proved: Proved, judged: Judged, moves: Moves, law: StartPolicy
) -> tuple[Floats, Ints, Ints, Floats]:
    """The rate that did harm (0 is none); until when nothing but less than its cut is tried, how long that is, and what
    the evidence asked for when it did. Where connections that met the path are given far more than either, the path has
    become another."""
    harmful = before["harmful_rate"].astype(np.float64)
    until, held_s = before["hold_until"].astype(np.int64), before["hold_s"].astype(np.int64)
    # Within a day, as for windows: few connections' trials take longer than a hold.
    again = (held_s > 0) & (until <= now) & (now < until + MAX_TTL_S)
    same = (held_s > 0) & (until > now)
    longer = np.where(again, np.minimum(2 * held_s, MAX_TTL_S), np.where(same, held_s, 0))
    hold_s = np.where(moves.failed, np.maximum(longer, law.hold_s), held_s)
    until = np.where(moves.failed, now + hold_s, until)
    harmful = np.where(moves.harmful_rate > 0, moves.harmful_rate, harmful)
    asked = np.where(moves.harmful_rate > 0, target.rate, before["harmful_share"])
    # What is in use has passed it.
    passed = moves.promoted & (moves.value.rate >= harmful) & ~moves.failed
    # Trains show no more than they did when it failed at what they show. And cuts lower a ceiling far below what was
    # asked for when they did: that is no other path, unless the default loses as well, and harm may have been chance.
    left = judged.left
    by_chance = left["default_lossy"] > law.loss_default_bound * left["default_flights"]
    far = law.collapse * target.rate > np.where(by_chance, harmful, np.maximum(harmful, asked))
    passed |= proved.known & ~proved.shown & (harmful > 0) & far & ~moves.failed
    passed |= proved.known & proved.met & (asked > 0) & (law.collapse * target.rate > asked) & ~moves.failed
    # What trains show swings where a path has two ways: two rounds say it.
    twice = proved.shown & proved.met & (shown_before(before, law) * law.pace_gain > MOVED * asked)
    passed |= twice & (asked > 0) & (target.rate > MOVED * asked) & ~moves.failed
    none = np.where(passed, 0, 1)
    return harmful * none, until * none, hold_s * none, asked * none


@dataclass(frozen=True)
class Tried:
    """What is on trial from now on, 0 is nothing, and whether it comes from the group, is a step beyond what was
    reached, and begins now."""

    values: Values
    borrowed: Bits
    step: Bits
    begins: Bits


def _most(
    now: int, bound: tuple[Floats, Ints, Ints, Floats], value: Values, rtt_us: Floats, seen: Columns, law: StartPolicy
) -> Floats:
    """The highest rate that may be tried: in the hold what is left by a cut; after it the middle between what is in use
    and the ceiling, or anything where that middle is below what the kernel's default carries."""
    harmful, until, *_ = bound
    middle = np.maximum(np.sqrt(value.rate * harmful), law.cut * harmful)
    # Near it the middle would be too small a step to be tried.
    near = value.rate * (1 + law.hysteresis) ** 2 >= harmful
    free = (harmful == 0) | near | idle(middle, rtt_us, seen)
    return np.where(until > now, law.cut * harmful, np.where(free, np.inf, middle))


def _bounded(
    now: int,
    target: Values,
    wanted: Values,
    carries: Values,
    steps: Bits,
    judged: Judged,
    bound: tuple[Floats, Ints, Ints, Floats],
    value: Values,
    rtt_us: Floats,
    seen: Columns,
    proved: Proved,
    law: StartPolicy,
) -> tuple[Values, Bits]:
    """What may be tried of what is wanted, and where its rate is held back; never below what is in use, nor above what
    the path carries, where that is known."""
    wanted = wanted.least(carries).most(value).where(carries.window > 0, wanted)
    most = _most(now, bound, value, rtt_us, seen, law)
    # Beside others whoever is faster than the path takes from them, and seems to gain: a step is at most a step beyond
    # what all together were delivered, with the room that polls of few connections need; or beyond what was carried.
    together = np.exp2(proved.left["path_log2"]) * law.pace_gain
    most_step = law.headroom * law.step * together
    shown = (judged.carried >= 1) | (judged.path_carried >= 1)
    bounds = steps & ~shown & np.isfinite(most_step)
    most = np.where(bounds, np.minimum(most, np.maximum(most_step, value.rate)), most)
    over = wanted.rate > most
    factor = np.where(over, most / np.maximum(wanted.rate, 1.0), 1.0)
    wanted = wanted.scaled(factor, law.cmax).where(over, wanted)
    wanted = replace(wanted, rate=np.fmin(wanted.rate, most_paced(wanted.window, rtt_us, seen)))
    # All that start at once are given what one is, or what is proved of all: that what one was given went well says
    # nothing of all. Where they started together and all of it was carried, a step more.
    most_path = np.fmax(np.fmax(together, wanted.rate), target.path)
    most_path = np.where(judged.path_carried >= 1, np.fmax(most_path, law.step * value.path), most_path)
    wanted = replace(wanted, path=np.minimum(wanted.path, most_path)).most(value)
    return wanted, over


def idle(rate: Floats, rtt_us: Floats, seen: Columns) -> Bits:
    """Whether the kernel's default carries as much in a round trip by itself."""
    little: Bits = rate * rtt_us / 1e6 < KERNEL_DEFAULT * segment(seen)
    return little


def _is_slower_than_default(values: Values, rtt_us: Floats, seen: Columns, default: Columns) -> Bits:
    """Whether 50 or 100 kB would take longer at these rates than starts with the kernel's default lately did."""
    slower = np.zeros(len(values.window), bool)
    at = np.flatnonzero((values.window > 0) & (default["default_timed_at"] > 0) & (rtt_us > 0))
    given, rtt_us, mss = values.at(at), rtt_us[at], segment(seen)[at]
    for name, size in (("t50", 50_000), ("t100", 100_000)):
        took = default[f"default_{name}_us"][at]
        # Less than a round trip was on another path.
        slower[at] |= (took > rtt_us) & (transfer_us(size, rtt_us, given.rate, given.window, mss) > took)
    return slower


def _is_limit(now: int, seen: Columns, before: Columns, proved: Proved, value: Values, law: StartPolicy) -> Bits:
    """Whether what connections met is the path's: single rates far below what starts carry without loss are not. Alone,
    few connections meet it within their lives, and a window that collapsed says little. Where others are on it, as
    trains show, those of before are its limit in a round in which none met it."""
    is_shared = (before["shared_at"] > 0) & (now < before["shared_at"].astype(np.int64) + law.ttl_s)
    met = np.where(is_shared & np.isnan(seen["share_rate"]), np.exp2(proved.left["share_log2"]), seen["share_rate"])
    with np.errstate(invalid="ignore"):
        is_limit: Bits = met > law.collapse * value.rate
    return is_limit


def trials(
    now: int,
    seen: Columns,
    rtt_us: Floats,
    before: Columns,
    target: Values,
    most: Values,
    proved: Proved,
    judged: Judged,
    moves: Moves,
    bound: tuple[Floats, Ints, Ints, Floats],
    may_begin: Bits,
    suppressed: Bits,
    law: StartPolicy,
) -> Tried:
    """What goes on, and what begins; sets the reason of what is held back. `may_begin`: enough is known, of input that
    is complete."""
    used = moves.value.window > 0
    unmet = ~proved.known | (judged.sound & ~_is_limit(now, seen, before, proved, moves.value, law))
    steps = used & unmet & ~proved.borrowed & ~target.above(moves.value, law.hysteresis)
    # The kernel's default reached a lower bound, on its way up: what is no faster is slower.
    first = ~used & ~proved.known & ~proved.borrowed & (target.window > KERNEL_DEFAULT)
    wanted = target.scaled(law.step, law.cmax).where(first, target)
    # What failed once was near the path: from there on it is approached by small steps.
    step = np.where(bound[2] > 0, min(law.step, _SMALL_STEP), law.step)
    wanted = moves.value.scaled(step, law.cmax).where(steps, wanted).most(moves.value)
    wanted = wanted.where(target.window > 0, Values.none(len(used)))
    wanted, over = _bounded(now, target, wanted, most, steps, judged, bound, moves.value, rtt_us, seen, proved, law)

    worth = may_begin & ~moves.goes_on & (wanted.window > 0) & wanted.above(moves.value, _RISES * law.hysteresis)
    # What the path carries only a part of is no reason to try more.
    worth &= ~((judged.carried < 1) | (judged.path_carried < 1))
    # Nor while an edge brakes, whatever the default loses.
    worth &= ~(used & (seen["braked"] > 0))
    # Of ten segments there is nothing to gain.
    worth &= ~moves.failed & (used | (wanted.window > KERNEL_DEFAULT))
    worth &= ~_is_slower_than_default(wanted, rtt_us, seen, judged.left)
    held = used & over & may_begin & ~worth & ~moves.goes_on & ~moves.changed & ~moves.failed
    moves.reason[held] = _CODE[Reason.HELD_CEILING]
    damped = worth & suppressed & used
    moves.reason[damped & ~moves.changed] = _CODE[Reason.HELD_DAMPING]
    again = moves.asks & may_begin
    wanted = Values.of(before).scaled(1.0, law.cmax).where(again, wanted)
    steps &= ~again
    begins = (worth & ~damped) | again
    quiet = begins & ~moves.changed
    moves.reason[quiet] = np.select(
        [steps, proved.borrowed], [_CODE[Reason.TRIAL_STEP], _CODE[Reason.TRIAL_BORROWED]], _CODE[Reason.TRIAL_PROVED]
    )[quiet]
    on_trial = Values.of(before, "trial_").scaled(1.0, law.cmax)
    values = wanted.where(begins, on_trial).where(begins | moves.goes_on, Values.none(len(used)))
    old_borrowed, old_step = before["trial_borrowed"] > 0, before["trial_step"] > 0
    return Tried(
        values,
        np.where(begins, proved.borrowed, moves.goes_on & old_borrowed),
        np.where(begins, steps, moves.goes_on & old_step),
        begins,
    )
