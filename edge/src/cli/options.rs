//! Commands and options that people type.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use prometheus::proto::MetricType;

use crate::operations::{self, PARITY_PORT, PULL_INTERVAL_S, WATCH_INTERVAL_S};
use crate::probe;

pub(super) const PROGRAM: &str = "springtide-edge";

const AFTER: &str = "\
Examples:
  springtide-edge check                              what this host supports: the program, routes, bbr
  springtide-edge apply /etc/springtide/ams-1.json   the bundle's values into the kernel
  springtide-edge status                             what is applied, until when, and drift
  springtide-edge expire                             from a timer: withdraw an expired bundle
  springtide-edge watch                              a service: copies follow the host's routing
  springtide-edge follow                             from a timer: one pass of watch
  springtide-edge run                                a service in place of both, which tells systemd of every pass
  springtide-edge pull                               a service: fetch this edge's bundles, and apply them
  springtide-edge parity                             a service: data that was lost between PoPs is back by parity
  springtide-edge withdraw                           everything out, the host as it was
  springtide-edge withdraw --forget-round            with the clock set right: take new rounds again
  springtide-edge verify ams-1.json                  only a look at the bundle and its signature
  springtide-edge probe --targets FILE               how long small objects take from other PoPs

Exit codes:
  0   done, or nothing to do
  1   failed; the message says what state the host is in
  2   refused, nothing was changed: a bad bundle, wrong usage, a host that is not fit, no
      CAP_NET_ADMIN
  3   not whole: apply refused some destinations and serves the others, or status found drift,
      damage, an overdue expiry or that somebody deleted our rule
  A bundle that must not be used, nothing changed:
  10  not signed                        11  signed by a key that is not allowed
  12  altered                           13  another edge's
  14  older than the applied one, or another one of the same round and creation time
  15  expired";

const CHECK: &str = "\
Example:
  springtide-edge check --json | jq -r .bpf.reason

Exit codes:
  0   the eBPF program runs here
  2   neither the program nor routes can be used
  3   routes can be used, the program cannot";

const APPLY: &str = "\
Examples:
  springtide-edge apply /etc/springtide/ams-1.json --dry-run   what would change
  springtide-edge apply /etc/springtide/ams-1.json";

const PULL: &str = "\
Examples:
  springtide-edge pull --origin https://bundles.example/springtide
  springtide-edge pull --once                                  one look, as by hand

It fetches ORIGIN/EDGE.bundle, within 15 seconds. An object that is missing changes nothing, nor does an origin that is
away: what is applied stays until it expires. After a withdrawal here no bundle is taken that was made before it.";

const PARITY: &str = "\
Examples:
  openssl rand -hex 32 > /etc/springtide/parity.key            one key, the same on all edges
  springtide-edge parity

It sends parity of connections whose entries have parity_every, to the other end's port of UDP, and rebuilds here what was
lost on its way from edges with the same key. `status` and the metrics of `watch` tell its counts.";

const STATUS: &str = "\
Example:
  springtide-edge status --json | jq .expires_at";

const WITHDRAW: &str = "\
Examples:
  springtide-edge withdraw --dry-run                           what would go
  springtide-edge withdraw --reason 'loss to nyc'";

const FOLLOW: &str = "\
Example, from a timer:
  springtide-edge follow --metrics /var/lib/prometheus/node-exporter/springtide-edge.prom";

/// Makes this edge's new TCP connections start as a signed bundle says. It touches table 201, proto 201 and the rule pref
/// 1000, or an eBPF program on one cgroup and its pins; where the bundle asks for copies of segments, one more at each
/// device's egress.
#[derive(Parser)]
#[command(name = PROGRAM, version, after_help = AFTER, max_term_width = 118)]
pub(super) struct Options {
    #[command(subcommand)]
    pub(super) command: Any,
}

#[derive(Subcommand)]
pub(super) enum Any {
    #[command(flatten)]
    Enforce(Command),
    /// Fetch 10, 50 and 100 kB from other PoPs over fresh connections, or serve them; needs no privileges
    Probe(probe::Options),
    /// Print a script that completes commands and options in a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a directory, for packages
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
}

#[derive(Args)]
pub(super) struct Common {
    /// One JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Directory of what is applied, and of what is being changed
    #[arg(long, value_name = "DIR", default_value = "/var/lib/springtide")]
    pub(super) state_dir: PathBuf,
    /// Remembers a withdrawal that the state directory does not take
    #[arg(long, value_name = "DIR", default_value = "/run/springtide")]
    pub(super) run_dir: PathBuf,
    /// Where the eBPF program acts: a directory of cgroup2, with connections of its processes and of those below it
    #[arg(long, value_name = "DIR", default_value_os_t = cgroup2())]
    pub(super) cgroup: PathBuf,
    /// Where the eBPF program is kept: a directory of a BPF file system, of its own
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/springtide")]
    pub(super) pins: PathBuf,
    /// Seconds to wait for another run; what takes back waits 2 at most, and goes on
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds)]
    pub(super) lock_wait: f64,
    /// This edge's name; default: the content of /etc/springtide/edge
    #[arg(long, value_name = "NAME")]
    pub(super) edge: Option<String>,
}

#[derive(Args)]
pub(super) struct Signed {
    /// The bundle's file; its signature is BUNDLE.sig
    pub(super) bundle: PathBuf,
    #[command(flatten)]
    pub(super) trust: Trust,
}

#[derive(Args)]
pub(super) struct Trust {
    /// Keys whose signatures count, as in ssh-keygen(1)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/springtide/allowed_signers"
    )]
    pub(super) allowed_signers: PathBuf,
    /// Take a bundle whose origin nobody vouches for
    #[arg(long)]
    pub(super) unsigned: bool,
}

#[derive(Args)]
pub(super) struct Pulling {
    #[command(flatten)]
    pub(super) trust: Trust,
    /// Where bundles are offered, http(s)://HOST/PATH; default: the content of /etc/springtide/origin
    #[arg(long, value_name = "URL")]
    pub(super) origin: Option<String>,
    /// Certificates (PEM) to trust instead of the public ones; default: /etc/springtide/origin-ca.pem if it is there
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Seconds between two looks, at random a half more or less
    #[arg(long, value_name = "S", default_value_t = PULL_INTERVAL_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) interval: u64,
    /// Look once, and end
    #[arg(long)]
    pub(super) once: bool,
}

#[derive(Args)]
pub(super) struct Measured {
    /// Write metrics for node_exporter's textfile collector (FILE.prom) after each pass; `watch --help` names them
    #[arg(long, value_name = "FILE")]
    pub(super) metrics: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Support on this host: the eBPF program or exactly why not, routes, bbr; changes nothing
    #[command(after_help = CHECK)]
    Check {
        #[command(flatten)]
        common: Common,
    },
    /// A bundle's values into the kernel
    #[command(after_help = APPLY)]
    Apply {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        signed: Signed,
        /// Say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Fetch this edge's bundles from an origin, and apply each new one
    #[command(after_help = PULL)]
    Pull {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        pulling: Pulling,
    },
    /// Send parity of data to other PoPs, and rebuild data from them that was lost
    #[command(after_help = PARITY)]
    Parity {
        #[command(flatten)]
        common: Common,
        /// The secret of the fleet's edges: 32 bytes or more
        #[arg(
            long,
            value_name = "FILE",
            default_value = "/etc/springtide/parity.key"
        )]
        key: PathBuf,
        /// Port of UDP, the same on all edges
        #[arg(long, value_name = "PORT", default_value_t = PARITY_PORT, value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// A look at a bundle and its signature, without the kernel and without privileges
    Verify {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        signed: Signed,
        /// As if it were this time, in seconds since the epoch
        #[arg(long, value_name = "SECONDS", hide = true)]
        at: Option<f64>,
    },
    /// The bundle that is applied, until when, and drift
    #[command(after_help = STATUS)]
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// Everything of Springtide out of the kernel
    #[command(after_help = WITHDRAW)]
    Withdraw {
        #[command(flatten)]
        common: Common,
        /// Take any round again, of bundles created from now on: for a round that was applied under a wrong clock
        #[arg(long)]
        forget_round: bool,
        /// Why; the edge remembers it
        #[arg(long, value_name = "TEXT", default_value = "withdrawn by command")]
        reason: String,
        /// Say what would go, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Withdraw if the applied bundle has expired
    #[command(after_help = "Example, from a timer:\n  springtide-edge expire")]
    Expire {
        #[command(flatten)]
        common: Common,
    },
    /// Expire, and copy next hops again that have changed since
    #[command(after_help = FOLLOW)]
    Follow {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        measured: Measured,
    },
    /// Watch, and tell systemd of every pass: what a unit of Type=notify with WatchdogSec=90 runs
    Run {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        measured: Measured,
        /// Seconds after which it looks also without a change; half of WatchdogSec, if that is less
        #[arg(long, value_name = "S", default_value_t = WATCH_INTERVAL_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: u64,
    },
    /// Follow after each change of the host's routing
    #[command(after_long_help = metrics_help())]
    Watch {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        measured: Measured,
        /// Seconds after which it looks also without a change
        #[arg(long, value_name = "S", default_value_t = WATCH_INTERVAL_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
        interval: u64,
    },
}

impl Command {
    /// As people type it.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Apply { .. } => "apply",
            Self::Pull { .. } => "pull",
            Self::Parity { .. } => "parity",
            Self::Verify { .. } => "verify",
            Self::Status { .. } => "status",
            Self::Withdraw { .. } => "withdraw",
            Self::Expire { .. } => "expire",
            Self::Follow { .. } => "follow",
            Self::Run { .. } => "run",
            Self::Watch { .. } => "watch",
        }
    }

    /// Options that all commands have.
    pub(super) const fn common(&self) -> &Common {
        match self {
            Self::Check { common }
            | Self::Apply { common, .. }
            | Self::Pull { common, .. }
            | Self::Parity { common, .. }
            | Self::Verify { common, .. }
            | Self::Status { common }
            | Self::Withdraw { common, .. }
            | Self::Expire { common }
            | Self::Follow { common, .. }
            | Self::Run { common, .. }
            | Self::Watch { common, .. } => common,
        }
    }
}

/// Every metric, a line each.
fn metrics_help() -> String {
    let line = |(name, kind, help): &(&str, MetricType, &str)| {
        let kind = format!("{kind:?}").to_lowercase();
        format!("  springtide_edge_{name} ({kind})\n          {help}")
    };
    let lines: Vec<String> = operations::METRICS.iter().map(line).collect();
    format!("Metrics:\n{}", lines.join("\n"))
}

/// Where cgroup2 is mounted; systemd's place where it is not.
fn cgroup2() -> PathBuf {
    let found = operations::mounted("cgroup2").into_iter().next();
    found.unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"))
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let found = text
        .parse()
        .ok()
        .filter(|seconds| (0.0..=3600.0).contains(seconds));
    found.ok_or_else(|| "is not a number of seconds from 0 to 3600".to_owned())
}
