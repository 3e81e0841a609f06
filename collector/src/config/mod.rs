//! The command line, and the configuration that stands behind it: see [`keys`].

pub mod file;
pub mod keys;
pub mod render;
pub mod resolve;
mod source;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::sample::connection::Column;
use crate::sample::fields::{HOST_LIMIT, POP_LIMIT};
use crate::sample::proto::TcpState;
use crate::sinks::options::SinkOptions;
pub use source::{Attributes, Following, Netns, Source};
pub use watching::Watching;

/// Reads tcp_info of every TCP socket from the kernel: of this network namespace without any privilege, of all others as
/// far as it may.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  springtide-collector once                                       every connection, as a table
  springtide-collector once --format json | jq .rtt               the same for programs
  springtide-collector run --spool-dir /var/spool/springtide --pop ams
  springtide-collector decode capture.pcap                        a capture of netlink (nlmon) as JSON lines
  springtide-collector cat /var/spool/springtide/*.spool | jq .   what has been spooled

Exit codes: 0 done; 1 failed while running, or `cat` met a corrupt record; 2 bad input or usage.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
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
  springtide-collector run --spool-dir /var/spool/springtide
  springtide-collector run --spool-dir /var/spool/springtide --interval 250ms --host ams-1 --pop ams
  springtide-collector run --spool-dir /var/spool/springtide --netns all --sample 10 --changes-only
  springtide-collector run --spool-dir /tmp/spool --rotate-interval 5s --rotate-bytes 1MiB --stats
  springtide-collector run --kafka kafka-1:9092,kafka-2:9092 --queue-dir /var/lib/springtide/queue
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
  springtide-collector cat /var/spool/springtide/*.spool --stats | jq -r .dst_ip")]
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
}

/// How `once` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
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
pub struct Once {
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// What is read.
    #[command(flatten)]
    pub source: Source,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Time from one poll's start to the next one's: 250ms, 1s, 5m (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
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
    /// How it can be watched.
    #[command(flatten)]
    pub watching: Watching,
    /// What is read.
    #[command(flatten)]
    pub source: Source,
    /// How it is followed.
    #[command(flatten)]
    pub following: Following,
    /// Where it goes.
    #[command(flatten)]
    pub sinks: SinkOptions,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub struct Config {
    /// Print every key with its meaning and its default
    #[arg(long, required = true)]
    pub default: bool,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Time from one look to the next: 250ms, 1s, 5m (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// What to sort by at first
    #[arg(long, value_enum, default_value = "retrans-rate")]
    pub sort: SortKey,
    /// Put connections together by the peer's prefix: /24, /56
    #[arg(long)]
    pub group: bool,
    /// Print one table of all connections and end; so it is where standard output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a connection and end
    #[arg(long, conflicts_with = "group")]
    pub json: bool,
    /// What is read.
    #[command(flatten)]
    pub source: Source,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// What `top` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "each is the column of its name")]
pub enum SortKey {
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
    pub fn column(self) -> Column {
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
pub struct Decode {
    /// The capture: pcap with link type 253 (LINKTYPE_NETLINK)
    pub file: PathBuf,
    /// Release of the kernel that was captured (uname -r): 6.18 has two fields whose place later kernels use otherwise,
    /// so that they are left out when this is not told
    #[arg(long, value_name = "RELEASE")]
    pub kernel: Option<String>,
    /// The samples' host
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_any_host)]
    pub host: String,
    /// The samples' PoP
    #[arg(long, default_value = "", hide_default_value = true, value_parser = parse_pop)]
    pub pop: String,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// Options of `cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// Spool files
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// What is told.
    #[command(flatten)]
    pub report: Report,
}

/// What is told at the end.
#[derive(Debug, Args)]
pub struct Report {
    /// Print all counters at the end, as one line of JSON on standard error
    #[arg(long)]
    pub stats: bool,
}

/// A set of states: bit N is state N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(pub u32);

const WITHOUT_TCP_INFO: [TcpState; 3] = [
    TcpState::TimeWait,
    TcpState::NewSynRecv,
    TcpState::BoundInactive,
];

impl States {
    /// Every state that the kernel can dump.
    pub fn all() -> Self {
        Self(known_states().map(|state| 1 << state as i32).sum())
    }

    /// Every state in which a socket has a tcp_info that tells something.
    pub fn default_set() -> Self {
        Self(
            Self::all().0
                & !WITHOUT_TCP_INFO
                    .iter()
                    .map(|&state| 1 << state as i32)
                    .sum::<u32>(),
        )
    }
}

fn known_states() -> impl Iterator<Item = TcpState> {
    (1..32).filter_map(|number| TcpState::try_from(number).ok())
}

/// A state's name on the command line.
fn option_name(state: TcpState) -> String {
    state
        .as_str_name()
        .trim_start_matches("TCP_STATE_")
        .to_ascii_lowercase()
        .replace('_', "-")
}

fn parse_states(text: &str) -> Result<States, String> {
    let mut set = 0;
    for word in text.split(',') {
        set |= match word {
            "default" => States::default_set().0,
            "all" => States::all().0,
            _ => match known_states().find(|&state| option_name(state) == word) {
                Some(state) => 1 << state as i32,
                None => {
                    let names: Vec<_> = known_states().map(option_name).collect();
                    return Err(format!(
                        "'{word}' is no state: use default, all, {}",
                        names.join(", ")
                    ));
                }
            },
        };
    }
    Ok(States(set))
}

/// A host's name, as it can stand in a file's name.
pub fn parse_host(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the host needs a name".to_owned());
    }
    parse_any_host(text)
}

fn parse_any_host(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.len() > HOST_LIMIT || !text.bytes().all(fits) || text.starts_with('.') {
        return Err(format!(
            "a host's name has at most {HOST_LIMIT} letters, digits, '-', '_' and '.'"
        ));
    }
    Ok(text.to_owned())
}

fn parse_pop(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if text.len() > POP_LIMIT || !text.bytes().all(fits) || text.starts_with('-') {
        return Err(format!(
            "a PoP's name has at most {POP_LIMIT} lower-case letters, digits and '-'"
        ));
    }
    Ok(text.to_owned())
}

/// A time for an interval.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_time(text, 24)
}

/// A time for keeping something.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    parse_time(text, 90 * 24)
}

fn parse_time(text: &str, most_hours: u64) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "'{text}' is no time: use a whole number with ms, s, m, h or d, from 1ms to {most_hours}h"
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit) {
        Some(ms) if (1..=most_hours * 3_600_000).contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(wrong()),
    }
}

/// A size.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("'{text}' is no size: use a whole number, or one with KiB, MiB or GiB, at least 1")
    };
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_default_states_are_those_with_a_tcp_info() {
        assert_eq!(parse_states("default").unwrap().0, 0b1111_1011_1110);
        assert_eq!(parse_states("all").unwrap().0, 0b11_1111_1111_1110);
        assert_eq!(parse_states("established,time-wait").unwrap().0, 0b100_0010);
        assert!(parse_states("estab").unwrap_err().contains("established"));
        assert!(parse_states("").is_err());
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "25h",
            "99999999999999999999s",
            "1 s",
            "1µs",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1"), Ok(1));
        for wrong in ["", "0", "MiB", "1MB", "99999999999GiB", "-1"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_safe_in_a_path() {
        for wrong in ["", "a/b", "..", ".hidden", "a b", "ü"] {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_host("ams-1.example"), Ok("ams-1.example".to_owned()));
        assert!(parse_pop("AMS").is_err());
        assert_eq!(parse_pop(""), Ok(String::new()));
    }
}
