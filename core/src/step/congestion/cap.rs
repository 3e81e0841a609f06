//! The cap: so many prefixes a round and a PoP, and so many in all, the worst first.

use super::{Action, Algorithms, Case, Policy};
use crate::step::round::{BLOCK, Paths};

/// A prefix that its evidence would have chosen.
struct Candidate {
    path: usize,
    low_excess: f64,
    rate: f64,
}

/// Says of each path whether the cap leaves room for it, if it is to be chosen. Paths are read once more for it: what they
/// ask for depends on none but themselves. Between equals their order decides, which is the keys'.
pub(super) fn room(round: i64, policy: &Policy, paths: &Paths<'_>) -> Vec<bool> {
    let law = &policy.congestion;
    let pops = paths.groups.iter().max().map_or(0, |&most| most as usize) + 1;
    let mut in_use = vec![0; pops];
    let mut candidates: Vec<Vec<Candidate>> = Vec::new();
    candidates.resize_with(pops, Vec::new);
    for first in (0..paths.groups.len()).step_by(BLOCK) {
        for (path, row) in (first..).zip(paths.block::<Algorithms>(first)) {
            let case = Case::new(round, policy, &row);
            let pop = paths.groups[path] as usize;
            match case.asks().0 {
                Action::Keep => in_use[pop] += 1,
                Action::Enter => candidates[pop].push(Candidate {
                    path,
                    low_excess: case.history.low_excess,
                    rate: row.seen.rate,
                }),
                Action::None | Action::Leave => {}
            }
        }
    }
    let mut found = vec![false; paths.groups.len()];
    for (mut own, in_use) in candidates.into_iter().zip(in_use) {
        own.sort_by(|one, other| {
            let by_excess = other.low_excess.total_cmp(&one.low_excess);
            by_excess.then(one.rate.total_cmp(&other.rate))
        });
        let most = law.max_new.min(law.max_selected.saturating_sub(in_use));
        for one in own.iter().take(most) {
            found[one.path] = true;
        }
    }
    found
}
