//! The eBPF program, as operations see it.

use crate::bundle::{Bundle, Live};
use crate::enforce::bpf::{self, Places};
use crate::error::{Error, Result};

/// See the module. It opens nothing before it is asked.
pub(super) struct Program {
    places: Places,
}

impl From<bpf::Error> for Error {
    fn from(error: bpf::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl Program {
    pub(super) fn new(places: Places) -> Self {
        Self { places }
    }

    /// Whether anything of it is there.
    pub(super) fn stands(&self) -> bool {
        bpf::stands(&self.places)
    }

    /// Why this host cannot run it, or None.
    pub(super) fn problem(&self) -> Option<String> {
        // What is attached was taken by the verifier.
        if self.condition().is_ok_and(|found| found.attached) {
            return None;
        }
        bpf::supported(&self.places)
            .err()
            .map(|error| error.to_string())
    }

    /// What it has done and what is not as it was left.
    pub(super) fn status(&self) -> Result<bpf::Status> {
        Ok(bpf::status(&self.places)?)
    }

    fn condition(&self) -> Result<bpf::Condition> {
        Ok(bpf::condition(&self.places)?)
    }

    /// Whether somebody withdrew it, as the absence of our rule says it of routes. What is only detached is drift.
    pub(super) fn is_taken_away(&self) -> bool {
        bpf::is_taken_away(&self.places)
    }

    /// How it is not as it was left, in words.
    pub(super) fn drift(&self) -> Vec<String> {
        match self.condition() {
            Ok(found) => found.drift.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    /// Whether just this bundle is in force, and nothing is to repair.
    pub(super) fn holds(&self, bundle: &Bundle) -> bool {
        self.condition()
            .is_ok_and(|found| found.drift.is_empty() && found.bundle == bpf::name_of(bundle))
    }

    /// Tells it whether there are other programs beside it; where that fails, it takes it that there are.
    pub(super) fn note_others(&self) {
        let _ = bpf::note_others(&self.places);
    }

    /// Puts a bundle in force; what could not be done though it is.
    pub(super) fn apply(&self, bundle: &Bundle) -> Result<Vec<String>> {
        Ok(bpf::apply(bundle, &self.places)?.warnings)
    }

    /// Removes everything; whether there was anything, and what could not be done.
    pub(super) fn withdraw(&self, live: Live) -> Result<(bool, Vec<String>)> {
        let done = bpf::withdraw(&self.places, live)?;
        Ok((done.changed, done.warnings))
    }
}

/// What `status` says of it.
pub(super) fn program_lines(program: &bpf::Status) -> Vec<String> {
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
