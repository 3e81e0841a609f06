//! A bundle into the kernel, and what it would do there.

use super::chosen::{Chosen, name_unreached};
use super::commit::commit;
use super::repair::{load_state, repair};
use super::report::{Applied, Counts, Preview, Verified, refused_list, shown};
use super::run::{Places, Run, Source, Uninterrupted, read_clock};
use crate::bundle::{self, Bundle};
use crate::clock::Clock;
use crate::enforce::routes::{Change, Plan, Snapshot, difference, survey};
use crate::error::{Error, Result, code};
use crate::files::read_regular;
use crate::instant;
use crate::signature;
use crate::state::{EnforcedBy, State, Store, written};
use crate::text::reason;

const UNSIGNED_NOTE: &str =
    "UNSIGNED: whoever could write this bundle set these values; no signature was checked";

/// The bundle, whose signature counts, and its bytes.
fn read(source: &Source<'_>, clock: &Clock) -> Result<(Bundle, Vec<u8>)> {
    let shown = source.bundle.display().to_string();
    let (_, raw) = read_regular(source.bundle, bundle::MAX_BYTES).map_err(|error| {
        let regular = error.kind() != std::io::ErrorKind::InvalidInput;
        let fix = if regular {
            "name a bundle that this user can read"
        } else {
            "name a bundle"
        };
        Error::refused(format!("{shown}: file: {}; {fix}", reason(&error)))
    })?;
    if let Some(signers) = source.allowed_signers {
        signature::verify(source.bundle, &raw, signers, clock.now())?;
    }
    let bundle = bundle::parse(&raw, &shown, source.edge, clock.now())?;
    Ok((bundle, raw))
}

/// Looks at a bundle as `apply` does, without the kernel. `at`: as if that were the time, seconds since the epoch.
///
/// # Errors
///
/// [`Error::Refused`].
pub fn verify(source: &Source<'_>, at: Option<f64>) -> Result<Verified> {
    let mut clock = read_clock()?;
    clock.wall = at.unwrap_or(clock.wall);
    let (bundle, _) = read(source, &clock)?;
    let count =
        |has: fn(&bundle::Entry) -> bool| bundle.entries.iter().filter(|entry| has(entry)).count();
    Ok(Verified {
        command: "verify",
        round: instant::show(bundle.round),
        created_at: instant::show(bundle.created_at),
        expires_at: instant::show(bundle.expires_at),
        signed: source.allowed_signers.is_some(),
        entries: bundle.entries.len(),
        windows: count(|entry| entry.initcwnd.is_some()),
        start_rates: count(|entry| entry.start_rate.is_some()),
        congestion_controls: count(|entry| entry.congestion.is_some()),
        edge: bundle.edge,
        pop: bundle.pop,
        policy_version: bundle.policy_version,
        digest: bundle.digest,
    })
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
    let chosen = Chosen::of(&run, &bundle);
    let shown = source.bundle.display().to_string();
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

/// What `apply` would do now, changing nothing: its report, and the routes before and after it.
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
    check_newer(
        &bundle,
        state.as_ref(),
        &source.bundle.display().to_string(),
    )?;
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
