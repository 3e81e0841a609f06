//! Everything of ours out of the kernel: by command, or because its time is over.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::repair::{load_state, repair};
use super::report::{Report, rest, shown};
use super::run::{Cleared, Places, Run, Uninterrupted, read_clock};
use crate::bundle::Live;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::instant;
use crate::kernel::Family;
use crate::state::{Claim, EnforcedBy, Intent, Lock, SCHEMA_VERSION, State, Store};
use crate::text::reason;

/// The report of `withdraw`, and of `expire` and `follow` where they took back.
#[derive(Clone, Debug, Serialize)]
pub struct TakenBack {
    command: &'static str,
    pub(super) changed: bool,
    removed: usize,
    /// Whether the eBPF program was there.
    program: bool,
    reason: Option<String>,
    notes: Vec<String>,
}

/// The report of `withdraw --dry-run`.
#[derive(Clone, Debug, Serialize)]
pub struct WithdrawalPreview {
    command: &'static str,
    changed: bool,
    removed: usize,
    before: BTreeMap<String, String>,
}

impl Report for TakenBack {
    fn lines(&self) -> Vec<String> {
        let why = self
            .reason
            .as_ref()
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        let program = if self.program { " and the program" } else { "" };
        let mut lines = vec![format!(
            "{}: {} routes{program} removed{why}",
            self.command, self.removed
        )];
        lines.extend(rest(&[], &self.notes));
        lines
    }
}

impl Report for WithdrawalPreview {
    fn lines(&self) -> Vec<String> {
        let verb = if self.changed {
            "would be withdrawn"
        } else {
            "unchanged"
        };
        vec![format!("{verb}: {} routes", self.removed)]
    }
}

/// Beginning of the reason of a withdrawal that nobody asked for: its time was over.
pub(super) const EXPIRED: &str = "expired at";
/// For taking back, which then goes on without the lock.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: f64 = 300.0;

/// Every route and rule of ours out of the kernel. Works without state, disk or lock.
///
/// # Errors
///
/// When the kernel refuses, or when only the record of it could not be written.
pub fn withdraw(places: &Places, why: &str, forget_round: bool) -> Result<TakenBack> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let mut notes = Vec::new();
    let lock = lock_for_a_while(&store, places, &mut notes);
    let _guard = Uninterrupted::begin();
    let run = Run::new(&store, &|| Ok(()), places, clock);
    take_back(&run, why, notes, "withdraw", lock.is_some(), forget_round)
}

/// Previews `withdraw` as of now, changing nothing.
///
/// # Errors
///
/// When the kernel cannot be read, or another run keeps the lock.
pub fn preview_withdrawal(places: &Places, forget_round: bool) -> Result<WithdrawalPreview> {
    let store = Store::new(&places.state, &places.run);
    // The state directory is not made where there is none.
    let _lock = store
        .directory
        .is_dir()
        .then(|| store.lock(places.lock_wait))
        .transpose()?;
    let run = Run::new(&store, &|| Ok(()), places, read_clock()?);
    let before = run.routing.snapshot()?;
    let stands = |state: State| state.claim.withdrawn.is_none() || forget_round;
    let recorded = store.state().ok().flatten().is_some_and(stands);
    Ok(WithdrawalPreview {
        command: "withdraw",
        changed: recorded || run.marked()?,
        removed: before.routes.len(),
        before: shown(&before.routes),
    })
}

/// The lock, or None where it is not to be had soon: taking back does not depend on it.
pub(super) fn lock_for_a_while(
    store: &Store,
    places: &Places,
    notes: &mut Vec<String>,
) -> Option<Lock> {
    store
        .lock(SHORT_WAIT.min(places.lock_wait))
        .map_err(|error| notes.push(format!("went on without the lock: {error}")))
        .ok()
}

/// The kernel comes before the disk, which may hang: a run that is killed between them has left the mark, or rules that are
/// gone, for the next one. Without the lock (`held`) the intent stays, for whoever holds it and for the next run.
pub(super) fn take_back(
    run: &Run<'_>,
    why: &str,
    mut notes: Vec<String>,
    command: &'static str,
    held: bool,
    forget_round: bool,
) -> Result<TakenBack> {
    let store = run.store;
    let at = instant::show(run.clock.now());
    let mut remembered = (!held || command == "withdraw").then(|| store.mark(&at, why));
    let live = what_becomes_of_open_connections(store);
    let first = run.clear(live);
    let intent = Intent::Withdraw {
        schema_version: SCHEMA_VERSION,
        reason: why.to_owned(),
    };
    // Without a disk the routes are gone all the same.
    let _ = store.save_intent(&intent);
    let mut cleared = first?;
    if !held {
        // Where there is no mark, only the intent shows it to the run that holds the lock.
        let again = run.clear(live)?;
        cleared.routes = cleared.routes.max(again.routes);
        cleared.rules = cleared.rules.max(again.rules);
        cleared.program |= again.program;
    }
    notes.append(&mut cleared.warnings);
    let mut changed = cleared.routes > 0 || cleared.rules > 0 || cleared.program;
    match record(run, why, &mut notes, held, forget_round) {
        Ok(newly) => changed |= newly,
        Err(_) if !store.directory.is_dir() => {
            notes.push("no state directory, nothing to record".to_owned());
        }
        Err(error) => {
            let marked = *remembered.get_or_insert_with(|| store.mark(&at, why));
            return Err(not_recorded(store, &error, &cleared, marked));
        }
    }
    Ok(TakenBack {
        command,
        changed,
        removed: cleared.routes,
        program: cleared.program,
        reason: Some(why.to_owned()),
        notes,
    })
}

/// As the bundle in force says; where that cannot be known, they are left alone.
fn what_becomes_of_open_connections(store: &Store) -> Live {
    let state = store.state().ok().flatten();
    let bundle = state.and_then(|state| store.last_good(&state.claim).ok());
    bundle.map_or(Live::Leave, |(bundle, _)| bundle.enforce.live)
}

fn not_recorded(store: &Store, error: &io::Error, cleared: &Cleared, marked: bool) -> Error {
    let memory = if marked {
        "remembered until the next restart"
    } else {
        "and not in the run directory either"
    };
    let Cleared { routes, rules, .. } = cleared;
    let done = format!(
        "{routes} routes and {rules} rules are withdrawn, but the record is not written ({memory})"
    );
    let place = store.directory.display();
    let why = reason(error);
    Error::failed(format!("{place}: {why}; {done}: make room, then again"))
}

/// Whether the state says something new.
fn record(
    run: &Run<'_>,
    why: &str,
    notes: &mut Vec<String>,
    held: bool,
    forget_round: bool,
) -> io::Result<bool> {
    let Run { store, clock, .. } = run;
    let state = load_state(store, notes);
    if forget_round && state.is_none() {
        notes.push("no state, so no round to forget".to_owned());
    }
    let old = state.filter(|state| state.claim.withdrawn.is_none() || forget_round);
    let newly = old.is_some();
    if let Some(state) = old {
        save_withdrawn(store, &state.withdrawn(clock, why, forget_round))?;
    }
    if held {
        store.remove_intent()?;
    }
    Ok(newly)
}

/// On a full disk the last good bundle makes room, nobody needs it any more.
fn save_withdrawn(store: &Store, state: &State) -> io::Result<()> {
    match store.save_state(state) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            store.keep_only("")?;
            store.save_state(state)
        }
        other => other,
    }
}

/// Words by which a reason names a rule that is gone: `status` looks for them.
pub(super) const TAKEN_AWAY: &str =
    "was taken away, by hand or by a withdrawal that could not be recorded";

/// Knowledge of what may stand in the kernel: the claim, and the IP versions that then have a rule.
pub(super) struct Known {
    claim: Claim,
    families: Vec<Family>,
    program: bool,
}

impl From<State> for Known {
    fn from(state: State) -> Self {
        Self {
            families: state.families(),
            program: state.enforced_by == EnforcedBy::Bpf,
            claim: state.claim,
        }
    }
}

/// Why everything of ours must go now, or None.
pub(super) fn overdue(run: &Run<'_>, known: Option<&Known>) -> Result<Option<String>> {
    let Run { store, clock, .. } = run;
    let Some(known) = known.filter(|known| known.claim.withdrawn.is_none()) else {
        let nobody = if known.is_none() {
            "no state says until when these routes hold"
        } else {
            "left over from a withdrawal"
        };
        return Ok(run.marked()?.then(|| nobody.to_owned()));
    };
    let claim = &known.claim;
    if let Some(withdrawn) = store.later_withdrawal(claim) {
        return Ok(Some(withdrawn.reason));
    }
    if claim.expired(clock) {
        let at = instant::show(claim.expires_at);
        return Ok(Some(format!("{EXPIRED} {at}")));
    }
    if clock.boot_id != claim.boot_id {
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since the epoch are far below 2^52"
        )]
        let before = clock.wall < claim.applied_at as f64 - CLOCK_TOLERANCE_S;
        let lost = "since the restart the clock is before the last apply, so it cannot tell when these routes expire";
        return Ok(before.then(|| lost.to_owned()));
    }
    if known.program && run.program.is_taken_away() {
        return Ok(Some(format!("the program {TAKEN_AWAY}")));
    }
    let there = run.routing.marked()?;
    let gone = known
        .families
        .iter()
        .find(|family| there.get(family) != Some(&true));
    Ok(gone.map(|family| format!("the IPv{} rule {TAKEN_AWAY}", family.version())))
}

/// Claim that says, to a run without the lock, until when routes of ours may stand: the intent's,
/// of an apply that may be at work, else the state's. None when there is none.
pub(super) fn known_without_lock(store: &Store, clock: &Clock) -> Option<Known> {
    match store.intent().ok()? {
        None => store.state().ok()?.map(Known::from),
        Some(Intent::Apply { claim, .. }) if claim.boot_id == clock.boot_id => Some(Known {
            claim: *claim,
            families: Vec::new(),
            program: false,
        }),
        Some(_) => None,
    }
}

/// Withdraws when the applied bundle has expired, or when it can't be known whether it has; else changes nothing.
///
/// # Errors
///
/// As `withdraw`.
pub fn expire(places: &Places) -> Result<TakenBack> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let mut notes = Vec::new();
    let lock = lock_for_a_while(&store, places, &mut notes);
    let held = lock.is_some();
    let check = || store.check();
    let run = Run::new(&store, &check, places, clock);
    let _guard = Uninterrupted::begin();
    let known = if held {
        repair(&run, &mut notes)?;
        load_state(&store, &mut notes).map(Known::from)
    } else {
        known_without_lock(&store, &run.clock)
    };
    if let Some(why) = overdue(&run, known.as_ref())? {
        return take_back(&run, &why, notes, "expire", held, false);
    }
    Ok(TakenBack {
        command: "expire",
        changed: held && !notes.is_empty(),
        removed: 0,
        program: false,
        reason: None,
        notes,
    })
}
