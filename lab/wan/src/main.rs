//! A wide-area network between network namespaces, for kernels without netem.
//!
//! Every node is a namespace with one TUN device. All packets come to one thread. It looks up the destination address,
//! passes the packet through the directed path between the two PoPs, and writes it to the destination's device when its
//! time has come.
//!
//! - [`config`]: the JSON file, checked; an error names the file and the field
//! - [`units`]: quantities that cannot be out of range
//! - [`loss`], [`path`], [`schedule`], [`packet`], [`flows`]: pure; time and randomness are handed in
//! - [`tun`]: devices inside namespaces
//! - [`wake`]: epoll, the timer and signals
//! - [`engine`]: the loop that joins them
//! - [`report`]: the counters, as JSON

mod config;
mod engine;
mod flows;
mod loss;
mod packet;
mod path;
mod report;
mod schedule;
mod tun;
mod units;
mod wake;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::flows::Flows;

/// Emulates the paths between network namespaces: delay, jitter, loss, policer, rate, queue and duplication.
///
/// Prints "ready" on standard output once every TUN device exists. SIGUSR1 prints the counters there as one line of JSON;
/// SIGHUP reads the file again, whose paths may have changed, and prints them too; SIGTERM and SIGINT print them a last
/// time and end the program, and with it its devices.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  springtide-wan --config wan.json\n  springtide-wan --config wan.json --check"
)]
struct Arguments {
    /// Nodes and paths, as JSON
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Read the file, report what is wrong with it, and make nothing
    #[arg(long)]
    check: bool,
    /// At each print, add what each TCP flow was carried to this file, as lines of JSON
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,
    /// Flows are recorded per interval of this length, aligned with the epoch
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    flows_interval: u32,
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
    let flows = match arguments.flows.as_deref().map(File::create).transpose() {
        Ok(file) => file.map(|file| (Flows::new(arguments.flows_interval), file)),
        Err(error) => {
            eprintln!("springtide-wan: --flows: {error}; give a file that can be written");
            return ExitCode::from(2);
        }
    };
    match engine::run(network, &arguments.config, flows) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("springtide-wan: {error}");
            ExitCode::FAILURE
        }
    }
}
