//! Estimates: what a path has proved.
//!
//! Trains show what the path carries; polls show a single connection's share and the rate of all together. Both are
//! smoothed, and borrowed from the group where a path's own evidence is thin.

use super::counts::Counts;
use super::group::Group;
use super::rules::Rule;
use super::state::State;
use super::trains::{self, shown_before};
use super::values;
use super::{Case, log2_of};

/// Weights of what was known of a path's rate: what was delivered once was there, what was not may have been lack of
/// traffic.
const PATH_RISE: f64 = 0.5;
const PATH_FALL: f64 = 0.95;

/// A path's own estimate of a single connection's share, log2 of bytes/s.
pub(super) struct Own {
    /// The estimate; NaN where nothing is known.
    pub log2: f64,
    /// Says whether enough connections are behind it.
    pub is_enough: bool,
    /// Connections of this round.
    count: f64,
    /// Share that single connections reached, and the one in use where its flights went well:
    /// nothing proved is below.
    reached: f64,
    floor: f64,
    /// The share is far below what was known or is in use.
    fell: bool,
}

impl Own {
    /// Reads a round's shares, and leaves what is known of them in `after`.
    ///
    /// A connection whose window collapsed was delivered less than the path gives: nothing is below
    /// what others of the round reached, or started with and lost nothing.
    pub(super) fn read(case: &Case, counts: &Counts, after: &mut State) -> Self {
        let (seen, before, law) = (case.seen, case.before, &case.policy.start);
        let (in_use, reached) = (share_in_use(case, counts), reached(case));
        let floor = if counts.sound && case.on(Rule::WellFloor) {
            reached.max(in_use)
        } else {
            reached
        };
        let met = log2_of(seen.share_rate);
        let is_new = !case.is_frozen && !met.is_nan();
        let count = if is_new { seen.share_connections } else { 0.0 };
        let newest = met.max(floor);

        let lives = case.is_alive && before.share_log2.is_finite();
        let weight = if lives { before.share_weight } else { 0.0 };
        let known = if weight > 0.0 {
            before.share_log2
        } else {
            f64::NEG_INFINITY
        };
        let are_many = count >= law.min_connections;
        let fell = are_many && newest <= known.max(in_use) + law.collapse.log2();
        // Up it leads to a trial only: what is far above what was known is followed as well.
        let rose = are_many && weight > 0.0 && newest >= known - law.collapse.log2();
        let is_forgotten = fell && case.on(Rule::FallForgets) || rose && case.on(Rule::RiseForgets);
        let kept = match (is_forgotten, count > 0.0) {
            (true, _) => 0.0,
            (false, true) => law.history_weight,
            (false, false) => 1.0,
        };
        let (old, total) = (kept * weight, kept * weight + count);
        let part = |weight: f64, log2: f64| if weight > 0.0 { weight * log2 } else { 0.0 };
        after.share_weight = total;
        after.share_log2 = if total > 0.0 {
            (part(old, before.share_log2) + part(count, newest)) / total
        } else {
            f64::NAN
        };
        Self {
            log2: after.share_log2,
            is_enough: total >= law.min_connections,
            count,
            reached,
            floor,
            fell,
        }
    }
}

/// Log2 of the share that is in use, no more than the path carries of it; NaN of none.
fn share_in_use(case: &Case, counts: &Counts) -> f64 {
    let law = &case.policy.start;
    let carried = counts.carried[0].single.min(1.0);
    log2_of(carried * case.in_use.rate / (law.pace_gain * values::kept(law)))
}

/// Log2 of what single connections were delivered; NaN where none was. A few, which may be one host's, prove no more than
/// trains showed.
fn reached(case: &Case) -> f64 {
    let (seen, before, law) = (case.seen, case.before, &case.policy.start);
    if case.is_frozen || seen.reached_connections == 0.0 {
        return f64::NAN;
    }
    let reached = log2_of(seen.reached_rate);
    let are_few = seen.reached_connections < law.min_connections && case.on(Rule::FewReach);
    if are_few && reached.is_finite() {
        reached.min(log2_of(shown_before(before, law)))
    } else {
        reached
    }
}

/// Rates that a path has proved, bytes/s, NaN where there is none.
pub(super) struct Proved {
    /// Rate that a single connection may be given.
    pub share: f64,
    /// Rate that all that start at once may be given.
    pub path: f64,
    /// Rate that the path carries, where trains show that much and no more.
    pub carries: f64,
    /// `share` is what trains show, of a path that nobody else is on.
    pub is_shown: bool,
    /// `share` is from trains or from connections that met the path; else it is a lower bound.
    pub is_known: bool,
    /// `share` is the group's low quantile.
    pub is_borrowed: bool,
    /// The round has evidence.
    pub is_measured: bool,
    /// Some of it shows the path.
    pub is_met: bool,
    /// The path is far below what was known or is in use.
    pub fell: bool,
}

/// Says what a path has proved. `is_shared`: flights were carried less of a rate than trains show.
///
/// Where trains show more than was met it may not be the path's: that is asked first, and shares count where others were
/// on the path.
pub(super) fn prove(
    case: &Case,
    counts: &Counts,
    own: &Own,
    group: &Group,
    is_shared: bool,
    after: &mut State,
) -> Proved {
    let law = &case.policy.start;
    let in_use = share_in_use(case, counts);
    let lower = own.reached.max(in_use);
    let is_above = lower >= group.low;
    let lends =
        !own.is_enough && group.paths >= law.group_units && !is_above && case.on(Rule::Borrow);
    let share = if own.is_enough {
        own.log2.max(own.floor)
    } else if lends {
        group.low
    } else {
        lower
    };
    after.path_log2 = path_log2(case, own, after.share_log2);
    let trains = trains::read(case, own.reached, after);
    let is_shown = trains.carries.is_finite() && !is_shared;
    let share = match (is_shown, trains.sharp) {
        (true, true) => trains.carries,
        (true, false) => trains.carries.max(share),
        (false, _) => share,
    };
    let path = if is_shown && trains.sharp {
        trains.carries
    } else {
        after.path_log2.max(share)
    };
    let fell = if is_shown && trains.sharp && trains.is_new {
        trains.carries <= in_use + law.collapse.log2()
    } else {
        own.fell
    };
    Proved {
        share: share.exp2(),
        path: path.exp2(),
        carries: if trains.sharp {
            trains.carries.exp2()
        } else {
            f64::NAN
        },
        is_shown,
        is_known: own.is_enough || is_shown,
        is_borrowed: lends && !is_shown,
        is_measured: own.count > 0.0 || own.reached.is_finite() || trains.is_new,
        is_met: own.count > 0.0 || is_shown && trains.is_new,
        fell,
    }
}

/// Follows the rate of all together. A collapsed share takes it along.
fn path_log2(case: &Case, own: &Own, share_log2: f64) -> f64 {
    let (seen, before) = (case.seen, case.before);
    let newest = if case.is_frozen || seen.path_buckets == 0.0 {
        f64::NAN
    } else {
        log2_of(seen.path_rate)
    };
    let known = if case.is_alive {
        before.path_log2
    } else {
        f64::NAN
    };
    if own.fell {
        let lowered = known - (before.share_log2 - share_log2).max(0.0);
        if lowered.is_finite() {
            return lowered.max(newest);
        }
    }
    match (known.is_nan(), newest.is_nan()) {
        (true, _) => newest,
        (false, true) => known,
        (false, false) => {
            let is_slow = newest <= known && case.on(Rule::SlowPathFall);
            let weight = if is_slow { PATH_FALL } else { PATH_RISE };
            weight * known + (1.0 - weight) * newest
        }
    }
}
