//! A round: the steps of all paths. A path depends on no other than those of its group.

use super::columns::{Column, ColumnMut, Columns, columns};
use super::evidence::Seen;
use super::group::Group;
use super::losses::Flights;
use super::policy::Policy;
use super::reason::Reason;
use super::state::{Left, State};
use super::values::Values;
use super::{At, Case, Read, judge, step};

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
    /// What a decision shows beside the state that it leaves; rates in bytes/s.
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
        /// What the evidence asks for of a single connection, before it was tried.
        proved_share: f64 as "f4",
        /// What it asks for of all that start at once.
        proved_path: f64 as "f4",
        /// Paths of the group that have evidence of their own.
        group_units: f64 as "u4",
        /// Low quantile of what they prove.
        group_rate: f64 as "f4",
        /// Instant at which the values expire.
        expires_at: i64 as "u4",
    }
}

/// What is known of a round's paths, as columns. Rows of another table are named by their number, -1 is none.
#[derive(Debug)]
pub struct Paths<'a> {
    /// Columns of [`Seen`].
    pub seen: Vec<Column<'a>>,
    /// Row of `seen` that is each path's.
    pub at_seen: &'a [i64],
    /// Columns of [`State`], then of [`Left`].
    pub before: Vec<Column<'a>>,
    /// Row of `before` that is each path's.
    pub at_before: &'a [i64],
    /// Columns of [`Override`].
    pub overrides: Vec<Column<'a>>,
    /// Row of `overrides` that is each path's.
    pub at_override: &'a [i64],
    /// Number of each path's group; 0 is none.
    pub groups: &'a [u32],
    /// Paths of which too little arrived: what was decided stands until it expires.
    pub frozen: &'a [u8],
}

/// One path's rows.
struct Row<'a> {
    at: At<'a>,
    seen: Seen,
    before: State,
    word: Option<Override>,
}

/// Paths that are read at once: their rows stay in a processor's cache.
const BLOCK: usize = 256;

impl Paths<'_> {
    /// The rows of the paths from this one on.
    fn block<'a>(
        &self,
        first: usize,
        round: i64,
        policy: &'a Policy,
    ) -> impl Iterator<Item = Row<'a>> {
        let count = BLOCK.min(self.groups.len() - first);
        let range = first..first + count;
        let (states, left) = self.before.split_at(State::COLUMNS.len());
        let at_before = &self.at_before[range.clone()];
        let at_override = self.at_override[range.clone()].to_vec();
        let mut seen = vec![Seen::unknown(); count];
        Seen::read(&self.seen, &self.at_seen[range.clone()], &mut seen);
        let mut before = vec![State::none(); count];
        State::read(states, at_before, &mut before);
        let mut decided = vec![Left::zeros(); count];
        Left::read(left, at_before, &mut decided);
        let mut words = vec![Override::zeros(); count];
        Override::read(&self.overrides, &at_override, &mut words);
        let frozen = self.frozen[range].to_vec();
        let rows = seen
            .into_iter()
            .zip(before)
            .zip(decided)
            .zip(words)
            .zip(at_override)
            .zip(frozen);
        rows.map(
            move |(((((seen, before), decided), word), at_override), frozen)| Row {
                at: At {
                    round,
                    decided: decided.round,
                    policy,
                    is_frozen: frozen != 0,
                    is_overridden: at_override >= 0,
                },
                seen,
                before,
                word: (at_override >= 0).then_some(word),
            },
        )
    }
}

/// Decides a round, seconds since the epoch: writes each path's state and decision, the columns of [`State`] and then of
/// [`Decided`].
pub fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
    let groups = groups(round, policy, paths);
    let (states, decisions) = out.split_at_mut(State::COLUMNS.len());
    for first in (0..paths.groups.len()).step_by(BLOCK) {
        let of = paths.groups[first..]
            .iter()
            .map(|&group| &groups[group as usize]);
        let (after, decided): (Vec<State>, Vec<Decided>) = paths
            .block(first, round, policy)
            .zip(of)
            .map(|(row, group)| decide_one(&row, group))
            .unzip();
        State::write(&after, states, first);
        Decided::write(&decided, decisions, first);
    }
}

fn decide_one(row: &Row<'_>, group: &Group) -> (State, Decided) {
    let (after, outcome) = step(&row.at, &row.seen, &row.before, group, row.word.as_ref());
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

/// What each group's paths prove and lose together, by the groups' numbers. Paths are read once more for it: to keep what
/// they show takes more memory than a round.
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
            .block(first, round, policy)
            .zip(of)
            .filter(|(_, group)| **group != 0)
        {
            let case = Case::new(&row.at, &row.seen, &row.before);
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

const _: () = assert!(Reason::ALL.len() < 256);
