//! A bundle into the kernel, and what it would do there.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chosen::{Chosen, name_unreached};
use super::commit::commit;
use super::given::Source;
use super::repair::{load_state, repair};
use super::report::{Counts, RefusedDestination, Report, partial, refused_list, rest, shown};
use super::run::{Places, Run, Uninterrupted, read_clock};
use super::verify::read;
use super::withdraw::EXPIRED;
use crate::bundle::Bundle;
use crate::enforce::routes::{Change, NotEnforced, Plan, Snapshot, difference, survey};
use crate::error::{Error, Result, code};
use crate::instant;
use crate::state::{EnforcedBy, State, Store, written};

const UNSIGNED_NOTE: &str =
    "UNSIGNED: whoever could write this bundle set these values; no signature was checked";

/// The report of `apply`, and of its preview.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    command: &'static str,
    changed: bool,
    edge: String,
    round: String,
    digest: String,
    expires_at: String,
    enforced_by: EnforcedBy,
    routes: usize,
    #[serde(flatten)]
    counts: Counts,
    refused: Vec<RefusedDestination>,
    not_enforced: NotEnforced,
    notes: Vec<String>,
}

/// The report of `apply --dry-run`.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    #[serde(flatten)]
    report: Applied,
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
}

impl Report for Applied {
    fn exit_code(&self) -> u8 {
        partial(&self.refused)
    }

    fn lines(&self) -> Vec<String> {
        let verb = match (self.command, self.changed) {
            ("preview", true) => "would be applied",
            (_, true) => "applied",
            (_, false) => "unchanged",
        };
        let mut lines = vec![
            format!(
                "{verb}: {}, round {}, until {}",
                self.edge, self.round, self.expires_at
            ),
            format!("routes: {} ({})", self.routes, self.counts.line()),
        ];
        lines.extend(self.not_enforced.line());
        lines.extend(rest(&self.refused, &self.notes));
        lines
    }
}

impl Report for Preview {
    fn exit_code(&self) -> u8 {
        self.report.exit_code()
    }

    fn lines(&self) -> Vec<String> {
        self.report.lines()
    }
}

/// Makes the kernel start connections as the bundle says.
///
/// # Errors
///
/// [`Error::Refused`] (nothing was changed); others say what state the host is in.
pub fn apply(source: &Source<'_>, places: &Places) -> Result<Applied> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let (bundle, raw) = read(source, &clock)?;
    let mut notes = Vec::new();
    let _lock = store.lock(places.lock_wait)?;
    let check = || store.check();
    let run = Run::new(&store, &check, places, clock);
    let _guard = Uninterrupted::begin();
    repair(&run, &mut notes)?;
    let state = load_state(&store, &mut notes);
    if source.heeds_withdrawals && is_withdrawn_since(&bundle, state.as_ref(), &run) {
        let made = instant::show(bundle.created_at);
        return Err(Error::Withdrawn(format!(
            "everything was withdrawn here after {made}, when the bundle was made"
        )));
    }
    let chosen = Chosen::of(&run, &bundle);
    let shown = source.bundle.shown();
    let fit = check_newer(&bundle, state.as_ref(), &shown)
        .and_then(|()| survey(&run.routing, &chosen.destinations));
    let (mut plan, before) = fit.map_err(|error| with_notes(error, &notes))?;
    let whole = (&bundle, &raw[..]);
    let state = state.as_ref();
    let steps = commit(&run, whole, chosen.by, &plan, &before, state, &mut notes)?;
    name_unreached(&run, &mut plan, &mut notes);
    if source.allowed_signers.is_none() {
        notes.push(UNSIGNED_NOTE.to_owned());
    }
    let changed = steps.is_some();
    let steps = steps.unwrap_or_default();
    Ok(report(
        "apply", &bundle, &plan, &steps, changed, chosen, notes,
    ))
}

/// Whether somebody withdrew everything after the bundle was made.
fn is_withdrawn_since(bundle: &Bundle, state: Option<&State>, run: &Run<'_>) -> bool {
    let withdrawn = match state {
        Some(State { claim, .. }) => {
            let later = run.store.later_withdrawal(claim);
            later.or_else(|| claim.withdrawn.clone())
        }
        None => run.store.marked().1,
    };
    let asked = withdrawn.filter(|withdrawn| !withdrawn.reason.starts_with(EXPIRED));
    let at = asked.and_then(|asked| instant::parse(&asked.at));
    // One of a clock that was ahead holds up nothing.
    at.is_some_and(|at| bundle.created_at <= at && at <= run.clock.now())
}

/// A refusal after a repair says what was repaired.
fn with_notes(error: Error, notes: &[String]) -> Error {
    match error {
        Error::Refused { message, code } if !notes.is_empty() => Error::Refused {
            message: format!("{message}; before that: {}", notes.join("; ")),
            code,
        },
        other => other,
    }
}

/// Refuses a replay or a late straggler: a bundle that is older than the last one applied or than the last
/// `--forget-round`, or another one of the same round and creation time.
fn check_newer(bundle: &Bundle, state: Option<&State>, source: &str) -> Result<()> {
    let Some(State { claim, .. }) = state else {
        return Ok(());
    };
    let pairs = [
        ("round", bundle.round, claim.round),
        ("created_at", bundle.created_at, claim.created_at),
    ];
    let mut problem = match pairs
        .into_iter()
        .find(|(_, value, applied)| value != applied)
    {
        Some((field, value, applied)) if value < applied => Some(format!(
            "{field}: {} is older than the applied {}",
            instant::show(value),
            instant::show(applied)
        )),
        None if bundle.digest != claim.bundle_digest => Some(format!(
            "digest: another bundle of {} is the applied one",
            instant::show(bundle.created_at)
        )),
        _ => None,
    };
    if let Some(since) = claim
        .created_after
        .filter(|since| bundle.created_at <= *since)
    {
        let created = instant::show(bundle.created_at);
        let since = instant::show(since);
        problem = Some(format!(
            "created_at: {created} is before the rounds were begun anew, just after {since}"
        ));
    }
    match problem {
        None => Ok(()),
        Some(problem) => Err(Error::refused_as(
            code::REPLAYED,
            format!("{source}: {problem}; push the newest round"),
        )),
    }
}

fn report(
    command: &'static str,
    bundle: &Bundle,
    plan: &Plan,
    steps: &[Change],
    changed: bool,
    chosen: Chosen,
    mut notes: Vec<String>,
) -> Applied {
    notes.extend(chosen.notes);
    Applied {
        command,
        changed,
        edge: bundle.edge.clone(),
        round: instant::show(bundle.round),
        digest: bundle.digest.clone(),
        expires_at: instant::show(bundle.expires_at),
        enforced_by: chosen.by,
        routes: plan.routes.len(),
        counts: Counts::of(steps),
        refused: refused_list(&plan.refused),
        not_enforced: chosen.not_enforced,
        notes,
    }
}

/// Previews `apply` as of now, changing nothing: its report, and the routes before and after it.
///
/// # Errors
///
/// Those of `apply` before it changes anything.
pub fn preview(source: &Source<'_>, places: &Places) -> Result<Preview> {
    let clock = read_clock()?;
    let (bundle, _) = read(source, &clock)?;
    let store = Store::new(&places.state, &places.run);
    let mut notes = Vec::new();
    let _lock = store
        .directory
        .is_dir()
        .then(|| store.lock(places.lock_wait))
        .transpose()?;
    let state = store.state().unwrap_or_else(|damage| {
        notes.push(format!("{damage}; would be set aside"));
        None
    });
    if store.has_intent() {
        notes.push("a run was interrupted; its repair would come first".to_owned());
    }
    check_newer(&bundle, state.as_ref(), &source.bundle.shown())?;
    let run = Run::new(&store, &|| Ok(()), places, clock);
    let chosen = Chosen::of(&run, &bundle);
    let (plan, before) = survey(&run.routing, &chosen.destinations)?;
    let recorded = state.is_some_and(|state| {
        state.claim.bundle_digest == bundle.digest
            && state.claim.withdrawn.is_none()
            && state.enforced_by == chosen.by
            && state.routes == written(&plan.routes)
            && state.refused.len() == plan.refused.len()
            && plan
                .refused
                .iter()
                .all(|(prefix, why)| state.refused.get(&prefix.to_string()) == Some(why))
    });
    let changed = !recorded
        || before != Snapshot::with_rules(plan.routes.clone())
        || run.program.holds(&bundle) != (chosen.by == EnforcedBy::Bpf)
        || !notes.is_empty();
    let steps = difference(&before.routes, &plan.routes);
    let report = report("preview", &bundle, &plan, &steps, changed, chosen, notes);
    Ok(Preview {
        report,
        before: shown(&before.routes),
        after: shown(&plan.routes),
    })
}
