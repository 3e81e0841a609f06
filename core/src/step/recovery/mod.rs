//! Recovery from loss: the time after which a path's lost SYN or SYN-ACK is sent again, and whether the beginning of its
//! connections is sent twice ([`copies`]). Both compare with the connections that have neither, by chance.
//!
//! The kernel's timeout is a second (RFC 6298, 2.1), because it knows nothing of the path. The path's earlier
//! handshakes do. Rules of the timeout, in the order in which they act:
//!
//! 1. **target**: a high quantile of the handshakes' round trips, and a margin. A longer one acts at once. Nothing is given
//!    from the kernel's second on;
//! 2. **harm**: clearly more of the handshakes with the timeout in use were sent again than of those beside them that kept
//!    the kernel's. What is lost is lost with both, so the rest was sent in vain. Nothing is given for a time, which doubles;
//! 3. **calm**: a shorter target acts only where it is worth a change;
//! 4. without evidence the value stays for as long as evidence counts (`window_rounds`).
//!
//! An operator's override precedes all of it, of either value. What it does is judged as ever: harm holds the path once it
//! has ended. Nothing else is left of it then.

mod copies;
mod hold;
mod rows;

use self::hold::Hold;
use super::chance::{FEWEST_LOSSY, lower_bound, upper_bound};
use super::columns::ColumnMut;
use super::round::{Part, Paths, Row};
use super::words::{Action, reasons};
use crate::bundle::{MAX_HANDSHAKE_TIMEOUT_MS, MIN_HANDSHAKE_TIMEOUT_MS};

pub use self::rows::{Decided, Override, Seen, State};

/// Milliseconds: targets are multiples, about the tick of a kernel's timers.
const STEP_MS: f64 = 10.0;
/// A target acts where it is at most this part of the timeout in use: the quantile of some hundred round trips moves by
/// less. So timeouts of a path's two ends differ by up to a quarter, and a SYN-ACK waits a third longer (edge/bpf/before.h).
const SHORTER: f64 = 0.8;
/// Share of handshakes that may be sent again in vain: one round trip in a hundred is above the quantile.
const SPURIOUS_SHARE: f64 = 0.01;

/// Policy of recovery.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Policy {
    /// Section `recovery`.
    pub recovery: Recovery,
    /// Length of `recovery.window_rounds`, or the life of a bundle where that is longer.
    pub window_s: i64,
}

/// Section `recovery`; the meaning of each key stands in policy.yaml.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Recovery {
    pub handshake: bool,
    pub min_connections: f64,
    pub margin: f64,
    pub copies: bool,
    pub copied_bytes: f64,
}

reasons! {
    /// By the path's own handshakes.
    Learnt "learnt" "the round trips of the path's handshakes, recovery.margin above them",
    /// A shorter one is not worth a change.
    HeldHysteresis "held_hysteresis" "a shorter timeout is not worth a change: less than a fifth",
    /// More is sent again in vain than may.
    Spurious "spurious" "handshakes with the path's timeout are sent again more often than others, by over one in a hundred",
    /// It lately was.
    HeldSpurious "held_spurious" "recovery.window_rounds since more was sent again in vain than may",
    /// It is not turned on.
    Off "off" "recovery.handshake or recovery.copies, which is off",
    /// Nothing to gain.
    SlowPath "slow_path" "the path's handshakes take nearly as long as the kernel waits",
    /// Too few handshakes in the last rounds.
    HeldThinEvidence "held_thin_evidence" "recovery.min_connections, then recovery.window_rounds",
    /// Too little of the round arrived.
    HeldIncompleteInput "held_incomplete_input"
        "completeness: too little of the round arrived, the last decisions stay in force",
    /// The evidence is too old.
    Expired "expired" "recovery.window_rounds",
    /// There never was any.
    ThinEvidence "thin_evidence" "recovery.min_connections",
    /// Copies are worth their bytes.
    Lossy "lossy" "clearly more than one first flight in a hundred loses something, and not because the path is full",
    /// Few connections have none.
    HeldLossy "held_lossy"
        "neither connections without copies nor what copies repaired show that the loss ended",
    /// Nothing is lost any more.
    LossEnded "loss_ended"
        "hardly any copy repaired anything, or fewer than one first flight in two hundred without copies lost anything",
    /// Nothing to gain.
    LittleLoss "little_loss" "not clearly more than one first flight in a hundred loses something",
    /// Copies would be lost as well.
    FullPath "full_path"
        "the path loses because it is full: many segments at once, or clearly more where round trips are longer",
    /// Copies did harm.
    CopiesHarm "copies_harm"
        "connections with copies clearly lose more than those beside them, or take longer to 10 kB, by over 5 %",
    /// They lately did.
    HeldCopiesHarm "held_copies_harm" "recovery.window_rounds since copies did harm",
    /// An operator says so.
    Override "override" "an operator's override in the policy",
}

/// Timeouts of handshakes, and copies, as a part of a decision.
#[derive(Debug)]
pub enum LossRecovery {}

impl Part for LossRecovery {
    type Policy = Policy;
    type Seen = Seen;
    type State = State;
    type Override = Override;
    type Decided = Decided;
    const ACTIONS: &'static [&'static str] = Action::NAMES;
    const REASONS: &'static [(&'static str, &'static str)] = Reason::ALL;

    fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
        paths.write::<Self>(out, |_, row| step(round, policy, row));
    }
}

/// Decides what a path is given: the state that this round leaves, and why.
fn step(round: i64, policy: &Policy, row: &Row<LossRecovery>) -> (State, Decided) {
    let [named_ms, named_bytes] = row.word.as_ref().map_or([f64::NAN; 2], |word| {
        [word.handshake_timeout_ms, word.copied_bytes]
    });
    let before = &row.before;
    let mut after = before.clone();
    if is_measured(policy, row) {
        after.last_evidence = round;
    }
    let own_ms = own(before.handshake_timeout_ms, before.overridden, named_ms);
    let own_bytes = own(before.copied_bytes, before.copies_overridden, named_bytes);
    let mut timeout = found(round, policy, row, own_ms, &mut after);
    let mut copies = copies::found(round, policy, row, own_bytes, &mut after);
    after.overridden = overrule(&mut timeout, named_ms);
    after.copies_overridden = overrule(&mut copies, named_bytes);
    let ((timeout_ms, reason), (copied_bytes, copies_reason)) = (timeout, copies);
    (after.handshake_timeout_ms, after.copied_bytes) = (timeout_ms, copied_bytes);
    let action = Action::of(
        before.handshake_timeout_ms.max(before.copied_bytes),
        timeout_ms.max(copied_bytes),
    );
    let expires_at = match after.last_evidence {
        0 => 0,
        seen => seen + policy.window_s,
    };
    let decided = Decided {
        action: f64::from(action as u8),
        reason: f64::from(reason as u8),
        copies_reason: f64::from(copies_reason as u8),
        expires_at,
    };
    (after, decided)
}

/// The law's own value in use. An operator's word that has ended is none: the path begins anew.
fn own(in_use: f64, is_overridden: bool, named: f64) -> f64 {
    if is_overridden && named.is_nan() {
        0.0
    } else {
        in_use
    }
}

/// Puts what an operator named in the place of what was found. Gives back whether one did.
fn overrule(found: &mut (f64, Reason), named: f64) -> bool {
    let is_named = !named.is_nan();
    if is_named {
        *found = (named, Reason::Override);
    }
    is_named
}

fn is_measured(policy: &Policy, row: &Row<LossRecovery>) -> bool {
    !row.is_frozen
        && row.seen.handshakes >= policy.recovery.min_connections
        && row.seen.handshake_rtt_us.is_finite()
}

/// Value that stands without sufficient evidence, and why.
fn unmeasured(in_use: f64, is_alive: bool, is_frozen: bool) -> (f64, Reason) {
    match (in_use > 0.0, is_alive) {
        (true, true) if is_frozen => (in_use, Reason::HeldIncompleteInput),
        (true, true) => (in_use, Reason::HeldThinEvidence),
        (true, false) => (0.0, Reason::Expired),
        (false, _) => (0.0, Reason::ThinEvidence),
    }
}

/// The timeout, 0 for the kernel's, and why; writes what is remembered beside it. `in_use` is the law's own.
fn found(
    round: i64,
    policy: &Policy,
    row: &Row<LossRecovery>,
    in_use: f64,
    after: &mut State,
) -> (f64, Reason) {
    let (law, seen, before) = (&policy.recovery, &row.seen, &row.before);
    let given = before.handshake_timeout_ms;
    if !law.handshake {
        (after.hold_until, after.hold_s) = (0, 0);
        return (0.0, Reason::Off);
    }
    let hold = Hold::left(before.hold_until, before.hold_s, round);
    (after.hold_until, after.hold_s) = hold.both();
    if round < hold.until {
        return (0.0, Reason::HeldSpurious);
    }
    let is_measured = is_measured(policy, row);
    let target = law.target_ms(seen.handshake_rtt_us);
    if !row.is_frozen
        && given > 0.0
        && !(is_measured && target > given)
        && law.is_spurious(seen, given)
    {
        (after.hold_until, after.hold_s) = hold.next(round, policy.window_s).both();
        return (0.0, Reason::Spurious);
    }
    if !is_measured {
        let is_alive = round < before.last_evidence + policy.window_s;
        return unmeasured(in_use, is_alive, row.is_frozen);
    }
    if target >= f64::from(MAX_HANDSHAKE_TIMEOUT_MS) {
        (0.0, Reason::SlowPath)
    } else if target <= in_use && target > SHORTER * in_use {
        (in_use, Reason::HeldHysteresis)
    } else {
        (target, Reason::Learnt)
    }
}

impl Recovery {
    /// Says whether clearly more is sent again in vain than may: what is sent again of enough handshakes with the timeout in
    /// use, less what is of those beside them, each as far as it is sure. Those with a shorter timeout, from before it was
    /// corrected, say nothing of it.
    fn is_spurious(&self, seen: &Seen, in_use: f64) -> bool {
        let treated = lower_bound(seen.treated_resent, seen.treated);
        let control = upper_bound(seen.control_resent, seen.control);
        seen.treated_ms >= in_use
            && seen.treated >= self.min_connections
            && seen.treated_resent >= FEWEST_LOSSY
            && treated > control + SPURIOUS_SHARE
    }

    /// Gives the timeout of handshakes that take so long, milliseconds.
    fn target_ms(&self, rtt_us: f64) -> f64 {
        let target = (rtt_us / 1000.0 * self.margin / STEP_MS).ceil() * STEP_MS;
        target.max(f64::from(MIN_HANDSHAKE_TIMEOUT_MS))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::hold::DAY_S;
    use super::*;
    use crate::step::columns::Columns;

    const ROUND: i64 = 1_800_000_000;

    fn policy() -> Policy {
        Policy {
            recovery: Recovery {
                handshake: true,
                min_connections: 50.0,
                margin: 1.5,
                copies: false,
                copied_bytes: 20_000.0,
            },
            window_s: 3600,
        }
    }

    fn seen(handshakes: f64, rtt_ms: f64) -> Seen {
        Seen {
            handshakes,
            handshake_rtt_us: 1000.0 * rtt_ms,
            ..Seen::zeros()
        }
    }

    /// Gives what a round leaves of a path, and the names of both reasons: of the timeout, and of copies.
    pub(super) fn decided(
        policy: &Policy,
        round: i64,
        (before, seen): (&State, &Seen),
        is_frozen: bool,
    ) -> (State, [&'static str; 2]) {
        let row = Row {
            seen: seen.clone(),
            before: before.clone(),
            decided: round - 300,
            word: None,
            is_frozen,
        };
        let (after, decided) = step(round, policy, &row);
        let reasons = [decided.reason, decided.copies_reason];
        (after, reasons.map(|number| Reason::ALL[number as usize].0))
    }

    fn after(round: i64, before: &State, seen: &Seen, is_frozen: bool) -> (State, &'static str) {
        let (after, [reason, _]) = decided(&policy(), round, (before, seen), is_frozen);
        (after, reason)
    }

    #[test]
    fn it_follows_a_path_through_its_life() {
        let mut state = State::zeros();
        let mut lives = |round: i64, seen: &Seen, frozen: bool| {
            let (next, reason) = after(ROUND + round, &state, seen, frozen);
            state = next;
            (state.handshake_timeout_ms, reason)
        };
        let mut vain = seen(1000.0, 50.0);
        vain.treated_ms = 80.0;
        (vain.treated, vain.treated_resent) = (900.0, 300.0);
        (vain.control, vain.control_resent) = (100.0, 2.0);
        let mut lossy = vain.clone();
        lossy.control_resent = 33.0;
        let mut slower = vain.clone();
        slower.handshake_rtt_us = 100_000.0;
        let mut one = seen(50.0, 50.0);
        (one.treated_ms, one.treated, one.treated_resent) = (80.0, 1.0, 1.0);
        let nothing = Seen::unknown();
        assert_eq!(lives(0, &seen(49.0, 100.0), false), (0.0, "thin_evidence"));
        assert_eq!(lives(0, &seen(50.0, 100.0), false), (150.0, "learnt"));
        assert_eq!(
            lives(300, &seen(50.0, 84.0), false),
            (150.0, "held_hysteresis")
        );
        assert_eq!(lives(600, &seen(50.0, 101.0), false), (160.0, "learnt"));
        assert_eq!(lives(900, &seen(50.0, 50.0), false), (80.0, "learnt"));
        assert_eq!(lives(1200, &nothing, false), (80.0, "held_thin_evidence"));
        assert_eq!(lives(1200, &vain, true), (80.0, "held_incomplete_input"));
        // As much is lost of those beside them; one that was sent again is no verdict.
        assert_eq!(lives(1200, &lossy, false), (80.0, "held_hysteresis"));
        assert_eq!(lives(1200, &one, false), (80.0, "held_hysteresis"));
        // Too short, and corrected: what the shorter one did is not held against the longer one.
        assert_eq!(lives(1200, &slower, false), (150.0, "learnt"));
        assert_eq!(lives(1500, &slower, false), (150.0, "held_hysteresis"));
        assert_eq!(lives(1800, &vain, false), (80.0, "learnt"));
        assert_eq!(lives(2100, &vain, false), (0.0, "spurious"));
        assert_eq!(lives(5699, &vain, false), (0.0, "held_spurious"));
        assert_eq!(lives(5700, &vain, false), (80.0, "learnt"));
        assert_eq!(lives(6000, &vain, false), (0.0, "spurious"));
        assert_eq!(lives(13_199, &vain, false), (0.0, "held_spurious"));
        assert_eq!(lives(13_200, &seen(50.0, 660.0), false), (990.0, "learnt"));
        assert_eq!(lives(13_500, &seen(50.0, 661.0), false), (0.0, "slow_path"));
        assert_eq!(lives(14_400, &seen(50.0, 1.0), false), (50.0, "learnt"));
        assert_eq!(lives(17_999, &nothing, false), (50.0, "held_thin_evidence"));
        assert_eq!(lives(18_000, &nothing, false), (0.0, "expired"));
        assert_eq!(state.hold_until, ROUND + 13_200);
        let (forgotten, _) = after(ROUND + 13_200 + DAY_S, &state, &nothing, false);
        assert_eq!((forgotten.hold_until, forgotten.hold_s), (0, 0));
    }

    #[test]
    fn an_override_precedes_the_rules_and_what_it_does_is_judged() {
        let mut vain = seen(1000.0, 30.0);
        vain.treated_ms = 60.0;
        (vain.treated, vain.treated_resent) = (900.0, 300.0);
        (vain.control, vain.control_resent) = (100.0, 2.0);
        let word = Override {
            handshake_timeout_ms: 60.0,
            copied_bytes: f64::NAN,
        };
        let mut row = Row {
            seen: seen(1000.0, 100.0),
            before: State::zeros(),
            decided: ROUND - 300,
            word: Some(word),
            is_frozen: false,
        };
        let (first, shown) = step(ROUND, &policy(), &row);
        assert_eq!(first.handshake_timeout_ms, 60.0);
        let names = [shown.reason, shown.copies_reason].map(|one| Reason::ALL[one as usize].0);
        assert_eq!(names, ["override", "off"]);
        // Without harm nothing is left of it, whether there is evidence or not.
        let thin = after(ROUND + 300, &first, &Seen::unknown(), false);
        assert_eq!(
            (thin.0.handshake_timeout_ms, thin.1),
            (0.0, "thin_evidence")
        );
        let frozen = after(ROUND + 300, &first, &seen(1000.0, 100.0), true);
        assert_eq!(
            (frozen.0.handshake_timeout_ms, frozen.1),
            (0.0, "thin_evidence")
        );
        (row.before, row.seen) = (first, vain);
        let (second, _) = step(ROUND + 300, &policy(), &row);
        assert_eq!(second.handshake_timeout_ms, 60.0);
        let (third, reason) = after(ROUND + 600, &second, &seen(1000.0, 100.0), false);
        assert_eq!((third.handshake_timeout_ms, reason), (0.0, "held_spurious"));
    }

    proptest! {
        #[test]
        fn it_never_waits_less_than_handshakes_took_nor_longer_than_the_kernel(
            rtts in prop::collection::vec((0.0..2000.0f64, 0u32..200, 0.0..1.0f64, any::<bool>()), 1..20)
        ) {
            let mut state = State::zeros();
            for (at, (rtt_ms, handshakes, share, is_frozen)) in rtts.into_iter().enumerate() {
                let mut shown = seen(f64::from(handshakes), rtt_ms);
                shown.treated_ms = 1000.0;
                (shown.treated, shown.treated_resent) = (90.0, (90.0 * share).round());
                shown.control = 10.0;
                let round = ROUND + 300 * at as i64;
                let (next, _) = after(round, &state, &shown, is_frozen);
                let timeout = next.handshake_timeout_ms;
                prop_assert!(timeout == 0.0 || (50.0..1000.0).contains(&timeout));
                if !is_frozen && handshakes >= 50 && timeout > 0.0 {
                    prop_assert!(timeout >= rtt_ms);
                }
                let (again, _) = after(round, &next, &shown, true);
                prop_assert!(again.handshake_timeout_ms <= timeout);
                state = next;
            }
        }
    }
}
