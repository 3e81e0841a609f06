//! What is applied, and how the kernel differs from it.

use super::follow::last_good;
use super::report::{Drift, Status, StatusClaim, refused_list};
use super::survey::{by_routes, survey};
use super::withdraw::TAKEN_AWAY;
use super::{Places, read_clock};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::instant;
use crate::kernel::{Family, Kernel, OUR_RULE, Snapshot, show};
use crate::plan::difference;
use crate::state::{Before, State, Store};

/// What is applied, and how the kernel differs from what that means by the host's routing of this moment.
///
/// Changes nothing.
///
/// # Errors
///
/// [`Error::Refused`] and [`Error::Failed`].
pub fn status(places: &Places) -> Result<Status> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let mut notes = Vec::new();
    let _lock = store.lock(places.lock_wait)?;
    let kernel = Kernel::new(&|| Ok(()));
    let actual = kernel.snapshot()?;
    let mut state = store.state().unwrap_or_else(|damage| {
        notes.push(format!("{damage}; `expire` or `withdraw` clears it"));
        None
    });
    if store.has_intent() {
        notes.push("a run was interrupted; `expire` or the next `apply` repairs it".to_owned());
    }
    let mut wanted = Snapshot::default();
    if let Some(state) = &mut state {
        wanted = judge(&store, &kernel, &clock, state, &mut notes)?;
    }
    let drift = drift(&actual, &wanted);
    let claim = state.as_ref().map(|state| claim(state, &clock));
    let applied = state
        .as_ref()
        .is_some_and(|state| state.claim.withdrawn.is_none());
    let overdue = applied && claim.as_ref().is_some_and(|claim| claim.expired);
    Ok(Status {
        command: "status",
        applied,
        claim,
        routes: actual.routes.len(),
        in_sync: drift.is_empty() && notes.is_empty() && !overdue,
        drift,
        notes,
    })
}

/// What should stand in the kernel; the state learns of a withdrawal that it does not know, and what is refused by now.
fn judge(
    store: &Store,
    kernel: &Kernel<'_>,
    clock: &Clock,
    state: &mut State,
    notes: &mut Vec<String>,
) -> Result<Snapshot> {
    if state.claim.withdrawn.is_none()
        && let Some(withdrawn) = store.later_withdrawal(&state.claim)
    {
        state.routes.clear();
        state.refused.clear();
        state.claim.withdrawn = Some(withdrawn);
    }
    if let Some(withdrawn) = &state.claim.withdrawn {
        if withdrawn.reason.ends_with(TAKEN_AWAY) && !state.claim.expired(clock) {
            notes.push(
                "perhaps nobody wanted that withdrawal; the next `apply` brings the routes back"
                    .to_owned(),
            );
        }
        return Ok(Snapshot::default());
    }
    let planned = last_good(store, &state.claim)
        .and_then(|(bundle, _)| survey(kernel, &by_routes(&bundle).0));
    match planned {
        Ok((plan, _)) => {
            state.refused = plan
                .refused
                .iter()
                .map(|(prefix, why)| (prefix.to_string(), why.clone()))
                .collect();
            Ok(Snapshot::with_rules(plan.routes))
        }
        Err(error @ (Error::Refused { .. } | Error::Damaged(_))) => {
            notes.push(format!(
                "{error}: the copies cannot follow; `follow` or `watch` withdraws them"
            ));
            let recorded = Before {
                routes: state.routes.clone(),
                rules: Vec::new(),
            }
            .snapshot();
            // In an earlier program's words they cannot be compared: then only the rules are.
            let routes = recorded.map_or_else(
                || kernel.snapshot().map(|found| found.routes),
                |found| Ok(found.routes),
            );
            Ok(Snapshot {
                rules: state.families(),
                routes: routes?,
            })
        }
        Err(error) => Err(error),
    }
}

fn drift(actual: &Snapshot, wanted: &Snapshot) -> Vec<Drift> {
    let mut drift = Vec::new();
    for step in difference(&actual.routes, &wanted.routes) {
        let Some(prefix) = step.prefix() else {
            continue;
        };
        let words = |snapshot: &Snapshot| {
            snapshot
                .routes
                .get(prefix)
                .map(|way| show(way, Family::of(prefix)))
        };
        drift.push(Drift {
            prefix: prefix.to_string(),
            wanted: words(wanted),
            found: words(actual),
        });
    }
    for family in Family::BOTH {
        let (is, should) = (
            actual.rules.contains(&family),
            wanted.rules.contains(&family),
        );
        if is != should {
            let rule = || OUR_RULE.to_owned();
            let prefix = format!("IPv{} rule", family.version());
            drift.push(Drift {
                prefix,
                wanted: should.then(rule),
                found: is.then(rule),
            });
        }
    }
    drift
}

fn claim(state: &State, clock: &Clock) -> StatusClaim {
    let claim = &state.claim;
    StatusClaim {
        edge: claim.edge.clone(),
        pop: claim.pop.clone(),
        round: instant::show(claim.round),
        policy_version: claim.policy_version.clone(),
        digest: claim.bundle_digest.clone(),
        applied_at: instant::show(claim.applied_at),
        expires_at: instant::show(claim.expires_at),
        expired: claim.expired(clock),
        withdrawn: claim.withdrawn.clone(),
        refused: refused_list(&state.refused),
    }
}
