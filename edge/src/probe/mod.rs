//! Probes between PoPs: small objects over fresh connections, whose sender starts with the window in force.
//!
//! `serve` answers, `fetch` asks once, `round` asks everybody in turn and writes down what it measured.

mod fetch;
mod objects;
mod round;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::error::Result;

/// Options of `springtide-edge probe`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    what: What,
    /// Where the results of --targets go, as probes-SECONDS.jsonl; at most 240 files and 32 MB, the oldest go first
    #[arg(long, value_name = "DIR", default_value = "/var/lib/springtide-probe")]
    out: PathBuf,
    /// Seconds over which the fetches of --targets are spread at random
    #[arg(long, value_name = "S", default_value_t = 2700, value_parser = clap::value_parser!(u64).range(0..=3000))]
    spread: u64,
    /// Seconds for each fetch
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    /// This edge's name; default: the content of /etc/springtide/edge
    #[arg(long, value_name = "NAME")]
    edge: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Answer HTTP with the three objects there, until it is ended; may be given more than once
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve: Vec<SocketAddr>,
    /// Fetch each object once from each ADDRESS:PORT of this file, one a line, one after another
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
}

/// Runs, and returns what it says at its end, or why it cannot.
pub(crate) fn run(
    options: &Options,
    edge_name: impl Fn(Option<&str>) -> Result<String>,
) -> Result<String> {
    match &options.what.targets {
        Some(targets) => {
            let host = edge_name(options.edge.as_deref())?;
            let plan = round::Plan {
                host: &host,
                spread: Duration::from_secs(options.spread),
                // The paper's slowest probes take a few seconds.
                time: Duration::from_secs(options.timeout),
            };
            round::run(targets, &options.out, &plan)
        }
        None => serve::run(&options.what.serve),
    }
}
