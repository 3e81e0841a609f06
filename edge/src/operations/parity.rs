//! The service of parity, whose counts are in status and metrics.

use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::run::Places;
use crate::error::Result;
pub(super) use crate::parity::Counts;
use crate::parity::serve;

/// Name of the run directory's file of counts.
const FILE: &str = "parity.json";

/// Runs the service: `key` is the file with the fleet's secret, `port` that of UDP.
///
/// # Errors
///
/// [`Error::Refused`](crate::error::Error::Refused) where key or port cannot be used,
/// [`Error::Failed`](crate::error::Error::Failed) where the kernel does not let it.
pub fn parity(places: &Places, key: &Path, port: u16) -> Result<Infallible> {
    let mut kept = None;
    let mut tell = |counts: Counts| {
        if kept != Some(counts) {
            keep(&places.run, counts);
        }
        kept = Some(counts);
    };
    serve(&places.program, key, port, &mut tell)
}

/// A disk that takes nothing keeps nothing from being repaired.
fn keep(run: &Path, counts: Counts) {
    let _ = DirBuilder::new().mode(0o700).recursive(true).create(run);
    let new = run.join(format!(".{FILE}.new"));
    let text = serde_json::to_vec(&counts).unwrap_or_default();
    let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, run.join(FILE)));
}

/// Counts since the service began, where it has run since the host did.
pub(super) fn counts(run: &Path) -> Option<Counts> {
    let text = fs::read(run.join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}
