//! The ceiling: what failed once is not tried again for a while, and is then approached by halves.

use super::Case;
use super::Findings;
use super::falls::Move;
use super::rules::Rule;
use super::trains::{MOVED, shown_before};
use super::trial::Trial;
use super::values::{Values, idle};

/// Longest hold, seconds: a day, as policy.yaml bounds instants.
const MAX_HOLD_S: i64 = 86_400;

/// The connection rate that did harm (0 is none), and the rate that the evidence asked for then. Until `until` only
/// less than the cut rate is tried; `hold_s` is how long that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    pub rate: f64,
    pub until: i64,
    pub hold_s: i64,
    pub asked: f64,
}

impl Ceiling {
    pub(super) const NONE: Self = Self {
        rate: 0.0,
        until: 0,
        hold_s: 0,
        asked: 0.0,
    };

    /// The ceiling after this round's moves. It goes where the path has become another.
    pub(super) fn after(case: &Case, found: &Findings, moved: &Move) -> Self {
        let (law, before) = (&case.policy.start, case.before);
        let mut ceiling = Self {
            rate: before.harmful_rate,
            until: before.hold_until,
            hold_s: before.hold_s,
            asked: before.harmful_share,
        };
        if moved.failed {
            // Within a day, as for windows: few connections' trials take longer than a hold.
            let longer = match (ceiling.hold_s > 0, ceiling.until > case.round) {
                (true, true) => ceiling.hold_s,
                (true, false)
                    if case.on(Rule::HoldDoubles) && case.round < ceiling.until + MAX_HOLD_S =>
                {
                    (2 * ceiling.hold_s).min(MAX_HOLD_S)
                }
                _ => 0,
            };
            ceiling.hold_s = longer.max(law.hold_s);
            ceiling.until = case.round + ceiling.hold_s;
            if moved.harmful_rate > 0.0 {
                (ceiling.rate, ceiling.asked) = (moved.harmful_rate, found.target.rate);
            }
            return ceiling;
        }
        if ceiling.is_passed(case, found, moved) {
            Self::NONE
        } else {
            ceiling
        }
    }

    fn is_passed(self, case: &Case, found: &Findings, moved: &Move) -> bool {
        let (law, proved, asks) = (&case.policy.start, &found.proved, found.target.rate);
        if matches!(moved.trial, Trial::Promoted(_)) && moved.value.rate >= self.rate {
            return true;
        }
        if !(proved.is_met && self.asked > 0.0) {
            return false;
        }
        // Trains swing where a path has two ways: two rounds must show it.
        let shows_twice = case.on(Rule::ForgetTrains)
            && proved.is_shown
            && shown_before(case.before, law) * law.pace_gain > MOVED * self.asked
            && asks > MOVED * self.asked;
        shows_twice
            || case.on(Rule::ForgetMet) && proved.is_known && law.collapse * asks > self.asked
    }

    /// The highest rate that may be tried: in the hold what is left by a cut; after it the middle between what is in use
    /// and the ceiling, or anything where that middle is near, or below what the kernel's default carries.
    pub(super) fn most(self, case: &Case, value: Values) -> f64 {
        let law = &case.policy.start;
        if self.until > case.round {
            return law.cut * self.rate;
        }
        let middle = (value.rate * self.rate).sqrt().max(law.cut * self.rate);
        let is_near = value.rate * (1.0 + law.hysteresis).powi(2) >= self.rate;
        if self.rate == 0.0
            || is_near
            || !case.on(Rule::Halves)
            || idle(middle, case.rtt_us, case.seen)
        {
            f64::INFINITY
        } else {
            middle
        }
    }
}
