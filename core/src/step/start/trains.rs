//! Trains: what the segments with which connections start show of the path.
//!
//! The kernel sends the first ten segments at once. They arrive as fast as the path's slowest link sends them (packet
//! train dispersion: Dovrolis, Ramanathan, Moore, INFOCOM 2001; the edge's part is edge/bpf/train.h).

use super::policy::Start;
use super::rules::Rule;
use super::state::State;
use super::{Case, log2_of};

/// Rate up to which trains are sharp, bytes/s: nine segments of 1448 bytes are timed to a tenth, by clocks and interrupts
/// that are some 50 us late.
const SHARPEST: f64 = 2e7;
/// Trains are sharp where the slowest quarter shows nearly as much as the middle. (A link that sends at random, each
/// packet by itself, as cells do: 1.25.)
const BLURRED: f64 = 1.4;
/// Factor beyond which trains are of another path.
pub(super) const MOVED: f64 = 1.4;
/// Trains of the rounds before count for so many times the last round's at most: a path's rate differs by a tenth from
/// round to round by itself, and what follows that changes for nothing.
const KEPT: f64 = 4.0;
/// Factor above or below what trains show that is not chance: medians of a dozen differ by less.
pub(super) const BEYOND: f64 = 1.15;

/// Result of trains: log2 of the bytes/s that the path carries, NaN where too few say it.
pub(super) struct Trains {
    pub carries: f64,
    /// Says whether they are sharp.
    pub sharp: bool,
    /// Says whether the round had some.
    pub is_new: bool,
}

/// Reads a round's trains, and leaves what they show in `after`. Where a round has few, several rounds say it together.
/// `reached` is log2 of what single connections were delivered.
pub(super) fn read(case: &Case, reached: f64, after: &mut State) -> Trains {
    let (seen, before, law) = (case.seen, case.before, &case.policy.start);
    let newest = if case.is_frozen || seen.trains == 0.0 || !case.on(Rule::Trains) {
        f64::NAN
    } else {
        log2_of(seen.train_rate)
    };
    let count = if newest.is_finite() { seen.trains } else { 0.0 };
    let are_many = count >= law.min_connections;
    let lasts =
        case.on(Rule::TrainHistory) && case.is_alive && case.round < before.train_at + law.ttl_s;
    let had = if lasts { before.train_weight } else { 0.0 };
    let near: f64 = if are_many { MOVED } else { BEYOND };
    let is_near = (newest - before.train_log2).abs() <= near.log2();
    let weight = kept(had, count, is_near, law);
    let count = if is_near || weight == 0.0 || are_many {
        count
    } else {
        0.0
    };
    let total = weight + count;
    let part = |weight: f64, log2: f64| if weight > 0.0 { weight * log2 } else { 0.0 };
    let sum = part(weight, before.train_log2) + part(count, newest);
    after.train_log2 = if total > 0.0 {
        sum / total.max(1.0)
    } else {
        f64::NAN
    };
    after.train_weight = total;
    after.train_at = match (count > 0.0, total > 0.0) {
        (true, _) => case.round,
        (false, true) => before.train_at,
        (false, false) => 0,
    };
    // Few trains show only over rounds how much they differ.
    after.train_sharp = if !case.on(Rule::SharpTrains) {
        true
    } else if are_many {
        seen.train_low_rate * BLURRED >= seen.train_rate && seen.train_rate < SHARPEST
    } else if weight > 0.0 {
        before.train_sharp
    } else {
        after.train_log2 < SHARPEST.log2()
    };
    let are_enough = total >= law.min_connections;
    let is_above = reached > after.train_log2 + BEYOND.log2();
    Trains {
        carries: if are_enough {
            after.train_log2
        } else {
            f64::NAN
        },
        // A path that delivered more carries more.
        sharp: after.train_sharp && are_enough && !is_above,
        is_new: are_enough && count > 0.0,
    }
}

/// Number of the trains before that still count beside so many new ones.
fn kept(had: f64, count: f64, is_near: bool, law: &Start) -> f64 {
    match (count > 0.0, is_near, count >= law.min_connections) {
        (false, ..) => had,
        (true, true, true) => had.min(KEPT * count),
        (true, true, false) => had.min(law.min_connections),
        (true, false, true) => 0.0,
        // Few that contradict take their number from those before, and count where none of these are left.
        (true, false, false) => (had - count).max(0.0),
    }
}

/// Bytes/s that trains showed until now, NaN where too few did.
pub(super) fn shown_before(before: &State, law: &Start) -> f64 {
    if before.train_weight >= law.min_connections {
        before.train_log2.exp2()
    } else {
        f64::NAN
    }
}

/// Says whether sharp trains showed what is on trial before it began, of a path that nobody else is on.
pub(super) fn proves(case: &Case) -> bool {
    let (before, law) = (case.before, &case.policy.start);
    before.train_sharp
        && before.trial_connection_rate <= BEYOND * shown_before(before, law)
        && case.round >= before.shared_at + law.ttl_s
}
