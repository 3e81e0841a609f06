//! What a command reports: one JSON object for machines, lines for people.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::Value;

use crate::enforce::bpf;
use crate::enforce::routes::{Change, NotEnforced, Routes};
use crate::error::code;
use crate::kernel::{Family, Way, show};
use crate::state::{EnforcedBy, Withdrawn};

/// A destination that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedDestination {
    /// Which.
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

    fn line(&self) -> String {
        format!(
            "{} added, {} replaced, {} removed",
            self.added, self.replaced, self.removed
        )
    }
}

/// Of `apply`, and of its preview.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    pub(super) command: &'static str,
    pub(super) changed: bool,
    pub(super) edge: String,
    pub(super) round: String,
    pub(super) digest: String,
    pub(super) expires_at: String,
    pub(super) enforced_by: EnforcedBy,
    pub(super) routes: usize,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) refused: Vec<RefusedDestination>,
    pub(super) not_enforced: NotEnforced,
    pub(super) notes: Vec<String>,
}

/// Of `apply --dry-run`.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    #[serde(flatten)]
    pub(super) report: Applied,
    pub(super) before: BTreeMap<String, String>,
    pub(super) after: BTreeMap<String, String>,
}

/// Of `withdraw`, and of `expire` and `follow` where they took back.
#[derive(Clone, Debug, Serialize)]
pub struct TakenBack {
    pub(super) command: &'static str,
    pub(super) changed: bool,
    pub(super) removed: usize,
    /// Whether the eBPF program was there.
    pub(super) program: bool,
    pub(super) reason: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Of `withdraw --dry-run`.
#[derive(Clone, Debug, Serialize)]
pub struct WithdrawalPreview {
    pub(super) command: &'static str,
    pub(super) changed: bool,
    pub(super) removed: usize,
    pub(super) before: BTreeMap<String, String>,
}

/// Of `follow`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Followed {
    /// Its time was over, or the copies could not follow.
    TakenBack(TakenBack),
    /// It still holds.
    Copied {
        #[serde(rename = "command")]
        #[doc(hidden)]
        command: &'static str,
        #[doc(hidden)]
        changed: bool,
        #[serde(flatten)]
        #[doc(hidden)]
        counts: Counts,
        #[doc(hidden)]
        reason: Option<String>,
        /// Seconds until a route of the host's runs out.
        next_look_s: Option<f64>,
        #[doc(hidden)]
        refused: Vec<RefusedDestination>,
        #[doc(hidden)]
        notes: Vec<String>,
    },
}

impl Followed {
    /// Whether anything is different now.
    pub fn changed(&self) -> bool {
        match self {
            Self::TakenBack(report) => report.changed,
            Self::Copied { changed, .. } => *changed,
        }
    }

    /// Destinations that are not served.
    pub(super) fn refused(&self) -> &[RefusedDestination] {
        match self {
            Self::TakenBack(_) => &[],
            Self::Copied { refused, .. } => refused,
        }
    }

    /// Seconds until a route of the host's runs out.
    pub fn next_look_s(&self) -> Option<f64> {
        match self {
            Self::TakenBack(_) => None,
            Self::Copied { next_look_s, .. } => *next_look_s,
        }
    }
}

/// How the kernel differs from what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    pub(super) prefix: String,
    pub(super) wanted: Option<String>,
    pub(super) found: Option<String>,
}

/// Of `status`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub(super) command: &'static str,
    pub(super) applied: bool,
    #[serde(flatten)]
    pub(super) claim: Option<StatusClaim>,
    pub(super) routes: usize,
    /// The eBPF program, where anything of it is there.
    pub(super) program: Option<bpf::Status>,
    pub(super) drift: Vec<Drift>,
    pub(super) notes: Vec<String>,
    pub(super) in_sync: bool,
}

/// What is applied, or was.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StatusClaim {
    pub(super) edge: String,
    pub(super) pop: String,
    pub(super) round: String,
    pub(super) policy_version: String,
    pub(super) digest: String,
    pub(super) applied_at: String,
    pub(super) expires_at: String,
    pub(super) expired: bool,
    pub(super) withdrawn: Option<Withdrawn>,
    pub(super) enforced_by: EnforcedBy,
    pub(super) refused: Vec<RefusedDestination>,
}

/// Of `verify`.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    pub(super) command: &'static str,
    pub(super) edge: String,
    pub(super) pop: String,
    pub(super) round: String,
    pub(super) policy_version: String,
    pub(super) created_at: String,
    pub(super) expires_at: String,
    pub(super) digest: String,
    pub(super) signed: bool,
    pub(super) entries: usize,
    pub(super) windows: usize,
    pub(super) start_rates: usize,
    pub(super) congestion_controls: usize,
}

/// What commands answer with.
pub trait Report: Serialize {
    /// That of the process.
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

fn partial(refused: &[RefusedDestination]) -> u8 {
    if refused.is_empty() {
        code::DONE
    } else {
        code::PARTIAL
    }
}

fn rest(refused: &[RefusedDestination], notes: &[String]) -> Vec<String> {
    let refused = refused
        .iter()
        .map(|one| format!("refused: {}: {}", one.prefix, one.reason));
    refused
        .chain(notes.iter().map(|note| format!("note: {note}")))
        .collect()
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

impl Report for Followed {
    fn exit_code(&self) -> u8 {
        match self {
            Self::TakenBack(report) => report.exit_code(),
            Self::Copied { refused, .. } => partial(refused),
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::TakenBack(report) => report.lines(),
            Self::Copied {
                changed,
                counts,
                refused,
                notes,
                ..
            } => {
                let done = if *changed {
                    counts.line()
                } else {
                    "unchanged".to_owned()
                };
                let mut lines = vec![format!("follow: {done}")];
                lines.extend(rest(refused, notes));
                lines
            }
        }
    }
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

/// What `status` says of it.
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

impl Report for Verified {
    fn lines(&self) -> Vec<String> {
        let signed = if self.signed {
            "signed by an allowed key"
        } else {
            "NOT checked for a signature"
        };
        vec![
            format!(
                "good: {}, round {}, until {}, {signed}",
                self.edge, self.round, self.expires_at
            ),
            format!(
                "entries: {} ({} windows, {} start rates, {} congestion controls)",
                self.entries, self.windows, self.start_rates, self.congestion_controls
            ),
        ]
    }
}

/// Destination -> way, as people read it.
pub(super) fn shown(routes: &Routes) -> BTreeMap<String, String> {
    let one = |(prefix, way): (&IpNet, &Way)| (prefix.to_string(), show(way, Family::of(prefix)));
    routes.iter().map(one).collect()
}
