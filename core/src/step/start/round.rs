//! A round of starts. A path depends on no other than those of its group.

use super::evidence::Seen;
use super::group::Group;
use super::losses::Flights;
use super::policy::Policy;
use super::reason::{Action, Reason};
use super::state::State;
use super::values::Values;
use super::{At, Case, Read, judge, step};
use crate::step::columns::{ColumnMut, Instant, columns};
use crate::step::round::{BLOCK, Part, Paths, Row};

columns! {
    /// An operator's word for how a path's connections start; 0 for what it does not say.
    #[derive(Clone, Debug)]
    pub struct Override {
        /// Segments; 0 is the kernel's default.
        window: f64 as "u4",
        /// Bytes/s of each connection.
        connection_rate: f64 as "f8",
        /// Bytes/s of all that start at once.
        path_rate: f64 as "f8",
    }
}

impl Override {
    /// Its values. A window without rates gets the rate that carries it in a round trip, where that is known: else it
    /// would leave as a burst.
    pub(super) fn values(&self, case: &Case) -> Values {
        let (rtt_us, law) = (case.rtt_us, &case.policy.start);
        let carried = if rtt_us.is_finite() && rtt_us > 0.0 && self.window > 0.0 {
            (law.pace_gain * self.window * case.seen.segment() / rtt_us * 1e6).floor()
        } else {
            0.0
        };
        let rate = if self.connection_rate > 0.0 {
            self.connection_rate
        } else {
            carried
        };
        Values {
            window: self.window,
            rate,
            path: if self.path_rate > 0.0 {
                self.path_rate
            } else {
                rate
            },
        }
    }
}

columns! {
    /// Output of a decision beside the state that it leaves; rates in bytes/s.
    #[derive(Clone, Debug)]
    pub struct Decided {
        /// Number of the action.
        action: f64 as "u1",
        /// Number of the reason.
        reason: f64 as "u1",
        /// Window in use before.
        previous_window: f64 as "u4",
        /// Rate of each connection before.
        previous_connection_rate: f64 as "f8",
        /// Rate of a single connection that the evidence asks for, before it was tried.
        proved_share: f64 as "f4",
        /// The same of all that start at once.
        proved_path: f64 as "f4",
        /// Paths of the group that have evidence of their own.
        group_units: f64 as "u4",
        /// Low quantile of what they prove.
        group_rate: f64 as "f4",
        /// Instant at which the values expire.
        expires_at: Instant as "u4",
    }
}

/// Starts of paths, as a part of a decision.
#[derive(Debug)]
pub enum Starts {}

impl Part for Starts {
    type Policy = Policy;
    type Seen = Seen;
    type State = State;
    type Override = Override;
    type Decided = Decided;
    const ACTIONS: &'static [&'static str] = Action::ALL;
    const REASONS: &'static [(&'static str, &'static str)] = Reason::ALL;

    fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
        let groups = groups(round, policy, paths);
        paths.write::<Self>(out, |path, row| {
            decide_one(round, policy, row, &groups[paths.groups[path] as usize])
        });
    }
}

fn at<'a>(round: i64, policy: &'a Policy, row: &Row<Starts>) -> At<'a> {
    At {
        round,
        decided: row.decided,
        policy,
        is_frozen: row.is_frozen,
        is_overridden: row.word.is_some(),
    }
}

fn decide_one(round: i64, policy: &Policy, row: &Row<Starts>, group: &Group) -> (State, Decided) {
    let at = at(round, policy, row);
    let (after, outcome) = step(&at, &row.seen, &row.before, group, row.word.as_ref());
    let decided = Decided {
        action: f64::from(outcome.action as u8),
        reason: f64::from(outcome.reason as u8),
        previous_window: row.before.window,
        previous_connection_rate: row.before.connection_rate,
        proved_share: outcome.proved_share,
        proved_path: outcome.proved_path,
        group_units: group.paths,
        group_rate: group.low.exp2(),
        expires_at: outcome.expires_at,
    };
    (after, decided)
}

/// Groups by number: what their paths prove and lose together. Paths are read once more for it: to
/// keep what they show takes more memory than a round.
fn groups(round: i64, policy: &Policy, paths: &Paths<'_>) -> Vec<Group> {
    let law = &policy.start;
    let count = paths.groups.iter().max().map_or(0, |&most| most as usize) + 1;
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); count];
    let mut borrowers = vec![Flights::default(); count];
    for first in (0..paths.groups.len()).step_by(BLOCK) {
        let of = &paths.groups[first..paths.groups.len().min(first + BLOCK)];
        if of.iter().all(|&group| group == 0) {
            continue;
        }
        for (row, &group) in paths
            .block::<Starts>(first)
            .zip(of)
            .filter(|(_, group)| **group != 0)
        {
            let at = at(round, policy, &row);
            let case = Case::new(&at, &row.seen, &row.before);
            let mut after = row.before.clone();
            let read = Read::new(&case, &mut after);
            if read.own.is_enough {
                shares[group as usize].push(read.own.log2);
            }
            if let Some(lent) = judge::lent(&case, &read.counts, &after) {
                borrowers[group as usize].add(lent);
            }
        }
    }
    let of = |(mut own, lent): (Vec<f64>, Flights)| Group::of(&mut own, law.group_quantile, lent);
    shares.into_iter().zip(borrowers).map(of).collect()
}
