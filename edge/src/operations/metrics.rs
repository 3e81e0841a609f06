//! Metrics for Prometheus: for node_exporter's textfile collector.
//!
//! Long: a third of it is the list of metrics, a sentence each.

use std::time::UNIX_EPOCH;

use prometheus::TextEncoder;
use prometheus::proto::MetricType::{COUNTER, GAUGE};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::parity::{Counts, counts};
use super::pull::answered;
use super::run::{Places, read_clock};
use crate::clock::Clock;
use crate::enforce::bpf::{self, Program};
use crate::enforce::routes::{Routing, Snapshot};
use crate::error::Result;
use crate::state::{Claim, EnforcedBy, State, Store, written};

/// Name after `springtide_edge_`, type, and help text of every metric, in the order of the file.
pub const METRICS: &[(&str, MetricType, &str)] = &[
    (
        "info",
        GAUGE,
        "1, with the edge, its PoP and the policy's version of the newest bundle.",
    ),
    (
        "pass_time_seconds",
        GAUGE,
        "When the last pass ended, seconds since the epoch.",
    ),
    (
        "pass_succeeded",
        GAUGE,
        "1 where the last pass did what it should.",
    ),
    (
        "files_missed_total",
        COUNTER,
        "Times that this file could not be written since the process began.",
    ),
    (
        "applied",
        GAUGE,
        "1 where a bundle is applied, 0 where it was withdrawn or there was none.",
    ),
    (
        "round_time_seconds",
        GAUGE,
        "The newest bundle's round, seconds since the epoch.",
    ),
    (
        "created_time_seconds",
        GAUGE,
        "When the newest bundle was made, seconds since the epoch.",
    ),
    (
        "applied_time_seconds",
        GAUGE,
        "When it was applied, seconds since the epoch.",
    ),
    (
        "expires_time_seconds",
        GAUGE,
        "When it stops to count, seconds since the epoch.",
    ),
    (
        "origin_time_seconds",
        GAUGE,
        "When the origin answered last, where bundles are pulled, seconds since the epoch.",
    ),
    (
        "in_sync",
        GAUGE,
        "1 where the kernel has what the last pass wrote down, and that is not over.",
    ),
    (
        "enforced",
        GAUGE,
        "1 for what enforces the bundle: routes, bpf, or nothing.",
    ),
    (
        "entries",
        GAUGE,
        "Destinations that connections start with our values to.",
    ),
    (
        "refused_destinations",
        GAUGE,
        "Destinations of the bundle that are not served.",
    ),
    ("routes", GAUGE, "Routes of ours in the kernel."),
    (
        "attached",
        GAUGE,
        "1 where new connections meet the eBPF program.",
    ),
    (
        "other_programs",
        GAUGE,
        "Other sockops programs that see the same connections.",
    ),
    (
        "prefixes",
        GAUGE,
        "Prefixes that the program knows, because they have seen connections.",
    ),
    (
        "prefixes_limit",
        GAUGE,
        "Prefixes that it can know; connections to further ones are left alone.",
    ),
    (
        "first_flights",
        GAUGE,
        "Connections in their first flights.",
    ),
    (
        "caps",
        GAUGE,
        "Connections that hold a start rate; too many where the program was detached meanwhile.",
    ),
    (
        "braked_entries",
        GAUGE,
        "Entries that their brake has set to half of their values, or to the kernel's default.",
    ),
    (
        "started_total",
        COUNTER,
        "Connections that started with our values.",
    ),
    (
        "untreated_total",
        COUNTER,
        "Connections left at the kernel's default by a trial or a brake.",
    ),
    (
        "excluded_total",
        COUNTER,
        "Connections to excluded destinations.",
    ),
    (
        "opted_out_total",
        COUNTER,
        "Connections of this edge's ports and addresses that the bundle leaves alone.",
    ),
    (
        "expired_total",
        COUNTER,
        "Connections that met a bundle past its time.",
    ),
    (
        "late_total",
        COUNTER,
        "Connections left alone because their SYN was sent again.",
    ),
    (
        "own_rate_total",
        COUNTER,
        "Connections whose application had set a rate, which stays.",
    ),
    (
        "refused_total",
        COUNTER,
        "Values that the kernel did not take: window, rate, algorithm; no room for a socket or a prefix.",
    ),
    (
        "exposed_total",
        COUNTER,
        "Connections that sent more than the kernel's first window because of us.",
    ),
    (
        "lost_total",
        COUNTER,
        "Of them, those that lost in their first flights.",
    ),
    (
        "switched_total",
        COUNTER,
        "Connections that got another congestion control.",
    ),
    ("brake_steps_total", COUNTER, "Steps of brakes."),
    (
        "brake_excused_total",
        COUNTER,
        "Brakes that were taken back because the kernel's default lost as much.",
    ),
    (
        "copies_total",
        COUNTER,
        "Segments that were sent twice, SYN-ACKs among them.",
    ),
    ("copied_bytes_total", COUNTER, "Bytes of these."),
    (
        "copies_refused_total",
        COUNTER,
        "Copies that were left out, as the budget was spent.",
    ),
    (
        "parity_total",
        COUNTER,
        "Datagrams of parity that were sent, since its service began.",
    ),
    ("parity_bytes_total", COUNTER, "Bytes of these."),
    (
        "parity_received_total",
        COUNTER,
        "Datagrams of parity that came.",
    ),
    (
        "parity_repaired_total",
        COUNTER,
        "Blocks of data that were lost on their way here, and are back by parity.",
    ),
    (
        "parity_lost_total",
        COUNTER,
        "Groups of blocks of which parity brought nothing back.",
    ),
    (
        "parity_refused_total",
        COUNTER,
        "Datagrams that are not the fleet's.",
    ),
    ("records_total", COUNTER, "First-flight records written."),
    (
        "records_lost_total",
        COUNTER,
        "First-flight records that found no room.",
    ),
];

/// Values by name and labels.
#[derive(Debug, Default)]
pub struct Metrics(Vec<(&'static str, Metric)>);

impl Metrics {
    fn add(&mut self, name: &'static str, labels: &[(&str, &str)], value: i64) {
        let pair = |(key, text): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*key).to_owned());
            pair.set_value((*text).to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.iter().map(pair).collect());
        let (mut counter, mut gauge) = (Counter::default(), Gauge::default());
        counter.set_value(value as f64);
        gauge.set_value(value as f64);
        metric.set_counter(counter);
        metric.set_gauge(gauge);
        self.0.push((name, metric));
    }

    fn one(&mut self, name: &'static str, value: impl TryInto<i64>) {
        self.add(name, &[], value.try_into().unwrap_or(i64::MAX));
    }

    /// In Prometheus' text format, version 0.0.4. `missed`: files that could not be written.
    pub fn text(mut self, missed: u64) -> String {
        self.one("files_missed_total", missed);
        let family = |(name, kind, help): &(&str, MetricType, &str)| {
            let own = self.0.iter().filter(|(found, _)| found == name);
            let mut family = MetricFamily::default();
            family.set_name(format!("springtide_edge_{name}"));
            family.set_help((*help).to_owned());
            family.set_field_type(*kind);
            family.set_metric(own.map(|(_, metric)| metric.clone()).collect());
            family
        };
        let families = METRICS.iter().map(family);
        let shown: Vec<_> = families
            .filter(|one| !one.get_metric().is_empty())
            .collect();
        match TextEncoder::new().encode_to_string(&shown) {
            Ok(text) => text,
            Err(error) => unreachable!("every family has a metric: {error}"),
        }
    }
}

/// Looks at what there is after a pass, and changes nothing. It takes no lock: beside another run it may show its middle.
///
/// # Errors
///
/// When the kernel cannot be read.
pub fn measure(places: &Places, succeeded: bool) -> Result<Metrics> {
    let clock = read_clock()?;
    let store = Store::new(&places.state, &places.run);
    let check = || Ok(());
    let actual = Routing::new(&check).snapshot()?;
    let program = Program::new(places.program.clone());
    let program = program.stands().then(|| program.status()).transpose()?;
    let state = store.state();
    let known = state.is_ok();
    let state = state.ok().flatten();
    let mut found = Metrics::default();
    found.one("pass_time_seconds", clock.now());
    found.one("pass_succeeded", i64::from(succeeded));
    found.one("routes", actual.routes.len());
    let applied = state
        .as_ref()
        .filter(|state| state.claim.withdrawn.is_none());
    found.one("applied", i64::from(applied.is_some()));
    let whole = known && in_sync(applied, &actual, program.as_ref(), &clock);
    found.one("in_sync", i64::from(succeeded && whole));
    for (by, name) in [
        (EnforcedBy::Routes, "routes"),
        (EnforcedBy::Bpf, "bpf"),
        (EnforcedBy::Nothing, "nothing"),
    ] {
        let is = applied.is_some_and(|state| state.enforced_by == by);
        found.add("enforced", &[("by", name)], i64::from(is));
    }
    let entries = match (applied, &program) {
        (
            Some(State {
                enforced_by: EnforcedBy::Bpf,
                ..
            }),
            Some(program),
        ) => program.condition.entries as usize,
        (Some(state), _) => state.routes.len(),
        (None, _) => 0,
    };
    found.one("entries", entries);
    found.one(
        "refused_destinations",
        applied.map_or(0, |state| state.refused.len()),
    );
    if let Some(State { claim, .. }) = &state {
        of_claim(&mut found, claim);
    }
    let since = answered(&places.run).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    if let Some(since) = since {
        found.one("origin_time_seconds", since.as_secs());
    }
    if let Some(counts) = counts(&places.run) {
        of_parity(&mut found, counts);
    }
    if let Some(program) = &program {
        of_program(&mut found, program);
    }
    Ok(found)
}

fn of_parity(found: &mut Metrics, counts: Counts) {
    for (name, number) in [
        ("parity_total", counts.sent),
        ("parity_bytes_total", counts.sent_bytes),
        ("parity_received_total", counts.received),
        ("parity_repaired_total", counts.repaired),
        ("parity_lost_total", counts.lost),
        ("parity_refused_total", counts.refused),
    ] {
        found.one(name, number);
    }
}

fn of_claim(found: &mut Metrics, claim: &Claim) {
    let labels = [
        ("edge", &claim.edge),
        ("pop", &claim.pop),
        ("policy_version", &claim.policy_version),
    ];
    found.add("info", &labels.map(|(key, text)| (key, text.as_str())), 1);
    found.one("round_time_seconds", claim.round);
    found.one("created_time_seconds", claim.created_at);
    found.one("applied_time_seconds", claim.applied_at);
    found.one("expires_time_seconds", claim.expires_at);
}

fn in_sync(
    applied: Option<&State>,
    actual: &Snapshot,
    program: Option<&bpf::Status>,
    clock: &Clock,
) -> bool {
    let Some(state) = applied else {
        return actual.routes.is_empty() && actual.rules.is_empty() && program.is_none();
    };
    let by_program = match (state.enforced_by, program) {
        (EnforcedBy::Bpf, Some(program)) => {
            let bundle = bpf::name_of_digest(&state.claim.bundle_digest);
            program.condition.drift.is_empty() && program.condition.bundle == bundle
        }
        (EnforcedBy::Bpf, None) => false,
        (_, found) => found.is_none(),
    };
    by_program
        && written(&actual.routes) == state.routes
        && actual.rules == state.families()
        && !state.claim.expired(clock)
}

fn of_program(found: &mut Metrics, program: &bpf::Status) {
    let bpf::Status {
        condition,
        totals,
        prefixes,
        ..
    } = program;
    found.one("attached", i64::from(condition.attached));
    found.one("other_programs", condition.others.len());
    found.one("prefixes", program.prefixes_known);
    found.one("prefixes_limit", program.prefixes_limit);
    found.one(
        "first_flights",
        prefixes
            .iter()
            .map(|one| u64::from(one.in_first_flights))
            .sum::<u64>(),
    );
    found.one("caps", totals.caps.saturating_sub(totals.caps_ended));
    for (step, name) in [(1, "half"), (2, "default")] {
        let braked = |arm: fn(&bpf::EntryStatus) -> &bpf::ArmStatus| {
            let there = prefixes
                .iter()
                .filter(|one| arm(one).brake_step == step)
                .count();
            i64::try_from(there).unwrap_or(i64::MAX)
        };
        found.add(
            "braked_entries",
            &[("arm", "entry"), ("step", name)],
            braked(|one| &one.entry),
        );
        found.add(
            "braked_entries",
            &[("arm", "trial"), ("step", name)],
            braked(|one| &one.trial),
        );
    }
    counters(found, totals);
}

fn counters(found: &mut Metrics, totals: &bpf::Totals) {
    for (name, value) in [
        ("started_total", totals.started),
        ("untreated_total", totals.untreated),
        ("excluded_total", totals.excluded),
        ("opted_out_total", totals.opted_out),
        ("expired_total", totals.expired),
        ("late_total", totals.late),
        ("own_rate_total", totals.own_rate),
        ("exposed_total", totals.exposed),
        ("lost_total", totals.lost),
        ("switched_total", totals.switched),
        ("brake_steps_total", totals.braked),
        ("brake_excused_total", totals.excused),
        ("copies_total", totals.copies),
        ("copied_bytes_total", totals.copied_bytes),
        ("copies_refused_total", totals.copies_refused),
        ("records_total", totals.records),
        ("records_lost_total", totals.records_lost),
    ] {
        found.one(name, value);
    }
    for (what, value) in [
        ("window", totals.refused_window),
        ("rate", totals.refused_rate),
        ("algorithm", totals.refused_algorithm),
        ("socket", totals.no_memory),
        ("prefix", totals.no_state),
    ] {
        found.add(
            "refused_total",
            &[("what", what)],
            i64::try_from(value).unwrap_or(i64::MAX),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_its_help_and_labels_are_quoted() {
        let mut metrics = Metrics::default();
        metrics.one("routes", 3);
        metrics.add("info", &[("edge", "a\"b\\c\nd")], 1);
        let expected = "\
# HELP springtide_edge_info 1, with the edge, its PoP and the policy's version of the newest bundle.
# TYPE springtide_edge_info gauge
springtide_edge_info{edge=\"a\\\"b\\\\c\\nd\"} 1
# HELP springtide_edge_files_missed_total Times that this file could not be written since the process began.
# TYPE springtide_edge_files_missed_total counter
springtide_edge_files_missed_total 2
# HELP springtide_edge_routes Routes of ours in the kernel.
# TYPE springtide_edge_routes gauge
springtide_edge_routes 3
";
        assert_eq!(metrics.text(2), expected);
    }

    #[test]
    fn every_number_of_the_program_is_described() {
        let mut metrics = Metrics::default();
        of_program(&mut metrics, &bpf::Status::default());
        of_parity(&mut metrics, Counts::default());
        for (name, ..) in &metrics.0 {
            assert!(METRICS.iter().any(|(known, ..)| known == name), "{name}");
        }
    }
}
