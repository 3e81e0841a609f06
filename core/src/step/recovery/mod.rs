//! Recovery of handshakes: the time after which a path's lost SYN or SYN-ACK is sent again.
//!
//! The kernel waits a second (RFC 6298, 2.1), because it knows nothing of the path. The path's earlier handshakes do. In the
//! order in which they act:
//!
//! 1. **harm**: clearly more of the handshakes with the path's timeout were sent again than of those beside them that kept
//!    the kernel's. What is lost is lost with both, so the rest was sent in vain. Nothing is given for a time, which doubles;
//! 2. **target**: a high quantile of the handshakes' round trips, and a margin. A path that is so slow that little is left to
//!    gain gets nothing;
//! 3. **calm**: a longer target acts at once, a shorter one only where it is worth a change;
//! 4. without evidence the value stays until `ttl_s` after the last.

mod rows;

use super::chance::lower_bound;
use super::columns::ColumnMut;
use super::round::{Part, Paths, Row};
use super::words::reasons;
use crate::bundle::MIN_HANDSHAKE_TIMEOUT_MS;

pub use self::rows::{Decided, Override, Seen, State};

/// Milliseconds: targets are multiples, about the tick of a kernel's timers.
const STEP_MS: f64 = 10.0;
/// Longest hold, seconds.
const DAY_S: i64 = 86_400;

/// What the operator asks of recovery.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Policy {
    /// Section `recovery`.
    pub recovery: Recovery,
}

/// Section `recovery`; the meaning of each key stands in policy.yaml.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Recovery {
    pub min_connections: f64,
    pub margin: f64,
    pub most_ms: f64,
    pub hysteresis: f64,
    pub spurious_share: f64,
    pub hold_s: i64,
    pub ttl_s: i64,
}

/// What a decision does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Action {
    None,
    Set,
    Withdraw,
}

reasons! {
    /// By the path's own handshakes.
    Learnt "learnt" "the round trips of the path's handshakes, recovery.margin above them",
    /// A shorter one is not worth a change.
    HeldHysteresis "held_hysteresis" "recovery.hysteresis",
    /// More is sent again in vain than may.
    Spurious "spurious" "recovery.spurious_share: handshakes with the path's timeout are sent again more often than others",
    /// It lately was.
    HeldSpurious "held_spurious" "recovery.hold_s since more was sent again in vain than may",
    /// Nothing to gain.
    SlowPath "slow_path" "recovery.most_ms: the path's handshakes take nearly as long as the kernel waits",
    /// Too few handshakes in the last rounds.
    HeldThinEvidence "held_thin_evidence" "recovery.min_connections, then recovery.ttl_s",
    /// Too little of the round arrived.
    HeldIncompleteInput "held_incomplete_input"
        "completeness: too little of the round arrived, the last decisions stay in force",
    /// The evidence is too old.
    Expired "expired" "recovery.ttl_s",
    /// There never was any.
    ThinEvidence "thin_evidence" "recovery.min_connections",
}

/// Timeouts of handshakes, as a part of a decision.
#[derive(Debug)]
pub enum Handshakes {}

impl Part for Handshakes {
    type Policy = Policy;
    type Seen = Seen;
    type State = State;
    type Override = Override;
    type Decided = Decided;
    const ACTIONS: &'static [&'static str] = &["none", "set", "withdraw"];
    const REASONS: &'static [(&'static str, &'static str)] = Reason::ALL;

    fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
        paths.write::<Self>(out, |_, row| step(round, &policy.recovery, row));
    }
}

/// Decides a path's timeout: the state that this round leaves, and why.
fn step(round: i64, law: &Recovery, row: &Row<Handshakes>) -> (State, Decided) {
    let before = &row.before;
    let mut after = before.clone();
    let (timeout_ms, reason) = found(round, law, row, &mut after);
    after.handshake_timeout_ms = timeout_ms;
    let action = if timeout_ms > 0.0 {
        Action::Set
    } else if before.handshake_timeout_ms > 0.0 {
        Action::Withdraw
    } else {
        Action::None
    };
    let expires_at = match after.last_evidence {
        0 => 0,
        seen => seen + law.ttl_s,
    };
    let decided = Decided {
        action: f64::from(action as u8),
        reason: f64::from(reason as u8),
        expires_at,
    };
    (after, decided)
}

/// The timeout, 0 for the kernel's, and why; writes what is remembered beside it.
fn found(round: i64, law: &Recovery, row: &Row<Handshakes>, after: &mut State) -> (f64, Reason) {
    let (seen, before) = (&row.seen, &row.before);
    let in_use = before.handshake_timeout_ms;
    if !row.is_frozen && in_use > 0.0 && is_spurious(law, seen) {
        // A hold that begins within a day of the last one is twice as long.
        let is_again = before.hold_until > 0 && round < before.hold_until + DAY_S;
        let longer = if is_again { 2 * before.hold_s } else { 0 };
        after.hold_s = longer.max(law.hold_s).min(DAY_S);
        after.hold_until = round + after.hold_s;
        return (0.0, Reason::Spurious);
    }
    if round < before.hold_until {
        return (0.0, Reason::HeldSpurious);
    }
    let is_measured = !row.is_frozen
        && seen.connections >= law.min_connections
        && seen.handshake_rtt_us.is_finite();
    if !is_measured {
        let is_alive = round < before.last_evidence + law.ttl_s;
        return match (in_use > 0.0, is_alive) {
            (true, true) if row.is_frozen => (in_use, Reason::HeldIncompleteInput),
            (true, true) => (in_use, Reason::HeldThinEvidence),
            (true, false) => (0.0, Reason::Expired),
            (false, _) => (0.0, Reason::ThinEvidence),
        };
    }
    after.last_evidence = round;
    let target = law.target_ms(seen.handshake_rtt_us);
    if target > law.most_ms {
        (0.0, Reason::SlowPath)
    } else if target <= in_use && target > in_use * (1.0 - law.hysteresis) {
        (in_use, Reason::HeldHysteresis)
    } else {
        (target, Reason::Learnt)
    }
}

/// Says whether clearly more is sent again in vain than may: what is sent again of those with the path's timeout, less what is
/// of those beside them, each as far as it is sure.
fn is_spurious(law: &Recovery, seen: &Seen) -> bool {
    let treated = lower_bound(seen.treated_resent, seen.treated);
    let control = 1.0 - lower_bound(seen.control - seen.control_resent, seen.control);
    treated > control + law.spurious_share
}

impl Recovery {
    /// Gives the timeout of handshakes that take so long, milliseconds.
    fn target_ms(&self, rtt_us: f64) -> f64 {
        let target = (rtt_us / 1000.0 * self.margin / STEP_MS).ceil() * STEP_MS;
        target.max(f64::from(MIN_HANDSHAKE_TIMEOUT_MS))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::step::columns::Columns;

    const ROUND: i64 = 1_800_000_000;

    fn law() -> Recovery {
        Recovery {
            min_connections: 50.0,
            margin: 1.5,
            most_ms: 700.0,
            hysteresis: 0.2,
            spurious_share: 0.01,
            hold_s: 3600,
            ttl_s: 3600,
        }
    }

    fn seen(connections: f64, rtt_ms: f64) -> Seen {
        Seen {
            connections,
            handshake_rtt_us: 1000.0 * rtt_ms,
            ..Seen::zeros()
        }
    }

    fn after(round: i64, before: &State, seen: &Seen, is_frozen: bool) -> (State, &'static str) {
        let row = Row {
            seen: seen.clone(),
            before: before.clone(),
            decided: round - 300,
            word: None,
            is_frozen,
        };
        let (after, decided) = step(round, &law(), &row);
        let (name, _) = Reason::ALL
            .iter()
            .enumerate()
            .find(|(number, _)| decided.reason == *number as f64)
            .map(|(_, reason)| *reason)
            .unwrap();
        (after, name)
    }

    #[test]
    fn it_follows_a_path_through_its_life() {
        let mut state = State::zeros();
        let mut lives = |round: i64, seen: &Seen, frozen: bool| {
            let (next, reason) = after(ROUND + round, &state, seen, frozen);
            state = next;
            (state.handshake_timeout_ms, reason)
        };
        let mut vain = seen(1000.0, 100.0);
        (vain.treated, vain.treated_resent) = (900.0, 300.0);
        (vain.control, vain.control_resent) = (100.0, 2.0);
        let mut lossy = vain.clone();
        lossy.control_resent = 33.0;
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
        assert_eq!(lives(1200, &lossy, false), (150.0, "learnt"));
        assert_eq!(lives(1500, &vain, false), (0.0, "spurious"));
        assert_eq!(lives(5099, &vain, false), (0.0, "held_spurious"));
        assert_eq!(lives(5100, &vain, false), (150.0, "learnt"));
        assert_eq!(lives(5400, &vain, false), (0.0, "spurious"));
        assert_eq!(
            lives(12_599, &seen(50.0, 100.0), false),
            (0.0, "held_spurious")
        );
        assert_eq!(lives(12_600, &seen(50.0, 467.0), false), (0.0, "slow_path"));
        assert_eq!(lives(12_900, &seen(50.0, 1.0), false), (50.0, "learnt"));
        assert_eq!(lives(16_499, &nothing, false), (50.0, "held_thin_evidence"));
        assert_eq!(lives(16_500, &nothing, false), (0.0, "expired"));
    }

    proptest! {
        #[test]
        fn it_never_waits_less_than_handshakes_took_nor_longer_than_the_kernel(
            rtts in prop::collection::vec((0.0..2000.0f64, 0u32..200, 0.0..1.0f64, any::<bool>()), 1..20)
        ) {
            let mut state = State::zeros();
            for (at, (rtt_ms, connections, share, is_frozen)) in rtts.into_iter().enumerate() {
                let mut shown = seen(f64::from(connections), rtt_ms);
                (shown.treated, shown.treated_resent) = (90.0, (90.0 * share).round());
                shown.control = 10.0;
                let round = ROUND + 300 * at as i64;
                let (next, _) = after(round, &state, &shown, is_frozen);
                let timeout = next.handshake_timeout_ms;
                prop_assert!(timeout == 0.0 || (50.0..=700.0).contains(&timeout));
                if !is_frozen && connections >= 50 && timeout > 0.0 {
                    prop_assert!(timeout >= rtt_ms);
                }
                let (again, _) = after(round, &next, &shown, true);
                prop_assert!(again.handshake_timeout_ms <= timeout);
                state = next;
            }
        }
    }
}
