//! For people, and for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::paths::{Estimate, Estimates, MOST_GROUPS, SIZES};
use super::resample::Interval;
use super::seen::{MOST_CONNECTIONS, Seen};

/// The place in SIZES of the size that the first line reports.
const REPORTED: usize = 2;

/// Words for connections that do not count.
pub(super) const LOCAL: &str =
    "connections to this host itself were left out: --local includes them";

/// The groups that means are of: those whose rate is known. Where none is, all; means are lower bounds then.
fn averaged(found: &Estimates) -> Vec<&Estimate> {
    let met: Vec<&Estimate> = found.known.iter().filter(|one| one.is_met).collect();
    if met.is_empty() {
        found.known.iter().collect()
    } else {
        met
    }
}

/// Values of the first line: means over connections that began, else over groups; ms.
fn mean(groups: &[&Estimate]) -> (f64, f64) {
    let all: u64 = groups.iter().map(|one| one.fresh).sum();
    let (mut default, mut saved, mut weights) = (0.0, 0.0, 0.0);
    for one in groups {
        let weight = if all > 0 { one.fresh as f64 } else { 1.0 };
        default += weight * one.savings[REPORTED].default_ms;
        saved += weight * one.savings[REPORTED].saved_ms.estimate;
        weights += weight;
    }
    (default / weights, saved / weights)
}

/// With a decimal where it was short.
pub(super) fn seconds(watched: Duration) -> String {
    let seconds = watched.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}

/// The answer in a line, then a line for each group.
pub(super) fn table(
    found: &Estimates,
    seen: &Seen,
    watched: Duration,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let groups = averaged(found);
    let fresh: u64 = groups.iter().map(|one| one.fresh).sum();
    let (default, saved) = mean(&groups);
    let least = if groups.iter().all(|one| one.is_met) {
        ""
    } else {
        "at least "
    };
    let over = if fresh > 0 {
        format!(
            "the mean over {fresh} connections that began in {}{}",
            seconds(watched),
            if groups.len() < found.known.len() {
                format!(" to {} of {} destinations", groups.len(), found.known.len())
            } else {
                String::new()
            }
        )
    } else {
        let destinations = groups.len();
        format!(
            "the mean over {destinations} destinations, as no connection began in {}",
            seconds(watched)
        )
    };
    writeln!(
        out,
        "Started at the proved rate, an answer of {} kB would arrive {least}{saved:.0} ms sooner ({:.0} instead of {default:.0} ms, \
         {over}).\n",
        SIZES[REPORTED] / 1000,
        default - saved,
    )?;
    let heading = [
        "DESTINATION",
        "CONNS",
        "BEGUN",
        "RTT",
        "MBIT/S",
        "10 kB",
        "50 kB",
        "100 kB",
        "95 %",
        "IN ALL",
    ];
    let mut lines = vec![heading.map(str::to_owned)];
    lines.extend(found.known.iter().take(top).map(cells));
    aligned(&lines, out)?;
    writeln!(
        out,
        "\n10, 50, 100 kB: ms saved of an answer of that size, in brackets round trips; 95 %: interval of the ms of 100 kB; in all: of \
         the connections that began; ≥: a lower bound, no connection met the path."
    )?;
    for left in remarks(found, seen, top) {
        writeln!(out, "{left}")?;
    }
    Ok(())
}

/// The first column to the left, the others to the right.
fn aligned(lines: &[[String; 10]], out: &mut dyn Write) -> io::Result<()> {
    let width = |at: usize| {
        lines
            .iter()
            .map(|line| line[at].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 10] = std::array::from_fn(width);
    for line in lines {
        let [first, others @ ..] = line;
        write!(out, "{first:<0$}", widths[0])?;
        for (cell, width) in others.iter().zip(&widths[1..]) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn remarks(found: &Estimates, seen: &Seen, top: usize) -> Vec<String> {
    let hidden = found.known.len().saturating_sub(top);
    let of = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
    [
        of(hidden, "more destinations: --top shows them"),
        of(
            found.unknown,
            "destinations without a rate: too little was sent to them",
        ),
        of(
            found.left_out,
            &format!(
                "destinations beyond {MOST_GROUPS} were left out: group them by --fleet or --asn"
            ),
        ),
        of(seen.local(), LOCAL),
        (seen.left_out() > 0).then(|| {
            // They are counted up to here.
            let least = if seen.left_out() < MOST_CONNECTIONS { "" } else { "at least " };
            format!(
                "{least}{} connections beyond {MOST_CONNECTIONS} were left out: read one in N with --sample",
                seen.left_out()
            )
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cells(one: &Estimate) -> [String; 10] {
    let saved = |at: usize| {
        let saving = &one.savings[at];
        format!(
            "{:.0} ({:.1})",
            saving.saved_ms.estimate, saving.saved_round_trips.estimate
        )
    };
    let interval = &one.savings[REPORTED].saved_ms;
    let least = if one.is_met { "" } else { "≥" };
    [
        one.name.clone(),
        one.connections.to_string(),
        one.fresh.to_string(),
        format!("{:.1}", one.rtt_ms.estimate),
        format!("{least}{:.1}", one.rate.estimate * 8e-6),
        saved(0),
        saved(1),
        saved(2),
        format!("{:.0} to {:.0}", interval.low, interval.high),
        format!("{:.1} s", one.total_ms.estimate / 1000.0),
    ]
}

/// One object; keys as `springtide advise --json` has them.
pub(super) fn json(
    found: &Estimates,
    seen: &Seen,
    watched: Duration,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let document = json!({
        "seconds": (watched.as_secs_f64() * 1000.0).round() / 1000.0,
        "connections_seen": seen.len(),
        "connections_local": seen.local(),
        "connections_left_out": seen.left_out(),
        "paths_known": found.known.len(),
        "paths_unknown": found.unknown,
        "paths_left_out": found.left_out,
        "paths": found.known.iter().take(top).map(object).collect::<Vec<_>>(),
    });
    writeln!(out, "{document}")
}

fn object(one: &Estimate) -> Value {
    let sizes: Vec<Value> = one
        .savings
        .iter()
        .map(|saving| {
            json!({
                "size_bytes": saving.size,
                "default_ms": rounded(saving.default_ms),
                "default_is_measured": saving.is_measured,
                "start_ms": rounded(saving.start_ms),
                "saved_ms": bounds(saving.saved_ms),
                "saved_round_trips": bounds(saving.saved_round_trips),
            })
        })
        .collect();
    let from: serde_json::Map<String, Value> = SIZES
        .iter()
        .zip(one.fresh_from)
        .map(|(size, count)| (size.to_string(), count.into()))
        .collect();
    json!({
        "destination": one.name,
        "ip_version": one.ip_version,
        "basis": if one.is_met { "met" } else { "at_least" },
        "connections": one.connections,
        "rtt_ms": bounds(one.rtt_ms),
        "rate_bytes_per_s": bounds(one.rate.map(f64::round)),
        "window": one.window,
        "sizes": sizes,
        "fresh_connections": one.fresh,
        "fresh_connections_from": from,
        "total_saved_ms": bounds(one.total_ms),
        "lost_share": (one.lost_share * 1e6).round() / 1e6,
    })
}

fn bounds(of: Interval) -> Value {
    json!({"estimate": rounded(of.estimate), "low": rounded(of.low), "high": rounded(of.high)})
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
