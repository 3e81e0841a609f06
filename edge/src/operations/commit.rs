//! Intent, kernel, state: in this order, undone as a whole.

use std::io;

use super::repair::restore;
use super::run::Run;
use super::withdraw::take_back;
use crate::bundle::{self, Bundle};
use crate::clock::Clock;
use crate::enforce::routes::{Change, Plan, Snapshot};
use crate::error::{Error, Result};
use crate::state::{Before, Claim, EnforcedBy, Intent, SCHEMA_VERSION, State, Store, written};
use crate::text::{hex, reason};

/// Makes the plan, or the program, stand in the kernel and the state say so. Returns the steps, or None when nothing
/// changed. `notes` gets what could not be done though it stands.
pub(super) fn commit(
    run: &Run<'_>,
    (bundle, raw): (&Bundle, &[u8]),
    by: EnforcedBy,
    plan: &Plan,
    before: &Snapshot,
    state: Option<&State>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<Change>>> {
    let store = run.store;
    let wanted = Snapshot::with_rules(plan.routes.clone());
    let new_state = State {
        claim: claim(store, &run.clock, bundle, state),
        routes: written(&plan.routes),
        refused: plan
            .refused
            .iter()
            .map(|(prefix, why)| (prefix.to_string(), why.clone()))
            .collect(),
        enforced_by: by,
    };
    let stands = *before == wanted
        && match by {
            EnforcedBy::Bpf => run.program.holds(bundle),
            EnforcedBy::Routes | EnforcedBy::Nothing => !run.program.stands(),
        };
    if stands && state.is_some_and(|state| same(state, &new_state)) {
        return Ok(None);
    }
    store.check()?;
    let intent = Intent::Apply {
        claim: Box::new(new_state.claim.clone()),
        before: Before::of(before),
    };
    if let Err(error) = begin(store, raw, &intent, &new_state.claim) {
        return Err(not_begun(store, &error, bundle, state.filter(|_| stands)));
    }
    match change(run, bundle, &new_state, before, &wanted, notes) {
        Ok(steps) => {
            // Committed. What fails from here on is clearing up, which the next run does.
            let _ = store
                .remove_intent()
                .and_then(|()| store.keep_only(&new_state.claim.bundle));
            Ok(Some(steps))
        }
        Err(Error::Withdrawn(message)) => {
            let why = store
                .later_withdrawal(&new_state.claim)
                .map(|found| found.reason);
            let why = why.unwrap_or_else(|| "withdrawn while it was applied".to_owned());
            take_back(run, &why, Vec::new(), "apply", true, false)?;
            Err(Error::Withdrawn(format!(
                "{message}, so this one took back its own too; apply again"
            )))
        }
        Err(error) => {
            let done = restore(run, before, state)?;
            let _ = store.remove_intent();
            Err(Error::failed(format!(
                "apply: {error}; {done}; mend the cause and apply again"
            )))
        }
    }
}

/// The kernel, then the record. What takes over is there before what it replaces goes.
fn change(
    run: &Run<'_>,
    bundle: &Bundle,
    new_state: &State,
    before: &Snapshot,
    wanted: &Snapshot,
    notes: &mut Vec<String>,
) -> Result<Vec<Change>> {
    if new_state.enforced_by == EnforcedBy::Bpf {
        notes.extend(run.program.apply(bundle)?);
    }
    let steps = run.routing.change(before, wanted)?;
    if new_state.enforced_by != EnforcedBy::Bpf && run.program.stands() {
        notes.extend(run.program.withdraw(bundle.enforce.live)?.1);
    }
    run.store.check()?;
    run.store
        .save_state(new_state)
        .map_err(|error| Error::failed(reason(&error)))?;
    run.store.check()?;
    Ok(steps)
}

/// The bundle and the intent, on the disk before the kernel is touched.
fn begin(store: &Store, raw: &[u8], intent: &Intent, claim: &Claim) -> io::Result<()> {
    let begun = store
        .write(&claim.bundle, raw)
        .and_then(|()| store.save_intent(intent));
    begun.inspect_err(|_| {
        let _ = store.remove_intent();
    })
}

/// `holds`: the state, where the kernel holds just what the bundle wants.
fn not_begun(store: &Store, error: &io::Error, bundle: &Bundle, holds: Option<&State>) -> Error {
    let place = store.directory.display();
    let what = format!("{place}: {}; nothing was changed", reason(error));
    let lives = |state: &State| {
        state.claim.withdrawn.is_none() && state.claim.expires_at <= bundle.expires_at
    };
    if holds.is_some_and(lives) {
        let fix = "the routes are already this bundle's: make room, then again";
        return Error::Unrecorded(format!("{what}, {fix}"));
    }
    Error::failed(format!("{what}: make room, then again"))
}

fn claim(store: &Store, clock: &Clock, bundle: &Bundle, state: Option<&State>) -> Claim {
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since the epoch are far below 2^52"
    )]
    let mut boottime_expires = clock.boottime + (bundle.expires_at as f64 - clock.wall);
    if let Some(State { claim, .. }) = state
        && (&claim.bundle_digest, &claim.boot_id) == (&bundle.digest, &clock.boot_id)
    {
        // A clock that was set back since gives the same bundle no longer life.
        boottime_expires = boottime_expires.min(claim.boottime_expires);
    }
    let mut transaction = [0; 8];
    let _ = rustix::rand::getrandom(&mut transaction, rustix::rand::GetRandomFlags::empty());
    Claim {
        schema_version: SCHEMA_VERSION,
        transaction: hex(&transaction),
        edge: bundle.edge.clone(),
        pop: bundle.pop.clone(),
        round: bundle.round,
        created_at: bundle.created_at,
        expires_at: bundle.expires_at,
        policy_version: bundle.policy_version.clone(),
        bundle: bundle::file_name(&bundle.digest),
        bundle_digest: bundle.digest.clone(),
        applied_at: clock.now(),
        boot_id: clock.boot_id.clone(),
        boottime_expires,
        created_after: state.and_then(|state| state.claim.created_after),
        withdrawal_seen: store.withdrawal_seen.clone(),
        withdrawn: None,
    }
}

/// Whether the record says already what it would say.
fn same(old: &State, new: &State) -> bool {
    old.claim.bundle_digest == new.claim.bundle_digest
        && old.claim.withdrawn == new.claim.withdrawn
        && old.claim.withdrawal_seen == new.claim.withdrawal_seen
        && old.routes == new.routes
        && old.refused == new.refused
        && old.enforced_by == new.enforced_by
}
