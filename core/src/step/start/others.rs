//! Others: whether something else is on the path. Trains do not show it; what first flights are carried does, a round later.

use super::Case;
use super::counts::{Carried, Counts};
use super::judge::Verdict;
use super::losses::BLIND;
use super::rules::Rule;
use super::state::State;
use super::trains::shown_before;
use super::values::Values;

/// Part of what trains show that is carried where nothing else is on the path: both are medians of few.
const OTHERS: f64 = 0.85;

/// Says whether clearly less of a rate was carried than trains show that the path carries.
pub(super) fn shows_others(case: &Case, counts: &Counts, verdict: Verdict, after: &State) -> bool {
    let (seen, law) = (case.seen, &case.policy.start);
    let known = shown_before(case.before, law);
    let shown = if seen.trains >= law.min_connections {
        seen.train_rate
    } else {
        known
    };
    carried_less(case, counts, shown)
        || met_less(case, counts, known) && lost_shows_less(case, counts, verdict, after)
}

/// Says whether flights were carried less. A rate does not say it that is far below what trains show, unless others were
/// there just now: hosts that are late look the same. Nor do flights that lose something.
fn carried_less(case: &Case, counts: &Counts, shown: f64) -> bool {
    let (before, law) = (case.before, &case.policy.start);
    // The path counted as shared until now.
    let still = before.shared_at > 0 && case.round <= before.shared_at + law.ttl_s;
    parts(counts.carried[0], before.used())
        .into_iter()
        .chain(parts(counts.carried[1], before.tried()))
        .any(|(part, rate)| is_less(part, rate, shown) && (still || rate >= law.collapse * shown))
}

/// Says whether connections that met the path were delivered less. Alone that is no sign: what they meet is bounded by
/// their sizes, and by what they overshot.
fn met_less(case: &Case, counts: &Counts, known: f64) -> bool {
    let before = case.before;
    before.share_weight >= case.policy.start.min_connections
        && shows_less(1.0, met(case), known)
        && !counts.carried[0].any_whole()
        && !before.overridden
}

/// Says whether flights lose so much that they show nothing: all of those in use, or harm again within a hold.
fn lost_shows_less(case: &Case, counts: &Counts, verdict: Verdict, after: &State) -> bool {
    if !case.on(Rule::SharedByLoss) {
        return false;
    }
    let (before, law, used) = (case.before, &case.policy.start, after.used_flights());
    let is_blind = used.flights >= law.trial_flights
        && used.lossy >= BLIND * used.flights
        && used.resent > law.loss_segments * used.segments;
    let again = case.round < before.hold_until + before.hold_s;
    (counts.harm && again || is_blind) && shows_less(1.0, met(case), before.connection_rate)
        || verdict.harm && again && shows_less(1.0, met(case), before.trial_connection_rate)
}

/// Bytes/s that connections were delivered, one or all of them.
fn met(case: &Case) -> f64 {
    let known = case.before.share_log2.max(case.before.path_log2);
    known.exp2().max(case.seen.reached_rate)
}

fn parts(carried: Carried, values: Values) -> [(f64, f64); 2] {
    [(carried.single, values.rate), (carried.path, values.path)]
}

fn is_less(part: f64, rate: f64, shown: f64) -> bool {
    part < 1.0 && shows_less(part, rate, shown)
}

/// Says whether a part of a rate is clearly less than what trains show.
fn shows_less(part: f64, rate: f64, shown: f64) -> bool {
    part * rate < OTHERS * shown
}
