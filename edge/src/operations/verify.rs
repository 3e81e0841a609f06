//! A bundle and its signature, without the kernel.

use std::path::Path;

use serde::Serialize;

use super::report::Report;
use super::run::{Given, Source, read_clock};
use crate::bundle::{self, Bundle};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::instant;
use crate::signature;
use crate::text::reason;

/// The report of `verify`.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    command: &'static str,
    edge: String,
    pop: String,
    round: String,
    policy_version: String,
    created_at: String,
    expires_at: String,
    digest: String,
    signed: bool,
    entries: usize,
    windows: usize,
    start_rates: usize,
    congestion_controls: usize,
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

/// The bundle, whose signature counts, and its bytes.
pub(super) fn read(source: &Source<'_>, clock: &Clock) -> Result<(Bundle, Vec<u8>)> {
    let shown = source.bundle.shown();
    let raw = content(&source.bundle)?;
    if let Some(signers) = source.allowed_signers {
        let now = clock.now();
        match source.bundle {
            Given::File(path) => {
                let mut signed = path.as_os_str().to_owned();
                signed.push(".sig");
                let signed = Path::new(&signed);
                let armored = || signature::read(signed);
                let shown = signed.display().to_string();
                signature::verify(&shown, &raw, armored, signers, now)?;
            }
            Given::Bytes { signature: b"", .. } => return Err(signature::missing(&shown)),
            Given::Bytes {
                signature: armored, ..
            } => {
                let armored = || Ok(armored.to_vec());
                signature::verify(&shown, &raw, armored, signers, now)?;
            }
        }
    }
    let bundle = bundle::parse(&raw, &shown, source.edge, clock.now())?;
    Ok((bundle, raw))
}

fn content(given: &Given<'_>) -> Result<Vec<u8>> {
    let path = match given {
        Given::Bytes { content, .. } => return Ok(content.to_vec()),
        Given::File(path) => path,
    };
    let (_, raw) = read_regular(path, bundle::MAX_BYTES).map_err(|error| {
        let regular = error.kind() != std::io::ErrorKind::InvalidInput;
        let fix = if regular {
            "name a bundle that this user can read"
        } else {
            "name a bundle"
        };
        let shown = path.display();
        Error::refused(format!("{shown}: file: {}; {fix}", reason(&error)))
    })?;
    Ok(raw)
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
