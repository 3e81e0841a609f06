//! Starts: what a round's evidence makes of how a path's connections start, where the edge paces.
//!
//! A path is a source PoP, a destination (a PoP, or a client prefix) and an IP version. [`step`] is a pure function of
//! what the rounds before left of it ([`State`]), what this round showed ([`Seen`]) and the policy. A path is in one of
//! four states, which its values say:
//!
//! - **unknown**: it starts with the kernel's default; nothing, or too little, is proved.
//! - **on trial**: a randomised share of its connections starts with other values.
//! - **in use**: all connections start with values that were judged on trial. Others may be on trial beside them.
//! - **held**: something failed lately. Until the hold ends nothing near it is tried; after it, by halves ([`ceiling`]).
//!
//! The rules act in this order, each in a file of its own:
//!
//! 1. **count** ([`counts`]): first flights with what is in use, on trial, and with the default; what they lose
//!    ([`losses`]), and whether that is harm.
//! 2. **prove** ([`estimate`]): what the path carries, from trains ([`trains`]) and from connections that met it. Thin
//!    evidence borrows from its group ([`group`]). [`others`]: whether something else is on it.
//! 3. **judge** ([`judge`]): what first flights say of the values on trial; [`trial`]: what becomes of them.
//! 4. **fall** at once ([`falls`]): to what is proved, to what was carried, after harm.
//! 5. **rise** by trials only ([`rises`]), calmly: hysteresis, a wait for evidence, damping.
//!
//! An operator's override precedes all of it.

mod ceiling;
mod counts;
mod estimate;
mod evidence;
mod falls;
mod group;
mod judge;
mod leave;
mod losses;
mod others;
mod policy;
mod reason;
mod rises;
mod round;
mod rules;
mod state;
mod trains;
mod trial;
mod values;

#[cfg(test)]
mod tests;

use self::ceiling::Ceiling;
use self::counts::Counts;
use self::estimate::{Own, Proved};
use self::group::Group;
use self::judge::Verdict;
use self::leave::Next;

pub use self::evidence::{Seen, USUAL_MSS};
pub use self::losses::brakes;
pub use self::policy::{Enforce, Policy, Start};
pub use self::reason::{Action, Reason};
pub use self::round::{Decided, Override, Starts};
pub use self::rules::{Rule, Rules};
pub use self::state::State;
pub use self::values::{Values, size};

/// Connections of a thousand that show what the default loses, in rounds one after the other.
pub const BESIDE: f64 = 200.0;
/// Rounds with evidence that are counted.
const MOST_ROUNDS: f64 = 255.0;

/// One path in one round: what a step reads.
#[derive(Clone, Copy)]
struct Case<'a> {
    /// The round, seconds since the epoch.
    round: i64,
    /// The round of the last decision.
    decided: i64,
    policy: &'a Policy,
    seen: &'a Seen,
    before: &'a State,
    /// Too little of the round arrived: what was decided stands until it expires.
    is_frozen: bool,
    /// An operator says what is in use.
    is_overridden: bool,
    /// Earlier evidence has not expired.
    is_alive: bool,
    /// Lowest round trip, or the one at which what is in use was proved.
    rtt_us: f64,
    /// Values in use, within the policy's bounds of now.
    in_use: Values,
    /// Flap damping's penalty now, and whether it holds rises back.
    penalty: f64,
    is_suppressed: bool,
    /// A trial may begin: enough is known, of input that is complete.
    may_begin: bool,
}

impl<'a> Case<'a> {
    /// Says whether a rule is in force.
    fn on(&self, rule: Rule) -> bool {
        self.policy.rules.on(rule)
    }

    fn new(at: &At<'a>, seen: &'a Seen, before: &'a State) -> Self {
        let (law, damping) = (&at.policy.start, &at.policy.damping);
        // An operator's values were never judged: once the override has ended the path begins anew.
        let is_own = before.connection_rate > 0.0 && (!before.overridden || at.is_overridden);
        let penalty = damping.decayed(before.penalty, at.round - at.decided);
        Self {
            round: at.round,
            decided: at.decided,
            policy: at.policy,
            seen,
            before,
            is_frozen: at.is_frozen,
            is_overridden: at.is_overridden,
            is_alive: before.last_evidence > 0 && at.round < before.last_evidence + law.ttl_s,
            rtt_us: if seen.min_rtt_us > 0.0 {
                seen.min_rtt_us
            } else {
                before.learnt_rtt_us
            },
            in_use: if is_own {
                before.used().scaled(1.0, law.cmax)
            } else {
                Values::NOTHING
            },
            penalty,
            is_suppressed: before.suppressed
                && penalty >= damping.reuse_below
                && at.policy.rules.on(Rule::Damping),
            may_begin: false,
        }
    }
}

/// Where and when a step is made.
#[derive(Clone, Copy)]
struct At<'a> {
    round: i64,
    decided: i64,
    policy: &'a Policy,
    is_frozen: bool,
    is_overridden: bool,
}

/// Evidence of a path by itself, before its group is asked.
struct Read {
    counts: Counts,
    own: Own,
}

impl Read {
    fn new(case: &Case, after: &mut State) -> Self {
        let counts = Counts::read(case, after);
        let own = Own::read(case, &counts, after);
        Self { counts, own }
    }
}

/// Findings of the rules about a path.
struct Findings {
    counts: Counts,
    verdict: Verdict,
    proved: Proved,
    /// Values that the evidence asks for, and what the path carries; nothing where that is unknown.
    target: Values,
    most: Values,
    /// The values in use did harm: by losses, or by an edge's brake while nothing is on trial.
    harm: bool,
    /// Time of 50 and 100 kB with the default, microseconds.
    default_us: [f64; 2],
    share_log2: f64,
    path_log2: f64,
}

impl Findings {
    /// Says whether 50 or 100 kB would take longer with these values than with the default.
    fn is_slower(&self, case: &Case, values: Values) -> bool {
        case.on(Rule::NeverSlower)
            && values::is_slower(values, self.default_us, case.rtt_us, case.seen.segment())
    }
}

/// Decision of a step, beside the state that it leaves.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    action: Action,
    reason: Reason,
    proved_share: f64,
    proved_path: f64,
    expires_at: i64,
}

/// Decides how a path's connections start: the state that this round leaves, and why.
fn step(
    at: &At,
    seen: &Seen,
    before: &State,
    group: &Group,
    word: Option<&Override>,
) -> (State, Outcome) {
    let law = &at.policy.start;
    let mut case = Case::new(at, seen, before);
    let mut after = before.clone();
    let Read { counts, own } = Read::new(&case, &mut after);
    let verdict = judge::judge(&case, &counts, group, &after);
    if case.on(Rule::Shared) && others::shows_others(&case, &counts, verdict, &after) {
        after.shared_at = at.round;
    }
    let is_shared = after.shared_at > 0 && at.round < after.shared_at + law.ttl_s;
    let proved = estimate::prove(&case, &counts, &own, group, is_shared, &mut after);

    let is_evident = (proved.is_measured || proved.is_borrowed) && !at.is_frozen;
    if is_evident {
        after.last_evidence = at.round;
    }
    let is_living = after.last_evidence > 0 && at.round < after.last_evidence + law.ttl_s;
    let measured = if case.is_alive {
        before.measured_rounds
    } else {
        0.0
    };
    let rounds = (measured + f64::from(u8::from(is_evident))).min(MOST_ROUNDS);
    case.may_begin = is_living
        && !at.is_frozen
        && !at.is_overridden
        && (rounds >= law.duty_rounds || case.in_use.is_some());

    let target = size(proved.share, proved.path, case.rtt_us, seen, law);
    let most = size(proved.carries, proved.carries, case.rtt_us, seen, law);
    let is_braked = counts.braked && before.trial_window <= 0.0;
    let found = Findings {
        harm: case.in_use.is_some() && (counts.harm || is_braked),
        counts,
        verdict,
        proved,
        target,
        most,
        default_us: [after.default_t50_us, after.default_t100_us],
        share_log2: after.share_log2,
        path_log2: after.path_log2,
    };
    let moved = falls::fall(&case, &found);
    let ceiling = Ceiling::after(&case, &found, &moved);
    let tried = rises::rise(&case, &found, &moved, ceiling);
    let next = Next {
        moved,
        tried,
        ceiling,
        rounds,
        is_living,
        is_shared,
    };
    let outcome = next.leave(&case, &found, word, &mut after);
    (after, outcome)
}

/// Log2 of what is positive and finite, else NaN. What a broken row claims beyond any entry's rate is as much as that.
#[expect(clippy::cast_precision_loss, reason = "the bound is exact")]
fn log2_of(rate: f64) -> f64 {
    if rate.is_finite() && rate > 0.0 {
        rate.min(crate::bundle::MAX_RATE as f64).log2()
    } else {
        f64::NAN
    }
}
