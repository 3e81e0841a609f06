//! The counters as one line of JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::path::Counters;

/// One directed path; the same PoP twice is the path inside it.
#[derive(Debug, Serialize)]
pub struct PathReport<'a> {
    pub src: &'a str,
    pub dst: &'a str,
    #[serde(flatten)]
    pub counters: Counters,
}

/// Packets that no path accounts for.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Strays {
    /// Not IPv4 or IPv6.
    pub malformed: u64,
    /// To an address that no node has: multicast, as a rule.
    pub no_route: u64,
    /// Refused by the destination's device, because it was down or gone.
    pub undelivered: u64,
}

/// Everything that is counted.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    pub paths: Vec<PathReport<'a>>,
    #[serde(flatten)]
    pub strays: Strays,
    pub in_flight_bytes: u64,
}

impl Report<'_> {
    /// Writes one line to standard output.
    pub fn print(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }
}
