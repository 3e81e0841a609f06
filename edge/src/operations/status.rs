//! State applied, and how the kernel differs from it.

use serde::Serialize;

use super::chosen::by_routes;
use super::parity;
use super::report::{RefusedDestination, Report, refused_list, rest};
use super::run::{Places, Run, read_clock};
use super::withdraw::TAKEN_AWAY;
use crate::clock::Clock;
use crate::enforce::bpf;
use crate::enforce::routes::{RULE, Snapshot, difference, survey};
use crate::error::{Error, Result, code};
use crate::instant;
use crate::kernel::{Family, show};
use crate::state::{Before, EnforcedBy, State, Store, Withdrawn};

/// A difference between the kernel and what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    prefix: String,
    wanted: Option<String>,
    found: Option<String>,
}

/// The report of `status`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    command: &'static str,
    applied: bool,
    #[serde(flatten)]
    claim: Option<StatusClaim>,
    routes: usize,
    /// The eBPF program, where anything of it is there.
    program: Option<bpf::Status>,
    /// Parity, where its service has run since the host did.
    parity: Option<parity::Counts>,
    drift: Vec<Drift>,
    notes: Vec<String>,
    in_sync: bool,
}

/// Bundle that is applied, or was.
#[derive(Clone, Debug, Serialize)]
struct StatusClaim {
    edge: String,
    pop: String,
    round: String,
    policy_version: String,
    digest: String,
    applied_at: String,
    expires_at: String,
    expired: bool,
    withdrawn: Option<Withdrawn>,
    enforced_by: EnforcedBy,
    refused: Vec<RefusedDestination>,
}

impl Report for Status {
    fn exit_code(&self) -> u8 {
        if self.in_sync {
            code::DONE
        } else {
            code::PARTIAL
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.claim {
            Some(claim) if self.applied => {
                let until = if claim.expired { "EXPIRED" } else { "until" };
                lines.push(format!(
                    "applied: {}, round {}, {until} {}",
                    claim.edge, claim.round, claim.expires_at
                ));
            }
            Some(StatusClaim {
                withdrawn: Some(withdrawn),
                ..
            }) => {
                lines.push(format!(
                    "withdrawn at {}: {}",
                    withdrawn.at, withdrawn.reason
                ));
            }
            _ => lines.push("nothing applied".to_owned()),
        }
        let sync = if self.in_sync {
            "in sync"
        } else {
            "NOT in sync"
        };
        lines.push(format!("routes: {} in the kernel, {sync}", self.routes));
        lines.extend(self.program.iter().flat_map(program_lines));
        lines.extend(self.parity.map(|counts| {
            format!(
                "parity: {} datagrams ({} bytes) sent; {} came, which brought {} blocks back, and nothing in {} cases",
                counts.sent, counts.sent_bytes, counts.received, counts.repaired, counts.lost
            )
        }));
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        let drift = |one: &Drift| {
            format!(
                "drift: {}: wanted {}, found {}",
                one.prefix,
                shown(&one.wanted),
                shown(&one.found)
            )
        };
        lines.extend(self.drift.iter().map(drift));
        lines.extend(rest(
            self.claim
                .as_ref()
                .map(|claim| &claim.refused[..])
                .unwrap_or_default(),
            &self.notes,
        ));
        lines
    }
}

/// Lines of `status` about it.
fn program_lines(program: &bpf::Status) -> Vec<String> {
    let bpf::Status {
        condition,
        totals,
        prefixes_known,
        prefixes_limit,
        ..
    } = program;
    let mut lines = vec![format!(
        "program: {} entries, {} connections started with our values",
        condition.entries, totals.started
    )];
    let on = condition.copying_devices.len();
    if on > 0 || totals.copies > 0 {
        lines.push(format!(
            "program: {} segments ({} bytes) sent twice, at {on} devices; {} copies left out, as the budget was spent",
            totals.copies, totals.copied_bytes, totals.copies_refused
        ));
    }
    if totals.opted_out > 0 {
        lines.push(format!(
            "program: {} connections of tenants that opted out were left at the kernel's default",
            totals.opted_out
        ));
    }
    if !condition.others.is_empty() {
        let ids: Vec<String> = condition.others.iter().map(ToString::to_string).collect();
        let ids = ids.join(", ");
        lines.push(format!(
            "program: other sockops programs see the same connections (ids {ids}; `bpftool prog show id ID` names them)"
        ));
    }
    if totals.no_state > 0 {
        lines.push(format!(
            "program: {} connections were left alone, because {prefixes_known} prefixes are known of {prefixes_limit} that can be",
            totals.no_state
        ));
    }
    lines
}

/// Compares what is applied with the kernel, by the host's routing of this moment.
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
    let run = Run::new(&store, &|| Ok(()), places, clock);
    let actual = run.routing.snapshot()?;
    let mut state = store.state().unwrap_or_else(|damage| {
        notes.push(format!("{damage}; `expire` or `withdraw` clears it"));
        None
    });
    if store.has_intent() {
        notes.push("a run was interrupted; `expire` or the next `apply` repairs it".to_owned());
    }
    let mut wanted = Snapshot::default();
    if let Some(state) = &mut state {
        wanted = judge(&run, state, &mut notes)?;
    }
    let program = run
        .program
        .stands()
        .then(|| run.program.status())
        .transpose()?;
    let mut drift = drift(&actual, &wanted);
    // Where something plainer is wrong, that is what to mend first.
    if drift.is_empty() {
        let unreached = run.routing.unreached(&actual.routes)?;
        drift.extend(unreached.into_iter().map(|(prefix, why)| {
            Drift {
                prefix: prefix.to_string(),
                wanted: actual
                    .routes
                    .get(&prefix)
                    .map(|way| show(way, Family::of(&prefix))),
                found: Some(why),
            }
        }));
    }
    drift.extend(program_drift(&run, state.as_ref(), program.as_ref()));
    let claim = state.as_ref().map(|state| claim(state, &run.clock));
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
        program,
        parity: parity::counts(&places.run),
        drift,
        notes,
    })
}

/// Finds what should stand in the kernel; the state learns of a withdrawal that it does not know,
/// and what is refused by now.
fn judge(run: &Run<'_>, state: &mut State, notes: &mut Vec<String>) -> Result<Snapshot> {
    let Run {
        store,
        routing,
        clock,
        ..
    } = run;
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
    let planned = store
        .last_good(&state.claim)
        .and_then(|(bundle, _)| survey(routing, &by_routes(&bundle, state.enforced_by).0));
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
            // Routes that cannot be read cannot be compared: then only the rules are.
            let routes = recorded.map_or_else(
                || routing.snapshot().map(|found| found.routes),
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
            let rule = || RULE.to_owned();
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

/// Differences of the program from what the state says of it.
fn program_drift(
    run: &Run<'_>,
    state: Option<&State>,
    program: Option<&bpf::Status>,
) -> Vec<Drift> {
    let bundle = state
        .filter(|state| state.enforced_by == EnforcedBy::Bpf && state.claim.withdrawn.is_none())
        .and_then(|state| run.store.last_good(&state.claim).ok());
    let drift = |wanted: Option<&str>, found: Option<String>| Drift {
        prefix: "program".to_owned(),
        wanted: wanted.map(str::to_owned),
        found,
    };
    let Some(program) = program else {
        let missing = bundle.map(|_| drift(Some("on its cgroup"), None));
        return missing.into_iter().collect();
    };
    let wrong = program.condition.drift.iter().map(ToString::to_string);
    let mut found: Vec<Drift> = wrong
        .map(|one| drift(Some("as it was left"), Some(one)))
        .collect();
    match bundle {
        None => found.push(drift(
            None,
            Some("of a bundle that is not applied".to_owned()),
        )),
        Some((bundle, _)) if program.condition.bundle != bpf::name_of(&bundle) => {
            let other = "of another bundle".to_owned();
            found.push(drift(Some("of the applied bundle"), Some(other)));
        }
        Some(_) => {}
    }
    found
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
        enforced_by: state.enforced_by,
        refused: refused_list(&state.refused),
    }
}
