//! Choice of the way that enforces a bundle on this host.

use std::collections::BTreeSet;

use super::run::Run;
use crate::bundle::{Bundle, Otherwise, Way};
use crate::enforce::routes::{Destination, NotEnforced, Plan, encode};
use crate::kernel::congestion_problem;
use crate::state::EnforcedBy;

/// Way that enforces a bundle on this host, and why it is not what the bundle asks for first.
pub(super) fn enforced_by(run: &Run<'_>, bundle: &Bundle) -> (EnforcedBy, Option<String>) {
    if bundle.enforce.by == Way::Routes {
        return (EnforcedBy::Routes, None);
    }
    let Some(problem) = run.program.problem() else {
        return (EnforcedBy::Bpf, None);
    };
    let (by, instead) = match bundle.enforce.otherwise {
        Otherwise::Routes => (EnforcedBy::Routes, "routes"),
        Otherwise::Default => (EnforcedBy::Nothing, "the kernel's default"),
    };
    (by, Some(format!("not by bpf but {instead}: {problem}")))
}

/// Way that enforces a bundle on this host, and what it leaves.
pub(super) struct Chosen {
    pub(super) by: EnforcedBy,
    pub(super) destinations: Vec<Destination>,
    pub(super) not_enforced: NotEnforced,
    /// Why it is not what the bundle asks for first, or what of it stays undone.
    pub(super) notes: Vec<String>,
}

impl Chosen {
    pub(super) fn of(run: &Run<'_>, bundle: &Bundle) -> Self {
        let (by, why) = enforced_by(run, bundle);
        let mut notes = Vec::from_iter(why);
        if by == EnforcedBy::Bpf {
            let names = bundle
                .entries
                .iter()
                .filter_map(|entry| entry.congestion.as_ref());
            let names: BTreeSet<&str> = names.map(|choice| choice.algorithm.as_str()).collect();
            notes.extend(names.into_iter().filter_map(congestion_problem));
        }
        let (destinations, not_enforced) = by_routes(bundle, by);
        Self {
            by,
            destinations,
            not_enforced,
            notes,
        }
    }
}

/// Part of a bundle that routes are to carry, and what is not enforced.
pub(super) fn by_routes(bundle: &Bundle, by: EnforcedBy) -> (Vec<Destination>, NotEnforced) {
    match by {
        EnforcedBy::Routes => encode(bundle),
        EnforcedBy::Bpf => (Vec::new(), NotEnforced::nothing()),
        EnforcedBy::Nothing => {
            let program = bundle.entries.len();
            let left = NotEnforced {
                program,
                ..NotEnforced::nothing()
            };
            (Vec::new(), left)
        }
    }
}

/// Adds the destinations that the kernel's own lookup does not find by our routes. What is committed stands, whether or not
/// it can be looked up.
pub(super) fn name_unreached(run: &Run<'_>, plan: &mut Plan, notes: &mut Vec<String>) {
    match run.routing.unreached(&plan.routes) {
        Ok(unreached) => plan.refused.extend(unreached),
        Err(error) => notes.push(format!(
            "destinations could not be looked up, so `status` says which are reached: {error}"
        )),
    }
}
