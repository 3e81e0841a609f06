//! A wide-area network between network namespaces, for kernels without netem.
//!
//! Every node is a namespace with one TUN device. All packets come to one thread, which looks up the destination
//! address, asks the directed path between the two PoPs what becomes of the packet, and writes it to the destination's
//! device when its time has come.
//!
//! - [`config`]: the JSON file, checked; an error names the file and the field
//! - [`units`]: quantities that cannot be out of range
//! - [`loss`], [`path`], [`schedule`], [`packet`]: pure; time and randomness are handed in
//! - [`tun`]: devices inside namespaces
//! - [`wake`]: epoll, the timer and signals
//! - [`engine`]: the loop that joins them
//! - [`report`]: the counters, as JSON

mod config;
mod engine;
mod loss;
mod packet;
mod path;
mod report;
mod schedule;
mod tun;
mod units;
mod wake;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Emulates the paths between network namespaces: delay, jitter, loss, rate, queue and duplication.
///
/// Says "ready" on standard output once every TUN device exists. SIGUSR1 prints the counters there as one line of JSON;
/// SIGTERM and SIGINT print them a last time and end the program, and with it its devices.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  springtide-wan --config wan.json\n  springtide-wan --config wan.json --check"
)]
struct Arguments {
    /// Nodes and paths, as JSON
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Read the file, say what is wrong with it, and make nothing
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let network = match config::load(&arguments.config) {
        Ok(network) => network,
        Err(error) => {
            eprintln!("springtide-wan: {error}");
            return ExitCode::from(2);
        }
    };
    if arguments.check {
        return ExitCode::SUCCESS;
    }
    match engine::run(network) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("springtide-wan: {error}");
            ExitCode::FAILURE
        }
    }
}
