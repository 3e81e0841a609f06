//! Falls: what is in use becomes less at once, where it does harm, where the path carries less, or where less is proved.

use super::reason::Reason;
use super::rules::Rule;
use super::trains::BEYOND;
use super::trial::{self, Trial};
use super::values::{Values, idle};
use super::{Case, Findings};

/// Range of round trips, as factors of the one then, in which what was learnt holds (RFC 9959).
const RTT_RANGE: (f64, f64) = (0.5, 10.0);
/// Harm within the hold cuts as much as so many cuts.
const CUT_AGAIN: i32 = 3;
/// Part that is left at least of what is in use, as its flights show what was carried; and after harm, where few
/// connections' flights and polls show less than the path carries.
const LEAST_PART: f64 = 0.5;
const LEAST_AFTER_HARM: f64 = 0.25;
/// Values in use stay where the path carries this part of them: medians of a dozen flights differ
/// by less, and a path's rate by a tenth from round to round. To follow that is two changes for
/// nothing.
const STAYS: f64 = 0.78 - 1e-6;

/// Values in use from now on, and how they came about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub value: Values,
    pub reason: Reason,
    /// Outcome for the values on trial.
    pub trial: Trial,
    /// The values in use did harm, and these are left of them.
    pub is_cut: bool,
    /// The values in use are others than before.
    pub is_changed: bool,
    /// Connection rate that did harm now; 0 is none.
    pub harmful_rate: f64,
    /// Nothing near what failed is tried for a while.
    pub failed: bool,
}

/// Says what trials and evidence make of the values in use: one move after the other, each of what the one before left.
pub(super) fn fall(case: &Case, found: &Findings) -> Move {
    let trial = trial::end(case, found);
    let mut fall = Fall {
        value: match trial {
            Trial::Promoted(given) => given,
            _ => case.in_use,
        },
        reason: trial
            .reason(case.before)
            .unwrap_or_else(|| standing(case, found)),
        fell: false,
    };
    for rule in [to_proved as Lower, to_carried, to_trains] {
        if let Some((less, why)) = rule(case, found, &trial, fall.value) {
            fall.to(less, why);
        }
    }
    let harm = found.harm;
    if harm {
        fall.to(
            cut(case, found),
            if found.counts.harm {
                Reason::Loss
            } else {
                Reason::Braked
            },
        );
    }
    fall.end(case, found);
    let is_changed = fall.value != case.in_use;
    Move {
        value: fall.value,
        reason: fall.reason,
        trial: match trial {
            Trial::Runs if harm || is_changed => Trial::Overtaken,
            other => other,
        },
        is_cut: harm && fall.value.is_some(),
        is_changed,
        harmful_rate: match (harm, trial) {
            (true, _) => case.in_use.rate,
            // A trial that is slower, or not faster, is no danger: it waits, and leaves no ceiling.
            (false, Trial::Harm) => case.before.trial_connection_rate,
            (false, _) => 0.0,
        },
        failed: harm || trial.failed(),
    }
}

/// Values left of those in use, why, and whether a rule lowered them.
struct Fall {
    value: Values,
    reason: Reason,
    fell: bool,
}

impl Fall {
    fn to(&mut self, value: Values, reason: Reason) {
        *self = Self {
            value,
            reason,
            fell: true,
        };
    }

    /// Falls to the kernel's default: where that is faster, or carries as much by itself; and where the round trip is
    /// another, for careful starts.
    fn end(&mut self, case: &Case, found: &Findings) {
        let delays = !case.is_frozen && !found.proved.fell && found.is_slower(case, self.value);
        if delays && !self.fell {
            self.reason = Reason::Lowered;
        }
        if delays
            || self.fell && case.on(Rule::DropIdle) && idle(self.value.rate, case.rtt_us, case.seen)
        {
            self.value = Values::NOTHING;
        }
        let is_careful = case.policy.start.careful && case.in_use.is_some() && !case.is_frozen;
        if is_careful && has_other_round_trip(case) {
            (self.value, self.reason) = (Values::NOTHING, Reason::RoundTripChanged);
        }
    }
}

/// Why what is in use would stay.
fn standing(case: &Case, found: &Findings) -> Reason {
    let proved = &found.proved;
    match case.in_use.is_some() {
        false => Reason::NoEvidence,
        true if proved.is_known || proved.is_borrowed || proved.is_measured => Reason::Proved,
        true => Reason::HeldThinEvidence,
    }
}

/// A rule that lowers what is in use; `None` where it does not act.
type Lower = fn(&Case, &Findings, &Trial, Values) -> Option<(Values, Reason)>;

/// Lowers what is in use to what is proved. A lower bound asks for nothing less; values that were
/// promoted may be beyond what is asked, and were judged.
fn to_proved(
    case: &Case,
    found: &Findings,
    trial: &Trial,
    value: Values,
) -> Option<(Values, Reason)> {
    let is_asked = case.on(Rule::FallToProved)
        && found.proved.is_known
        && found.proved.is_met
        && found.target.is_some()
        && value.is_some()
        && !case.is_frozen
        && !matches!(trial, Trial::Promoted(_));
    let less = value.least(found.target);
    let why = if found.proved.fell {
        Reason::Collapsed
    } else {
        Reason::Lowered
    };
    (is_asked && less.below(value, case.policy.start.hysteresis)).then_some((less, why))
}

/// Lowers what is in use to what the path carried of it.
fn to_carried(
    case: &Case,
    found: &Findings,
    trial: &Trial,
    value: Values,
) -> Option<(Values, Reason)> {
    let carried = found.counts.carried[0];
    let is_over = case.on(Rule::FallToCarried)
        && case.in_use.is_some()
        && !case.is_frozen
        && !matches!(trial, Trial::Promoted(_))
        && carried.any_below(STAYS);
    let less = trial::given(case.in_use, carried, case, LEAST_PART).least(value);
    is_over.then_some((less, Reason::Lowered))
}

/// Lowers what is in use to what trains show that the path carries.
fn to_trains(case: &Case, found: &Findings, _: &Trial, value: Values) -> Option<(Values, Reason)> {
    let most = found.most;
    let is_beyond = case.on(Rule::FallToTrains)
        && case.in_use.is_some()
        && !case.is_frozen
        && most.is_some()
        && (value.rate > BEYOND * most.rate || value.path > BEYOND * most.path);
    is_beyond.then_some((value.least(most), Reason::Lowered))
}

/// Values left after harm: at once what the path carried; where so much was lost that no flight
/// shows it, what all together were delivered meanwhile.
///
/// Loss in spite of a cut: the path has become less, and each round of it costs. (Where edges brake they have cut already.)
/// And in spite of a cut to less than a half: what was learnt is of another path, and what the kernel's default loses on
/// this one is not known. All begins anew with it.
fn cut(case: &Case, found: &Findings) -> Values {
    let (law, before, in_use) = (&case.policy.start, case.before, case.in_use);
    let harm = found.counts.harm;
    let again = harm && before.was_cut && before.hold_until > case.round;
    if again && case.on(Rule::CutAll) && in_use.rate <= law.collapse * before.harmful_rate {
        return Values::NOTHING;
    }
    let again = again && case.on(Rule::CutDeeper);
    let part = match (
        again,
        found.proved.is_shown && case.on(Rule::CutLessWithTrains),
    ) {
        (true, _) => law.cut.powi(CUT_AGAIN),
        // Trains show nearly what the path carries: half a cut is enough.
        (false, true) => law.cut.sqrt(),
        (false, false) => law.cut,
    };
    let mut left = in_use.scaled(part, law.cmax);
    if harm && case.on(Rule::CutToCarried) {
        left = trial::given(in_use, found.counts.carried[0], case, LEAST_AFTER_HARM).least(left);
    }
    if found.counts.flood
        && case.on(Rule::CutToDelivered)
        && case.seen.path_buckets > 0.0
        && case.seen.path_rate.is_finite()
    {
        let part = law.pace_gain * case.seen.path_rate / in_use.path.max(1.0);
        left = in_use
            .scaled(part.clamp(LEAST_AFTER_HARM, 1.0), law.cmax)
            .least(left);
    }
    if found.target.is_some() {
        left.least(found.target)
    } else {
        left
    }
}

fn has_other_round_trip(case: &Case) -> bool {
    let learnt = case.before.learnt_rtt_us;
    let ratio = case.rtt_us / learnt;
    learnt > 0.0 && (ratio <= RTT_RANGE.0 || ratio > RTT_RANGE.1)
}
