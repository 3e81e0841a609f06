//! What a killed run left.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Snapshot};
use crate::state::{Intent, State, Store};
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
pub(super) fn repair(
    store: &Store,
    kernel: &Kernel<'_>,
    clock: &Clock,
    notes: &mut Vec<String>,
) -> Result<()> {
    let intent = match store.intent() {
        Ok(None) => return Ok(()),
        Ok(Some(intent)) => intent,
        Err(damage) => {
            kernel.withdraw()?;
            notes.push(format!("{damage}; withdrew every route, set it aside"));
            let _ = store.set_aside_intent();
            return Ok(());
        }
    };
    let state = store.state().unwrap_or_default();
    let mut recorded = None;
    match intent {
        Intent::Withdraw { reason, .. } => {
            kernel.withdraw()?;
            recorded = state
                .filter(|state| state.claim.withdrawn.is_none())
                .map(|state| state.withdrawn(clock, &reason, false));
            notes.push("finished a withdrawal that was interrupted".to_owned());
        }
        // It was committed; only the clearing up was cut off.
        Intent::Apply { claim, .. }
            if state.is_some_and(|state| state.claim.transaction == claim.transaction) => {}
        Intent::Apply { claim, .. } if store.later_withdrawal(&claim).is_some() => {
            kernel.withdraw()?;
            let found = "found an interrupted apply and a withdrawal that came after it: withdrew every route";
            notes.push(found.to_owned());
        }
        Intent::Apply { claim, before } if claim.boot_id == clock.boot_id => {
            let done = match before.snapshot() {
                Some(before) => restore(kernel, &before)?,
                None => {
                    kernel.withdraw()?;
                    "an earlier program wrote what stood before, so every route was withdrawn"
                        .to_owned()
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

/// Back to `before`, verified; when the kernel does not allow it, to nothing. Returns what was done, as text.
///
/// # Errors
///
/// When not even withdrawing works.
pub(super) fn restore(kernel: &Kernel<'_>, before: &Snapshot) -> Result<String> {
    let back = kernel
        .snapshot()
        .and_then(|now| kernel.change(&now, before));
    match back {
        Ok(_) => Ok(format!(
            "the state before ({} routes) is restored and verified",
            before.routes.len()
        )),
        Err(error @ (Error::Failed(_) | Error::Refused { .. } | Error::Withdrawn(_))) => {
            kernel.withdraw()?;
            Ok(format!(
                "the state before could not be restored ({error}), so every route was withdrawn"
            ))
        }
        Err(error) => Err(error),
    }
}
