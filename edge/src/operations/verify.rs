//! A bundle and its signature, without the kernel.

use serde::Serialize;

use super::given::Source;
use super::report::Report;
use super::run::read_clock;
use crate::bundle::{self, Bundle};
use crate::clock::Clock;
use crate::error::Result;
use crate::instant;
use crate::signature;

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
    let (given, now) = (&source.bundle, clock.now());
    let raw = given.content()?;
    if let Some(signers) = source.allowed_signers {
        let armored = || given.signature();
        signature::verify(&given.shown_signature(), &raw, armored, signers, now)?;
    }
    let bundle = bundle::parse(&raw, &given.shown(), source.edge, now)?;
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
