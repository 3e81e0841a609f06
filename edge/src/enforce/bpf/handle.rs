//! The program on this host, as those see it who do not care how it is kept.

use super::pins::{self, Places};
use super::status::{self, Condition, Status};
use super::support::supported;
use super::{apply, error, others, withdraw};
use crate::bundle::{Bundle, Live};
use crate::error::{Error, Result};

/// See the module. It opens nothing before it is asked.
pub(crate) struct Program {
    places: Places,
}

impl From<error::Error> for Error {
    fn from(error: error::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl Program {
    pub(crate) fn new(places: Places) -> Self {
        Self { places }
    }

    /// Whether anything of it is there.
    pub(crate) fn stands(&self) -> bool {
        pins::stands(&self.places)
    }

    /// Why this host cannot run it, or None.
    pub(crate) fn problem(&self) -> Option<String> {
        // An attached program was taken by the verifier.
        if self.condition().is_ok_and(|found| found.attached) {
            return None;
        }
        supported(&self.places).err().map(|error| error.to_string())
    }

    /// Reads what it has done and what is not as it was left.
    pub(crate) fn status(&self) -> Result<Status> {
        Ok(status::status(&self.places)?)
    }

    fn condition(&self) -> Result<Condition> {
        Ok(status::condition(&self.places)?)
    }

    /// Whether somebody withdrew it, as the absence of our rule says it of routes. What is only detached is drift.
    pub(crate) fn is_taken_away(&self) -> bool {
        status::is_taken_away(&self.places)
    }

    /// Differences from how it was left, in words.
    pub(crate) fn drift(&self) -> Vec<String> {
        match self.condition() {
            Ok(found) => found.drift.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    /// Whether just this bundle is in force, and nothing is to repair.
    pub(crate) fn holds(&self, bundle: &Bundle) -> bool {
        self.condition()
            .is_ok_and(|found| found.drift.is_empty() && found.bundle == apply::name_of(bundle))
    }

    /// Tells it whether there are other programs beside it; where that fails, it takes it that there are.
    pub(crate) fn note_others(&self) {
        let _ = others::note_others(&self.places);
    }

    /// Puts a bundle in force; what could not be done though it is.
    pub(crate) fn apply(&self, bundle: &Bundle) -> Result<Vec<String>> {
        Ok(apply::apply(bundle, &self.places)?.warnings)
    }

    /// Removes everything; whether there was anything, and what could not be done.
    pub(crate) fn withdraw(&self, live: Live) -> Result<(bool, Vec<String>)> {
        let done = withdraw::withdraw(&self.places, live)?;
        Ok((done.changed, done.warnings))
    }
}
