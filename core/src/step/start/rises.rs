//! Rises: what is tried next, on a randomised share of the connections.

use super::ceiling::Ceiling;
use super::falls::Move;
use super::reason::Reason;
use super::rules::Rule;
use super::trial::Trial;
use super::values::{Values, most_paced};
use super::{Case, Findings};
use crate::gain::KERNEL_DEFAULT;

/// Part of `start.hysteresis` that is enough for a rise, which is on trial first: a rate that is too low costs each one
/// time, and a fifth for a quarter gains 0.3 points for a change a day.
const RISES: f64 = 0.8;

/// Values on trial from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub values: Values,
    /// It comes from the group.
    pub is_borrowed: bool,
    /// It is a step beyond what was reached.
    pub is_step: bool,
    /// It begins now.
    pub begins: bool,
    /// Why, where that is the decision's reason.
    pub reason: Option<Reason>,
}

/// Says what goes on, and what begins.
pub(super) fn rise(case: &Case, found: &Findings, moved: &Move, ceiling: Ceiling) -> Tried {
    let (law, before, proved) = (&case.policy.start, case.before, &found.proved);
    let (value, is_used) = (moved.value, moved.value.is_some());
    let (wanted, is_step) = wanted(case, found, moved);
    let (wanted, is_held) = bounded(case, found, value, wanted, is_step, ceiling);
    let goes_on = moved.trial == Trial::Runs;
    let is_worth = case.may_begin
        && !goes_on
        && wanted.is_some()
        && wanted.above(value, RISES * law.hysteresis)
        // Nor while an edge brakes, whatever the default loses.
        && !(case.on(Rule::BrakeStops) && is_used && case.seen.braked > 0.0)
        && !moved.failed
        // A window of ten segments gains nothing.
        && (is_used || wanted.window > KERNEL_DEFAULT)
        && !found.is_slower(case, wanted);
    let is_damped = is_worth && case.is_suppressed && is_used;
    let is_quiet = !moved.is_changed;
    if is_worth && !is_damped {
        return Tried {
            values: wanted,
            is_borrowed: proved.is_borrowed,
            is_step,
            begins: true,
            reason: is_quiet.then_some(match (is_step, proved.is_borrowed) {
                (true, _) => Reason::TrialStep,
                (false, true) => Reason::TrialBorrowed,
                (false, false) => Reason::TrialProved,
            }),
        };
    }
    let is_held =
        is_used && is_held && case.may_begin && !is_worth && !goes_on && is_quiet && !moved.failed;
    let reason = match (is_damped && is_quiet, is_held) {
        (true, _) => Some(Reason::HeldDamping),
        (false, true) => Some(Reason::HeldCeiling),
        (false, false) => None,
    };
    Tried {
        values: if goes_on {
            before.tried().scaled(1.0, law.cmax)
        } else {
            Values::NOTHING
        },
        is_borrowed: goes_on && before.trial_borrowed,
        is_step: goes_on && before.trial_step,
        begins: false,
        reason,
    }
}

/// Values that would be tried, and whether they are a step beyond what was reached.
fn wanted(case: &Case, found: &Findings, moved: &Move) -> (Values, bool) {
    let (law, proved, value, target) =
        (&case.policy.start, &found.proved, moved.value, found.target);
    if !target.is_some() {
        return (Values::NOTHING, false);
    }
    let is_unmet = !proved.is_known
        || found.counts.sound && case.on(Rule::MetIsNoLimit) && !is_limit(case, found, value);
    let is_step = case.on(Rule::Steps)
        && value.is_some()
        && is_unmet
        && !proved.is_borrowed
        && !target.above(value, law.hysteresis);
    if is_step {
        return (value.scaled(law.step, law.cmax).most(value), true);
    }
    // The kernel's default reached a lower bound, on its way up: what is no faster is slower.
    let is_first = case.on(Rule::FirstStep)
        && !value.is_some()
        && !proved.is_known
        && !proved.is_borrowed
        && target.window > KERNEL_DEFAULT;
    let wanted = if is_first {
        target.scaled(law.step, law.cmax)
    } else {
        target
    };
    (wanted.most(value), false)
}

/// Says whether what connections met is the path's: single rates far below what starts carry without loss are not. Where
/// others are on it, as trains show, those of before are its limit in a round in which none met it.
fn is_limit(case: &Case, found: &Findings, value: Values) -> bool {
    let before = case.before;
    let is_shared = before.shared_at > 0 && case.round < before.shared_at + case.policy.start.ttl_s;
    let met = if is_shared && case.seen.share_rate.is_nan() {
        found.share_log2.exp2()
    } else {
        case.seen.share_rate
    };
    met > case.policy.start.collapse * value.rate
}

/// Bounds what is wanted; says whether its rate is held back. Never below what is in use, nor above what the path carries,
/// where that is known.
fn bounded(
    case: &Case,
    found: &Findings,
    value: Values,
    wanted: Values,
    is_step: bool,
    ceiling: Ceiling,
) -> (Values, bool) {
    let law = &case.policy.start;
    let wanted = if found.most.is_some() {
        wanted.least(found.most).most(value)
    } else {
        wanted
    };
    let mut most = ceiling.most(case, value);
    // Beside others whoever is faster than the path takes from them, and seems to gain: a step is at most a step beyond
    // what all together were delivered, with the room that polls of few connections need; or beyond what was carried.
    let together = found.path_log2.exp2() * law.pace_gain;
    let most_step = law.headroom * law.step * together;
    let carried = found.counts.carried[0];
    if is_step && case.on(Rule::StepWithinTogether) && !carried.any_whole() && most_step.is_finite()
    {
        most = most.min(most_step.max(value.rate));
    }
    let is_held = wanted.rate > most;
    let mut wanted = wanted.within(most, law.cmax);
    wanted.rate = wanted
        .rate
        .min(most_paced(wanted.window, case.rtt_us, case.seen.segment()));
    // All that start at once are given what one is, or what is proved of all: that what one was given went well says
    // nothing of all.
    if case.on(Rule::PathWithin) {
        wanted.path = wanted
            .path
            .min(together.max(wanted.rate).max(found.target.path).floor());
    }
    (wanted.most(value), is_held)
}
