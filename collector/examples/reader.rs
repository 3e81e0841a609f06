//! The collector's own cost over the floor: polls as `run` does, decodes and encodes, and keeps nothing.
//!
//! `cargo run --release --example reader -- --polls 20`. Prints one line of JSON: rows of a poll, microseconds of CPU for
//! each, and the process' largest resident size.

use std::time::Duration;

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use springtide_collector::parts::NullSink;
use springtide_collector::parts::Poller;
use springtide_collector::parts::Stats;
use springtide_collector::parts::host;
use springtide_collector::parts::{AccEcn, Identity};
use springtide_collector::parts::{Following, Source};

/// Polls, decodes, encodes, and keeps nothing.
#[derive(Parser)]
struct Options {
    /// Polls to do, one right after the other
    #[arg(long, default_value_t = 10)]
    polls: u64,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    following: Following,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let identity = Identity {
        host: "ams-1".to_owned(),
        pop: "ams".to_owned(),
        boot_id: host::boot_id()?,
        netns: host::netns()?,
    };
    let accecn = AccEcn::of_release(&host::kernel_release());
    let settings = options
        .following
        .settings(&options.source, Duration::from_secs(1));
    let mut poller = Poller::new(identity, accecn, settings)?;
    let mut stats = Stats::default();
    let before = cpu();
    for sequence in 1..=options.polls {
        poller.poll(sequence, &mut NullSink, &mut stats)?;
    }
    let used = cpu() - before;
    let sockets = stats.rows + stats.rows_unchanged + stats.sockets_sampled_out;
    println!(
        "{{\"rows\":{},\"cpu_us_per_socket\":{:.4},\"peak_rss_kib\":{},\"stats\":{}}}",
        stats.rows / options.polls.max(1),
        used.as_secs_f64() * 1e6 / sockets.max(1) as f64,
        peak_rss_kib()?,
        stats.to_json()
    );
    Ok(())
}

/// CPU time of this process, user and kernel.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// VmHWM of /proc/self/status, KiB.
fn peak_rss_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmHWM in /proc/self/status")?.parse()?)
}
