//! Judgement: what first flights say of the values on trial.
//!
//! Harm: clearly more of the flights lost anything than random loss explains. Good: enough flights over enough rounds, no
//! more of them lost than may, and their 50 or 100 kB take no longer than the others'; of a step beyond what was reached
//! they must take less. Paths that borrow from their group are judged by all of the group's borrowers together, and by
//! their own losses: alone they would wait for days.

use super::Case;
use super::counts::{Counts, STEP_UP};
use super::group::Group;
use super::losses::{self, BLIND, Flights, Lost, SURE};
use super::rules::Rule;
use super::state::State;
use super::trains::proves;
use crate::step::chance::FEWEST_LOSSY;

/// Standard error of the log2 of two medians' ratio, times the root of the flights in each: single times differ by a
/// third.
const OF_MEDIANS: f64 = 0.76;
/// A trial is waited for until it has so many times `trial_flights`.
const MOST_TRIAL: f64 = 4.0;

/// Judgement of a trial; where nothing is set it is not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub harm: bool,
    pub slower: bool,
    pub in_vain: bool,
    pub good: bool,
}

/// Flights that a path adds to its group's where it borrows, or uses what it borrowed. No path
/// counts for more than a trial needs: by its own losses it would decide for the others.
pub(super) fn lent(case: &Case, counts: &Counts, after: &State) -> Option<Flights> {
    let (before, law) = (case.before, &case.policy.start);
    let own = if counts.is_tried && before.trial_borrowed {
        after.trial_flights()
    } else if counts.is_used && before.borrowed {
        after.used_flights()
    } else {
        return None;
    };
    let part = (law.trial_flights / own.flights.max(1.0)).min(1.0);
    Some(Flights {
        flights: part * own.flights,
        lossy: part * own.lossy,
        segments: part * own.segments,
        resent: part * own.resent,
    })
}

/// Judges the values on trial.
pub(super) fn judge(case: &Case, counts: &Counts, group: &Group, after: &State) -> Verdict {
    let (before, law) = (case.before, &case.policy.start);
    if !counts.is_tried {
        return Verdict::default();
    }
    let (own, much) = (after.trial_flights(), counts.trial_much);
    let used = after.used_flights();
    let share = counts.default.share;
    let others = if counts.is_used && !counts.harm {
        used.share()
    } else {
        share
    };
    let bound = losses::allowed_lossy(before.trial_window, share, share.max(others), law);
    let mut harm = much
        && (counts.round[1].lossy > 0.0 && own.too_many_lossy(bound)
            || case.on(Rule::Flood) && counts.round[1].is_flood(counts.default));
    let is_borrowed = before.trial_borrowed && case.on(Rule::JudgedTogether);
    let judges = if is_borrowed { group.borrowers } else { own };
    // Half as many of which none lost anything show as much: of ten, a quarter that lose would show in 19 of 20 trials.
    // And what sharp trains show needs no proof but that nobody else is there.
    let parts = if case.on(Rule::TrainsProve) && proves(case) {
        4.0
    } else if case.on(Rule::HalfWhenClean) && judges.lossy == 0.0 {
        2.0
    } else {
        1.0
    };
    let is_enough = judges.flights >= (law.trial_flights / parts).ceil();
    let judges_much = if is_borrowed {
        judges.sends_much(Lost::NOTHING, law)
    } else {
        much
    };
    let is_clean = (own.lossy <= bound * own.flights.max(FEWEST_LOSSY) || !much)
        && (judges.lossy <= bound * judges.flights || !judges_much)
        && (bound < BLIND || !much || own.segments == 0.0);
    let is_judged = !case.is_frozen && is_enough && after.trial_rounds >= law.trial_rounds;
    harm |= is_judged && !is_clean;
    if harm || !is_judged {
        return Verdict {
            harm,
            ..Verdict::default()
        };
    }
    compare(case, counts, after)
}

/// Compares a trial that was judged clean with what is in use, by times and by what was carried. What seems slower, or no
/// faster, by less than chance explains goes on, up to so many flights.
fn compare(case: &Case, counts: &Counts, after: &State) -> Verdict {
    let (before, law) = (case.before, &case.policy.start);
    let ratio = after.trial_log2_time / after.trial_times.max(1.0);
    let chance = OF_MEDIANS / after.trial_times.max(1.0).sqrt();
    let is_last = after.trial_flights >= MOST_TRIAL * law.trial_flights;
    let is_clear = is_last || !case.on(Rule::ByChance);
    let (surely, at_most) = if is_clear {
        (ratio, ratio)
    } else {
        (ratio - chance, ratio + chance)
    };
    let (too_slow, no_gain) = ((1.0 + law.slower).log2(), (1.0 - law.step_gain).log2());
    let is_step = before.trial_step;
    let is_timed = after.trial_times > 0.0;
    // Times say little where connections start with others now and then without: what the path carried says more.
    let carried = counts.carried[1];
    if counts.is_more && carried.single.is_finite() && case.on(Rule::CarriedDecides) {
        let brings = carried.single * before.trial_connection_rate
            >= STEP_UP * before.connection_rate
            || carried.path * before.trial_path_rate >= STEP_UP * before.path_rate;
        let slower = is_timed
            && (if brings {
                ratio - SURE * chance
            } else {
                surely
            }) > too_slow;
        return Verdict {
            slower,
            in_vain: !slower && !brings,
            good: brings && !slower,
            harm: false,
        };
    }
    let slower = is_timed && surely > too_slow;
    Verdict {
        slower,
        // Small objects show neither times nor parts: what a step brings is not seen, and nothing else is tried.
        in_vain: !slower
            && is_step
            && (is_timed && surely > no_gain || !is_timed && is_last && case.on(Rule::UnseenStep)),
        // Where a step's flights lose so much that none shows what was carried, half of all steps seem faster by chance.
        good: if is_step {
            is_timed && at_most <= no_gain
        } else {
            !is_timed || ratio <= too_slow
        },
        harm: false,
    }
}
