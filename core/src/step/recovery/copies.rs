//! Copies: whether the beginning of a path's connections is worth sending twice.
//!
//! A copy brings what random loss takes. On a full path it is lost as well, and takes the room of others. In the order in
//! which they act:
//!
//! 1. **harm**: connections with copies clearly lose more than those beside them that have none by chance, or take clearly
//!    longer. Nothing is given for a time, which doubles;
//! 2. **full**: what is lost is lost because the path is full. Nothing is given;
//! 3. **worth**: clearly enough first flights lose something;
//! 4. where copies are in use they stay until the loss clearly ended: the other end reports each copy that it did not need,
//!    so that what it does not report is what copies repaired.

use super::hold::Hold;
use super::{LossRecovery, Policy, Reason, Seen, State, is_measured, unmeasured};
use crate::step::chance::{FEWEST_LOSSY, lower_bound, upper_bound};
use crate::step::round::Row;

/// Share of first flights that must lose something: each connection pays for its copies.
const WORTH: f64 = 0.01;
/// Share of first flights below which the loss has ended: half of that, so that a path between them keeps what it has.
const ENDED: f64 = WORTH / 2.0;
/// Share of copied segments that are not reported twice, below which it has ended too. Either of the two may be lost,
/// and the report: where one in a thousand packets is, three in a thousand are missing. One in a hundred flights of
/// seven segments, a fast answer, then loses something.
const REPAIRED_ENDED: f64 = 0.004;
/// Segments that a lossy flight sends again, in the mean, above which the path is full, or loses in bursts: the copy beside
/// is lost too. At random one or two are lost of a flight.
const BURST: f64 = 3.0;
/// Part of the lossy share of long round trips that short ones have at least, where loss is random. A queue that overflows
/// is long before.
const CALM: f64 = 0.5;
/// Standard errors of a difference that are no chance.
const SURE: f64 = 3.0;
/// Part of the time to 10 kB that copies may cost: less is not worth a hold.
const SLOWER: f64 = 0.05;

/// The bytes that are sent twice, 0 for none, and why; writes what is remembered beside them. `in_use` are the law's own.
pub(super) fn found(
    round: i64,
    policy: &Policy,
    row: &Row<LossRecovery>,
    in_use: f64,
    after: &mut State,
) -> (f64, Reason) {
    let (law, seen, before) = (&policy.recovery, &row.seen, &row.before);
    if !law.copies {
        (after.copies_hold_until, after.copies_hold_s) = (0, 0);
        return (0.0, Reason::Off);
    }
    let hold = Hold::left(before.copies_hold_until, before.copies_hold_s, round);
    (after.copies_hold_until, after.copies_hold_s) = hold.both();
    if round < hold.until {
        return (0.0, Reason::HeldCopiesHarm);
    }
    let is_enough = seen.flights + seen.copied >= law.min_connections;
    let is_given = before.copied_bytes > 0.0;
    if !row.is_frozen && is_given && is_enough && (loses_more(seen) || is_slower(seen)) {
        let next = hold.next(round, policy.window_s);
        (after.copies_hold_until, after.copies_hold_s) = next.both();
        return (0.0, Reason::CopiesHarm);
    }
    if row.is_frozen || !is_enough {
        // Evidence spans the whole window. A window with handshakes, but too few flights, has none of these.
        let is_alive = round < before.last_evidence + policy.window_s
            && (row.is_frozen || !is_measured(policy, row));
        return unmeasured(in_use, is_alive, row.is_frozen);
    }
    let (lossy, flights) = (seen.flights_lossy, seen.flights);
    if is_full(seen) {
        (0.0, Reason::FullPath)
    } else if lossy >= FEWEST_LOSSY && lower_bound(lossy, flights) > WORTH {
        (law.copied_bytes, Reason::Lossy)
    } else if in_use == 0.0 {
        (0.0, Reason::LittleLoss)
    } else if !has_ended(seen) {
        (law.copied_bytes, Reason::HeldLossy)
    } else {
        (0.0, Reason::LossEnded)
    }
}

/// Says whether clearly more of the flights with copies sent anything again than of those beside them.
fn loses_more(seen: &Seen) -> bool {
    seen.copied_lossy >= FEWEST_LOSSY
        && lower_bound(seen.copied_lossy, seen.copied)
            > upper_bound(seen.uncopied_lossy, seen.uncopied)
}

/// Says whether clearly hardly anything is lost any more: by flights without copies, or by what copies repaired.
fn has_ended(seen: &Seen) -> bool {
    upper_bound(seen.flights_lossy, seen.flights) < ENDED
        || upper_bound(seen.repaired_segments, seen.copied_segments) < REPAIRED_ENDED
}

/// Says whether 10 kB clearly take longer with copies. Unknown is no.
fn is_slower(seen: &Seen) -> bool {
    let longer = seen.copied_10k_us - seen.uncopied_10k_us;
    longer > SURE * seen.error_10k_us && longer > SLOWER * seen.uncopied_10k_us
}

/// Says whether what is lost is lost because the path is full: much at once, or clearly more as round trips are longer.
fn is_full(seen: &Seen) -> bool {
    let share = |lossy: f64, flights: f64| lossy / flights.max(1.0);
    let calm = share(seen.calm_lossy, seen.calm_flights);
    let busy = share(seen.busy_lossy, seen.busy_flights);
    let all = share(
        seen.calm_lossy + seen.busy_lossy,
        seen.calm_flights + seen.busy_flights,
    );
    let parts = 1.0 / seen.calm_flights.max(1.0) + 1.0 / seen.busy_flights.max(1.0);
    let error = (all * (1.0 - all) * parts).sqrt();
    seen.flights_lossy >= FEWEST_LOSSY
        && (seen.resent_each > BURST || (calm < CALM * busy && busy - calm > SURE * error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Recovery;
    use super::super::tests::decided;
    use super::*;
    use crate::step::columns::Columns;

    const ROUND: i64 = 1_800_000_000;

    fn policy() -> Policy {
        Policy {
            recovery: Recovery {
                handshake: false,
                min_connections: 100.0,
                margin: 1.5,
                copies: true,
                copied_bytes: 20_000.0,
            },
            window_s: 3600,
        }
    }

    /// Flights, and how many of them are lossy by chance.
    fn seen(flights: f64, lossy: f64) -> Seen {
        Seen {
            handshakes: 1000.0,
            handshake_rtt_us: 50_000.0,
            flights,
            flights_lossy: lossy,
            resent_each: 1.2,
            calm_flights: flights / 2.0,
            calm_lossy: lossy / 2.0,
            busy_flights: flights / 2.0,
            busy_lossy: lossy / 2.0,
            ..Seen::unknown()
        }
    }

    /// While they are in use: a tenth has none.
    fn used(lossy: f64, copied_lossy: f64) -> Seen {
        Seen {
            copied: 900.0,
            copied_lossy,
            uncopied: 100.0,
            uncopied_lossy: lossy,
            copied_segments: 6300.0,
            repaired_segments: 60.0,
            ..seen(100.0, lossy)
        }
    }

    fn after(
        round: i64,
        before: &State,
        seen: &Seen,
        is_frozen: bool,
    ) -> (State, (f64, &'static str)) {
        let (after, [_, reason]) = decided(&policy(), round, (before, seen), is_frozen);
        let given = after.copied_bytes;
        (after, (given, reason))
    }

    #[test]
    fn it_follows_a_path_through_its_life() {
        let mut state = State::zeros();
        let mut lives = |round: i64, seen: &Seen, frozen: bool| {
            let (next, given) = after(ROUND + round, &state, seen, frozen);
            state = next;
            given
        };
        let given = |name: &'static str| (20_000.0, name);
        let none = |name: &'static str| (0.0, name);
        let nothing = Seen::unknown();
        assert_eq!(lives(0, &seen(99.0, 50.0), false), none("thin_evidence"));
        assert_eq!(lives(0, &seen(1000.0, 0.0), false), none("little_loss"));
        assert_eq!(lives(0, &seen(1000.0, 15.0), false), none("little_loss"));
        assert_eq!(lives(0, &seen(100.0, 2.0), false), none("little_loss"));
        assert_eq!(lives(0, &seen(1000.0, 50.0), false), given("lossy"));
        assert_eq!(lives(300, &nothing, true), given("held_incomplete_input"));
        assert_eq!(lives(300, &nothing, false), given("held_thin_evidence"));
        assert_eq!(lives(600, &used(20.0, 30.0), false), given("lossy"));
        // Three in a hundred are as well one in a hundred; as many lossy ones with copies are no harm.
        assert_eq!(lives(900, &used(3.0, 30.0), false), given("held_lossy"));
        assert_eq!(lives(900, &used(0.0, 0.0), false), given("held_lossy"));
        assert_eq!(lives(1200, &used(3.0, 400.0), false), none("copies_harm"));
        assert_eq!(
            lives(4799, &seen(1000.0, 50.0), false),
            none("held_copies_harm")
        );
        assert_eq!(lives(4800, &seen(1000.0, 50.0), false), given("lossy"));
        assert_eq!(lives(5100, &used(3.0, 400.0), false), none("copies_harm"));
        assert_eq!(
            lives(12_299, &seen(1000.0, 50.0), false),
            none("held_copies_harm")
        );
        assert_eq!(lives(12_300, &seen(1000.0, 50.0), false), given("lossy"));
        // None of 2000 without copies lost anything: fewer than one in two hundred do.
        assert_eq!(lives(12_600, &seen(2000.0, 0.0), false), none("loss_ended"));
        assert_eq!(lives(12_900, &seen(1000.0, 50.0), false), given("lossy"));
        // Without evidence for an hour.
        assert_eq!(
            lives(16_499, &nothing, true),
            given("held_incomplete_input")
        );
        assert_eq!(lives(16_500, &nothing, true), none("expired"));
        // A tenth that shows nothing clearly keeps them, until nothing is repaired.
        assert_eq!(lives(20_000, &seen(1000.0, 50.0), false), given("lossy"));
        assert_eq!(lives(106_400, &used(1.0, 5.0), false), given("held_lossy"));
        let mut calm = used(0.0, 0.0);
        calm.repaired_segments = 10.0;
        assert_eq!(lives(106_700, &calm, false), given("held_lossy"));
        calm.repaired_segments = 5.0;
        assert_eq!(lives(107_000, &calm, false), none("loss_ended"));
    }

    #[test]
    fn a_full_path_is_given_none() {
        let name = |seen: &Seen| after(ROUND, &State::zeros(), seen, false).1.1;
        let mut burst = seen(1000.0, 400.0);
        burst.resent_each = 8.0;
        let mut late = seen(1000.0, 60.0);
        (late.calm_lossy, late.busy_lossy) = (6.0, 54.0);
        // A third of few is chance.
        let mut few = seen(100.0, 12.0);
        (few.calm_lossy, few.busy_lossy) = (3.0, 9.0);
        assert_eq!(name(&burst), "full_path");
        assert_eq!(name(&late), "full_path");
        assert_eq!(name(&few), "lossy");
    }

    #[test]
    fn what_takes_clearly_longer_is_harm() {
        let (state, _) = after(ROUND, &State::zeros(), &seen(1000.0, 50.0), false);
        let took = |copied, uncopied, error| {
            let mut seen = used(20.0, 30.0);
            (seen.copied_10k_us, seen.uncopied_10k_us, seen.error_10k_us) =
                (copied, uncopied, error);
            after(ROUND + 300, &state, &seen, false).1.1
        };
        assert_eq!(took(220_000.0, 200_000.0, 6000.0), "copies_harm");
        assert_eq!(took(220_000.0, 200_000.0, 7000.0), "lossy");
        assert_eq!(took(209_000.0, 200_000.0, 100.0), "lossy");
        assert_eq!(took(150_000.0, 200_000.0, 100.0), "lossy");
    }

    proptest! {
        #[test]
        fn it_gives_none_within_a_hold_nor_where_nothing_is_lost(
            rounds in prop::collection::vec(
                (0u32..2000, 0.0..0.4f64, 0u32..2000, 0.0..1.0f64, any::<bool>()), 1..40)
        ) {
            let (mut state, mut is_lossless) = (State::zeros(), true);
            for (at, (flights, share, copied, copied_share, is_frozen)) in rounds.into_iter().enumerate() {
                let (flights, copied) = (f64::from(flights), f64::from(copied));
                let mut shown = seen(flights, if at % 3 == 0 { (flights * share).round() } else { 0.0 });
                (shown.copied, shown.copied_lossy) = (copied, (copied * copied_share).round());
                (shown.uncopied, shown.uncopied_lossy) = (shown.flights, shown.flights_lossy);
                is_lossless &= shown.flights_lossy == 0.0;
                let round = ROUND + 300 * at as i64;
                let (next, (given, _)) = after(round, &state, &shown, is_frozen);
                prop_assert!(given == 0.0 || given == 20_000.0);
                prop_assert!(given == 0.0 || round >= state.copies_hold_until);
                prop_assert!(given == 0.0 || !is_lossless);
                prop_assert!(given == 0.0 || state.copied_bytes > 0.0 || shown.flights_lossy > 0.0);
                let (again, (given_again, _)) = after(round, &next, &shown, true);
                prop_assert_eq!(given_again, given);
                prop_assert_eq!(again.copies_hold_until, next.copies_hold_until);
                state = next;
            }
        }
    }
}
