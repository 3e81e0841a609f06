//! A round: the steps of all paths, over columns.

use super::columns::{Column, ColumnMut, Columns, Instant, columns};

columns! {
    /// Round of the decision that left a state.
    #[derive(Clone, Debug)]
    pub struct Left {
        /// The round; 0 is none.
        round: Instant as "u4",
    }
}

/// Part of a path's decision: which columns it reads and writes, and how it decides a round.
pub trait Part {
    /// Sections of policy.yaml that it reads.
    type Policy: serde::de::DeserializeOwned + Sync;
    /// A round's evidence of a path.
    type Seen: Columns;
    /// State that a path's decisions leave for the next round.
    type State: Columns;
    /// An operator's word for a path.
    type Override: Columns;
    /// Output of a decision beside the state that it leaves.
    type Decided: Columns;
    /// Names of its actions, in the order of their numbers.
    const ACTIONS: &'static [&'static str];
    /// Its reasons in the order of their numbers, each with its rule.
    const REASONS: &'static [(&'static str, &'static str)];

    /// Decides a round, seconds since the epoch: writes each path's state and decision, the columns of `State` and then
    /// those of `Decided`.
    fn decide(round: i64, policy: &Self::Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]);
}

/// Data of a round's paths as columns. Rows of another table are named by their number, -1 is none.
#[derive(Debug)]
pub struct Paths<'a> {
    /// Columns of the part's `Seen`.
    pub seen: Vec<Column<'a>>,
    /// Row of `seen` that is each path's.
    pub at_seen: &'a [i64],
    /// Columns of the part's `State`, then of [`Left`].
    pub before: Vec<Column<'a>>,
    /// Row of `before` that is each path's.
    pub at_before: &'a [i64],
    /// Columns of the part's `Override`.
    pub overrides: Vec<Column<'a>>,
    /// Row of `overrides` that is each path's.
    pub at_override: &'a [i64],
    /// Number of each path's group; 0 is none.
    pub groups: &'a [u32],
    /// Paths of which too little arrived: what was decided stands until it expires.
    pub frozen: &'a [u8],
}

/// One path's rows.
pub(super) struct Row<P: Part> {
    pub seen: P::Seen,
    pub before: P::State,
    /// Round of the last decision.
    pub decided: i64,
    pub word: Option<P::Override>,
    pub is_frozen: bool,
}

/// Paths that are read at once: their rows stay in a processor's cache.
pub(super) const BLOCK: usize = 256;

impl Paths<'_> {
    /// The rows of the paths from this one on.
    pub(super) fn block<P: Part>(&self, first: usize) -> impl Iterator<Item = Row<P>> {
        let count = BLOCK.min(self.groups.len() - first);
        let range = first..first + count;
        let (states, left) = self.before.split_at(P::State::COLUMNS.len());
        let at_before = &self.at_before[range.clone()];
        let at_override = self.at_override[range.clone()].to_vec();
        let mut seen = vec![P::Seen::unknown(); count];
        P::Seen::read(&self.seen, &self.at_seen[range.clone()], &mut seen);
        let mut before = vec![P::State::zeros(); count];
        P::State::read(states, at_before, &mut before);
        let mut decided = vec![Left::zeros(); count];
        Left::read(left, at_before, &mut decided);
        let mut words = vec![P::Override::zeros(); count];
        P::Override::read(&self.overrides, &at_override, &mut words);
        let frozen = self.frozen[range].to_vec();
        let rows = seen.into_iter().zip(before).zip(decided).zip(words);
        let rows = rows.zip(at_override).zip(frozen);
        rows.map(
            |(((((seen, before), decided), word), at_override), frozen)| Row {
                seen,
                before,
                decided: decided.round,
                word: (at_override >= 0).then_some(word),
                is_frozen: frozen != 0,
            },
        )
    }

    /// Writes what a step makes of each path, by its number and its rows.
    pub(super) fn write<P: Part>(
        &self,
        out: &mut [ColumnMut<'_>],
        step: impl Fn(usize, &Row<P>) -> (P::State, P::Decided),
    ) {
        let (states, decisions) = out.split_at_mut(P::State::COLUMNS.len());
        for first in (0..self.groups.len()).step_by(BLOCK) {
            let (after, decided): (Vec<P::State>, Vec<P::Decided>) = self
                .block::<P>(first)
                .enumerate()
                .map(|(at, row)| step(first + at, &row))
                .unzip();
            P::State::write(&after, states, first);
            P::Decided::write(&decided, decisions, first);
        }
    }
}
