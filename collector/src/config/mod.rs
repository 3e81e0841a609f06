//! The command line, and the configuration behind it: see [`keys`].

pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod render;
pub(crate) mod resolve;
pub(crate) mod source;
pub(crate) mod states;
pub(crate) mod watching;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use self::source::{Following, Source, parse_close_buffer};
use self::watching::Watching;
use crate::options::names::{parse_any_host, parse_pop};
use crate::options::units::parse_duration;
use crate::options::{Reload, key};
use crate::sample::connection::Column;
use crate::sinks::AllOptions;

/// Reads tcp_info of every TCP socket from the kernel: of this network namespace without any privilege, of all others as
/// far as it may.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command line, as its documentation sees it.
pub(crate) fn program() -> clap::Command {
    Cli::command()
}

const EXAMPLES: &str = "\
Examples:
  springtide-collector once                                       every connection, as a table
  springtide-collector once --format json | jq .rtt               the same for programs
  springtide-collector estimate --for 10m                         what starting at the proved rate would save
  springtide-collector run --spool-dir /var/lib/springtide-collector/spool --pop ams
  springtide-collector decode capture.pcap                        a capture of netlink (nlmon) as JSON lines
  springtide-collector cat /var/lib/springtide-collector/spool/*.spool   what has been spooled

Exit codes: 0 done; 1 failed while running, or `cat` met a corrupt record; 2 bad input or usage; 3 too little was
sent for `estimate`.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Poll once and print every socket
    #[command(after_help = "\
Examples:
  springtide-collector once
  springtide-collector once --states all --format json
  springtide-collector once --filter 'dport 443 or src 10.0.0.0/8 and not sport 22'
  springtide-collector once --format spool > now.spool")]
    Once(Once),
    /// Poll again and again into any of the sinks, until SIGINT or SIGTERM
    #[command(after_help = "\
Examples:
  springtide-collector run --spool-dir /var/lib/springtide-collector/spool
  springtide-collector run --spool-dir /var/lib/springtide-collector/spool --interval 250ms --host ams-1 --pop ams
  springtide-collector run --spool-dir /var/lib/springtide-collector/spool --netns all --sample 10 --changes-only
  springtide-collector run --spool-dir /tmp/spool --rotate-interval 5s --rotate-bytes 1MiB --stats
  springtide-collector run --kafka kafka-1:9092,kafka-2:9092
  springtide-collector run --kafka kafka-1:9093 --kafka-option security.protocol=ssl --kafka-option ssl.ca.location=ca.pem
  springtide-collector run --clickhouse https://clickhouse:8443 --clickhouse-user collector --queue-bytes 4GiB")]
    Run(Box<Run>),
    /// Decode a pcap file of netlink messages and print one JSON object a socket
    #[command(after_help = "\
Examples:
  springtide-collector decode capture.pcap
  springtide-collector decode capture.pcap --kernel 6.18 --stats > sockets.json")]
    Decode(Decode),
    /// Print the samples of spool files as JSON lines
    #[command(after_help = "\
Examples:
  springtide-collector cat ams-1-1767322800000000-812-1.spool
  springtide-collector cat /var/lib/springtide-collector/spool/*.spool --stats | jq -r .dst_ip")]
    Cat(Cat),
    /// Print a configuration file for `run`
    #[command(after_help = "\
Examples:
  springtide-collector config --default > /etc/springtide/collector.toml
  springtide-collector run --config edge.toml --check-config      is it right, and what is in force?

Every option of run but --config, --check-config, --polls and --stats is also a key of the configuration file (`[spool]
dir` for --spool-dir) and a variable of the environment (SPRINGTIDE_COLLECTOR_SPOOL_DIR). The command line goes before
the environment, the environment before the file.")]
    Config(Config),
    /// Watch connections live, like htop
    #[command(after_help = "\
Examples:
  springtide-collector top                                        ? shows the keys
  springtide-collector top --filter 'dport 443' --sort rtt
  springtide-collector top --once | head -20                      what retransmits most, now
  springtide-collector top --json | jq 'select(.rtt_us > 200000) | .peer'")]
    Top(Top),
    /// Watch for a while, and say what starting at the proved rate would save, by destination
    #[command(after_help = "\
Examples:
  springtide-collector estimate --for 10m
  springtide-collector estimate --for 1h --filter 'sport 443' --json > gain.json
  springtide-collector estimate --for 10m --fleet /etc/springtide/fleet.yaml --asn origins.csv

It reads and changes nothing. The arithmetic is that of `springtide advise`, which has all hosts' samples. Exit codes: 0 there is an
estimate; 1 failed while running; 2 bad input or usage; 3 too little was sent to show one.")]
    Estimate(Estimate),
    /// Print a script that completes commands and options in a shell
    #[command(after_help = "\
Examples:
  springtide-collector completion bash > /etc/bash_completion.d/springtide-collector
  springtide-collector completion fish > ~/.config/fish/completions/springtide-collector.fish")]
    Completion(Completion),
    /// Print every metric of `run` with its type and its meaning, as Prometheus would read them
    Metrics(Report),
    /// Write the manual pages into a directory, for packages
    #[command(hide = true)]
    Man(Man),
}

/// Form in which `once` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people
    Table,
    /// One JSON object a line
    Json,
    /// Records as in a spool file
    Spool,
    /// Not at all: for measuring what reading and encoding cost
    Null,
}

/// Options of `once`.
#[derive(Debug, Args)]
pub(crate) struct Once {
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Options of what is read.
    #[command(flatten)]
    pub source: Source,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Time from one poll's start to the next one's: 250ms, 1s, 5m (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration,
          add = key("interval").on_reload(Reload::Poller))]
    pub interval: Duration,
    /// End after this many polls
    #[arg(long, value_name = "N")]
    pub polls: Option<u64>,
    /// Configuration file [default: /etc/springtide/collector.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print what is in force, and end
    #[arg(long)]
    pub check_config: bool,
    /// Options for watching it.
    #[command(flatten)]
    pub watching: Watching,
    /// Options of what is read.
    #[command(flatten)]
    pub source: Source,
    /// Options for following sockets.
    #[command(flatten)]
    pub following: Following,
    /// Where it goes.
    #[command(flatten)]
    pub sinks: AllOptions,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// Print every key with its meaning and its default
    #[arg(long, required = true)]
    pub default: bool,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Time from one look to the next: 250ms, 1s, 5m (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// Column to sort by at first
    #[arg(long, value_enum, default_value = "retrans-rate")]
    pub sort: SortKey,
    /// Put connections together by the peer's prefix: /24, /56
    #[arg(long)]
    pub group: bool,
    /// Print one table of all connections and end; the default without a terminal
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a connection and end
    #[arg(long, conflicts_with = "group")]
    pub json: bool,
    /// Options of what is read.
    #[command(flatten)]
    pub source: Source,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `completion`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory
    pub dir: PathBuf,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `estimate`.
#[derive(Debug, Args)]
pub(crate) struct Estimate {
    /// Time to watch: 30s, 10m, 24h; SIGINT ends it earlier with what it has
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub time: Duration,
    /// Time from one look to the next: 250ms, 1s, 5m (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// The kernel's buffer for closing connections, in each network namespace; one takes 1.3 KB until it is read. More
    /// than net.core.rmem_max needs CAP_NET_ADMIN (1 to 1GiB)
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = parse_close_buffer)]
    pub close_buffer: usize,
    /// fleet.yaml: its PoPs are destinations, by their prefixes
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,
    /// CSV with the header prefix,asn,name: autonomous systems are destinations; else prefixes are, /24 and /56
    #[arg(long, value_name = "FILE")]
    pub asn: Option<PathBuf>,
    /// Connections to loopback and to this host's own addresses too, which are left out and counted otherwise
    #[arg(long)]
    pub local: bool,
    /// Destinations to print, those that would save most
    #[arg(long, value_name = "N", default_value = "20")]
    pub top: NonZeroUsize,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Options of what is read.
    #[command(flatten)]
    pub source: Source,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Column that `top` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "each is the column of its name")]
pub(crate) enum SortKey {
    RetransRate,
    Retrans,
    Rtt,
    MinRtt,
    Cwnd,
    Rate,
    Acked,
    Peer,
}

impl SortKey {
    /// The column.
    pub(crate) fn column(self) -> Column {
        match self {
            Self::RetransRate => Column::RetransPerSecond,
            Self::Retrans => Column::Retrans,
            Self::Rtt => Column::Rtt,
            Self::MinRtt => Column::MinRtt,
            Self::Cwnd => Column::Cwnd,
            Self::Rate => Column::Rate,
            Self::Acked => Column::Acked,
            Self::Peer => Column::Peer,
        }
    }
}

/// Options of `decode`.
#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// The capture: pcap with link type 253 (LINKTYPE_NETLINK)
    pub file: PathBuf,
    /// Release of the kernel that was captured (uname -r): 6.18 has two fields whose place later kernels use otherwise,
    /// so that they are left out without it
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
    /// The samples' host
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_any_host)]
    pub host: String,
    /// The samples' PoP
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_pop)]
    pub pop: String,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `cat`.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Spool files
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Options of the report at the end.
    #[command(flatten)]
    pub report: Report,
}

/// Options of the report at the end.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Print all counters at the end, as one line of JSON on standard error
    #[arg(long)]
    pub stats: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
