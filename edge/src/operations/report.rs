//! Reports of commands: one JSON object for machines, lines for people.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::Value;

use crate::enforce::routes::{Change, Routes};
use crate::error::code;
use crate::kernel::{Family, Way, show};

/// A destination that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedDestination {
    /// The destination.
    pub prefix: String,
    /// Why.
    pub reason: String,
}

pub(super) fn refused_list<P: ToString>(refused: &BTreeMap<P, String>) -> Vec<RefusedDestination> {
    let one = |(prefix, reason): (&P, &String)| RefusedDestination {
        prefix: prefix.to_string(),
        reason: reason.clone(),
    };
    refused.iter().map(one).collect()
}

/// Steps by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// New destinations.
    pub added: usize,
    /// Destinations with another way.
    pub replaced: usize,
    /// Destinations that went.
    pub removed: usize,
}

impl Counts {
    pub(super) fn of(steps: &[Change]) -> Self {
        let mut counts = Self::default();
        for step in steps {
            match step {
                Change::Add(..) => counts.added += 1,
                Change::Replace(..) => counts.replaced += 1,
                Change::Remove(_) => counts.removed += 1,
                Change::AddRule | Change::RemoveRule => {}
            }
        }
        counts
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{} added, {} replaced, {} removed",
            self.added, self.replaced, self.removed
        )
    }
}

/// Answer of a command.
pub trait Report: Serialize {
    /// Exit code of the process.
    fn exit_code(&self) -> u8 {
        code::DONE
    }

    /// As people read it.
    fn lines(&self) -> Vec<String>;
}

/// A report as one JSON object.
pub fn value(report: &impl Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    value["exit_code"] = report.exit_code().into();
    value
}

/// A report as people read it.
pub fn lines(report: &impl Report) -> String {
    report.lines().join("\n")
}

/// The exit code where some destinations may not be served.
pub(super) fn partial(refused: &[RefusedDestination]) -> u8 {
    if refused.is_empty() {
        code::DONE
    } else {
        code::PARTIAL
    }
}

/// The lines that end a report.
pub(super) fn rest(refused: &[RefusedDestination], notes: &[String]) -> Vec<String> {
    let refused = refused
        .iter()
        .map(|one| format!("refused: {}: {}", one.prefix, one.reason));
    refused
        .chain(notes.iter().map(|note| format!("note: {note}")))
        .collect()
}

/// Destination -> way, as people read it.
pub(super) fn shown(routes: &Routes) -> BTreeMap<String, String> {
    let one = |(prefix, way): (&IpNet, &Way)| (prefix.to_string(), show(way, Family::of(prefix)));
    routes.iter().map(one).collect()
}
