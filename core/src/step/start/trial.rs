//! The end of a trial: what becomes of the values on trial, and what is in use after it.

use super::counts::Carried;
use super::reason::Reason;
use super::rules::Rule;
use super::state::State;
use super::trains::BEYOND;
use super::values::Values;
use super::{Case, Findings};

/// Part that is left at least of what is in use or was on trial, whatever its first flights show.
const LEAST_PART: f64 = 0.5;

/// Outcome for the values on trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trial {
    /// Nothing is on trial.
    None,
    /// Goes on: it is not judged yet.
    Runs,
    /// Did harm.
    Harm,
    /// Was slower.
    Slower,
    /// Was no faster, or brought nothing.
    InVain,
    /// Would be slower than the default's starts.
    Delays,
    /// Ends without a judgement: the evidence asks for something else.
    Overtaken,
    /// Went well: these are in use from now on.
    Promoted(Values),
}

impl Trial {
    pub(super) fn reason(self, before: &State) -> Option<Reason> {
        match self {
            Self::None | Self::Runs => None,
            Self::Harm => Some(Reason::TrialLoss),
            Self::Slower | Self::Delays => Some(Reason::TrialSlower),
            Self::InVain => Some(Reason::TrialNoGain),
            Self::Overtaken => Some(Reason::TrialOvertaken),
            Self::Promoted(_) if before.trial_borrowed => Some(Reason::PromotedBorrowed),
            Self::Promoted(_) => Some(Reason::Promoted),
        }
    }

    /// Says whether nothing like it is tried for a while.
    pub(super) fn failed(self) -> bool {
        matches!(self, Self::Harm | Self::Slower | Self::InVain)
    }
}

/// Says what becomes of the values on trial.
pub(super) fn end(case: &Case, found: &Findings) -> Trial {
    let (law, before) = (&case.policy.start, case.before);
    let (counts, verdict) = (&found.counts, found.verdict);
    let tried = before.tried().scaled(1.0, law.cmax);
    if !tried.is_some() {
        return Trial::None;
    }
    if verdict.harm || counts.braked && !found.harm {
        return Trial::Harm;
    }
    let carried = counts.carried[1];
    let is_spoilt = found.harm || found.proved.fell;
    let is_good = verdict.good && !is_spoilt;
    // Far less than what is known now, where it shows nothing yet: the next trial is of that, as far as a ceiling lets.
    // A trial that was slower, or not faster, says nothing of what is far above it.
    let ceiling = if before.harmful_rate > 0.0 {
        before.harmful_rate
    } else {
        f64::INFINITY
    };
    let is_far_below = case.on(Rule::EndFarBelow)
        && !is_good
        && !case.is_frozen
        && law.collapse * found.target.rate.min(ceiling) > tried.rate;
    // A trial beyond the trains of now ends: of few connections it lasts for hours.
    let is_beyond = case.on(Rule::EndBeyondTrains)
        && !case.is_frozen
        && found.most.is_some()
        && tried.rate > BEYOND * found.most.rate;
    let delays = !case.is_frozen && found.is_slower(case, tried);
    let is_good = is_good && !is_beyond && !delays;
    // The path may have carried what one had, alone on one of several edges, but not what all had:
    // then nothing may be left above what is in use.
    let given = if case.on(Rule::GiveCarried) {
        given(tried, carried, case, LEAST_PART).most(case.in_use)
    } else {
        tried.most(case.in_use)
    };
    if verdict.slower && !is_far_below {
        Trial::Slower
    } else if verdict.in_vain && !is_far_below || is_good && !given.above(case.in_use, 0.0) {
        Trial::InVain
    } else if delays {
        Trial::Delays
    } else if is_far_below || is_beyond {
        Trial::Overtaken
    } else if is_good {
        Trial::Promoted(given)
    } else {
        Trial::Runs
    }
}

/// Rest of values of which the path carried these parts: of less than all, what was carried, less
/// what else is on the path, and at least a part. A single one is given no more than all at once:
/// alone on one of several edges it started with its edge's part, and what was carried of that says
/// nothing of the whole.
pub(super) fn given(values: Values, carried: Carried, case: &Case, least: f64) -> Values {
    let law = &case.policy.start;
    if !values.is_some() {
        return Values::NOTHING;
    }
    let kept = |part: f64| {
        if part < 1.0 {
            (law.pace_gain * part).max(least)
        } else {
            1.0
        }
    };
    let path = (kept(carried.path) * values.path).floor().max(1.0);
    let single = values.scaled(kept(carried.single), law.cmax);
    Values {
        path,
        ..single.within(path, law.cmax)
    }
}
