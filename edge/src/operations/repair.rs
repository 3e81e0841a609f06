//! Repair of what a killed run left.

use super::run::Run;
use crate::bundle::Live;
use crate::enforce::routes::Snapshot;
use crate::error::Result;
use crate::state::{EnforcedBy, Intent, State, Store};
use crate::text::reason;

/// The state, or None when there is none or it was damaged (then it is set aside and noted).
pub(super) fn load_state(store: &Store, notes: &mut Vec<String>) -> Option<State> {
    store.state().unwrap_or_else(|damage| {
        let done = match store.set_aside_state() {
            Ok(()) => "set aside as state.json.damaged".to_owned(),
            Err(error) => format!("not set aside: {}", reason(&error)),
        };
        notes.push(format!("{damage}; {done}"));
        None
    })
}

/// Finishes what a killed run left: back to what stood before an apply, on to the end of a withdrawal.
///
/// The kernel first; a disk that does not take the record of it leaves that to a later run.
pub(super) fn repair(run: &Run<'_>, notes: &mut Vec<String>) -> Result<()> {
    let Run { store, clock, .. } = run;
    let intent = match store.intent() {
        Ok(None) => return Ok(()),
        Ok(Some(intent)) => intent,
        Err(damage) => {
            run.clear(Live::Leave)?;
            notes.push(format!("{damage}; withdrew everything, set it aside"));
            let _ = store.set_aside_intent();
            return Ok(());
        }
    };
    let state = store.state().unwrap_or_default();
    let mut recorded = None;
    match intent {
        Intent::Withdraw { reason, .. } => {
            run.clear(Live::Leave)?;
            recorded = state
                .filter(|state| state.claim.withdrawn.is_none())
                .map(|state| state.withdrawn(clock, &reason, false));
            notes.push("finished a withdrawal that was interrupted".to_owned());
        }
        // It was committed; only the clearing up was cut off.
        Intent::Apply { claim, .. }
            if state
                .as_ref()
                .is_some_and(|state| state.claim.transaction == claim.transaction) => {}
        Intent::Apply { claim, .. } if store.later_withdrawal(&claim).is_some() => {
            run.clear(Live::Leave)?;
            let found = "found an interrupted apply and a withdrawal that came after it: withdrew everything";
            notes.push(found.to_owned());
        }
        Intent::Apply { claim, before } if claim.boot_id == clock.boot_id => {
            let done = match before.snapshot() {
                Some(before) => restore(run, &before, state.as_ref())?,
                None => {
                    run.clear(Live::Leave)?;
                    "what stood before cannot be read, so every route was withdrawn".to_owned()
                }
            };
            notes.push(format!("found an interrupted apply: {done}"));
        }
        Intent::Apply { .. } => {}
    }
    let record = recorded
        .map_or(Ok(()), |state| store.save_state(&state))
        .and_then(|()| store.remove_intent());
    if let Err(error) = record {
        let place = store.directory.display();
        notes.push(format!(
            "{place}: {}: the record of that is not written",
            reason(&error)
        ));
    }
    Ok(())
}

/// Back to `before`, verified, and to the program's last bundle; when the kernel does not allow it, to nothing. Returns
/// what was done, as text. `state`: the record of before.
///
/// # Errors
///
/// When not even withdrawing works.
pub(super) fn restore(run: &Run<'_>, before: &Snapshot, state: Option<&State>) -> Result<String> {
    let back = run
        .routing
        .snapshot()
        .and_then(|now| run.routing.change(&now, before))
        .and_then(|_| restore_program(run, state));
    match back {
        Ok(()) => Ok(format!(
            "the state before ({} routes) is restored and verified",
            before.routes.len()
        )),
        Err(error) => {
            run.clear(Live::Leave)?;
            Ok(format!(
                "the state before could not be restored ({error}), so every route was withdrawn"
            ))
        }
    }
}

fn restore_program(run: &Run<'_>, state: Option<&State>) -> Result<()> {
    let was = state
        .filter(|state| state.enforced_by == EnforcedBy::Bpf && state.claim.withdrawn.is_none());
    if let Some(state) = was {
        let (bundle, _) = run.store.last_good(&state.claim)?;
        if !run.program.holds(&bundle) {
            run.program.apply(&bundle)?;
        }
    } else if run.program.stands() {
        run.program.withdraw(Live::Leave)?;
    }
    Ok(())
}
