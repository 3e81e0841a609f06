//! The command line.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde_json::json;

use crate::bundle::is_name;
use crate::enforce::bpf;
use crate::error::{Error, Result, code};
use crate::files::read_regular;
use crate::notify::Notify;
use crate::operations::{self, Followed, Places, Report, Source, WATCH_INTERVAL_S};
use crate::probe;
use crate::text::{one_line, printable, reason};
use crate::textfile::TextFile;

const EDGE_FILE: &str = "/etc/springtide/edge";
const MAX_EDGE_FILE_BYTES: usize = 4096;
/// linux/capability.h
const CAP_NET_ADMIN: u32 = 12;
/// A disk that takes longer to write a small file hangs.
const PATIENCE: Duration = Duration::from_secs(2);
const PROGRAM: &str = "springtide-edge";

const AFTER: &str = "\
Examples:
  springtide-edge check                              what this host supports: the program, routes, bbr
  springtide-edge apply /etc/springtide/ams-1.json   the bundle's values into the kernel
  springtide-edge status                             what is applied, until when, and drift
  springtide-edge expire                             from a timer: withdraw an expired bundle
  springtide-edge watch                              a service: copies follow the host's routing
  springtide-edge follow                             from a timer: one pass of watch
  springtide-edge run                                a service in place of both, which tells systemd of every pass
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

/// Makes this edge's new TCP connections start as a signed bundle says. It touches table 201, proto 201 and the rule pref
/// 1000, or an eBPF program on one cgroup and its pins, and nothing else.
#[derive(Parser)]
#[command(name = PROGRAM, version, after_help = AFTER, max_term_width = 118)]
struct Options {
    #[command(subcommand)]
    command: Any,
}

#[derive(Subcommand)]
enum Any {
    #[command(flatten)]
    Enforce(Command),
    /// Fetch 10, 50 and 100 kB from other PoPs over fresh connections, or serve them; needs no privileges
    Probe(probe::Options),
}

#[derive(Args)]
struct Common {
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// What is applied, and what is being changed
    #[arg(long, value_name = "DIR", default_value = "/var/lib/springtide")]
    state_dir: PathBuf,
    /// Remembers a withdrawal that the state directory does not take
    #[arg(long, value_name = "DIR", default_value = "/run/springtide")]
    run_dir: PathBuf,
    /// Where the eBPF program acts: a directory of cgroup2, with connections of its processes and of those below it
    #[arg(long, value_name = "DIR", default_value_os_t = cgroup2())]
    cgroup: PathBuf,
    /// Where the eBPF program is kept: a directory of a BPF file system, of its own
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/springtide")]
    pins: PathBuf,
    /// Seconds to wait for another run; what takes back waits 2 at most, and goes on
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds)]
    lock_wait: f64,
    /// This edge's name; default: the content of /etc/springtide/edge
    #[arg(long, value_name = "NAME")]
    edge: Option<String>,
}

#[derive(Args)]
struct Signed {
    /// The bundle's file; its signature is BUNDLE.sig
    bundle: PathBuf,
    /// Whose signatures count, as in ssh-keygen(1)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/springtide/allowed_signers"
    )]
    allowed_signers: PathBuf,
    /// Take a bundle whose origin nobody vouches for
    #[arg(long)]
    unsigned: bool,
}

#[derive(Args)]
struct Measured {
    /// Write metrics for node_exporter's textfile collector (FILE.prom) after each pass; `watch --help` names them
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// What this host supports: the eBPF program or exactly why not, routes, bbr; changes nothing
    #[command(after_help = CHECK)]
    Check {
        #[command(flatten)]
        common: Common,
    },
    /// A bundle's values into the kernel
    Apply {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        signed: Signed,
        /// Say what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
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
    /// What is applied, until when, and drift
    Status {
        #[command(flatten)]
        common: Common,
    },
    /// Everything of Springtide out of the kernel
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
    Expire {
        #[command(flatten)]
        common: Common,
    },
    /// Expire, and copy next hops again that have changed since
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
    const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Apply { .. } => "apply",
            Self::Verify { .. } => "verify",
            Self::Status { .. } => "status",
            Self::Withdraw { .. } => "withdraw",
            Self::Expire { .. } => "expire",
            Self::Follow { .. } => "follow",
            Self::Run { .. } => "run",
            Self::Watch { .. } => "watch",
        }
    }

    const fn common(&self) -> &Common {
        match self {
            Self::Check { common }
            | Self::Apply { common, .. }
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

/// What a run answered: for standard output, and the exit code.
struct Answer {
    text: String,
    code: u8,
}

fn answer(report: &impl Report, json: bool) -> Answer {
    let text = if json {
        operations::value(report).to_string()
    } else {
        operations::lines(report)
    };
    Answer {
        text,
        code: report.exit_code(),
    }
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let (name, json, ended) = match Options::parse().command {
        Any::Enforce(command) => (command.name(), command.common().json, run(command)),
        Any::Probe(options) => ("probe", false, probe::run(&options, edge_name).map(said)),
    };
    match ended {
        Ok(answer) => {
            put(&answer.text);
            answer.code.into()
        }
        Err(error) => {
            complain(&error.to_string());
            if json {
                let mut failure = json!({"command": name, "error": error.to_string(), "exit_code": error.exit_code()});
                if matches!(error, Error::Unrecorded(_)) {
                    failure["holds"] = true.into();
                }
                put(&failure.to_string());
            }
            error.exit_code().into()
        }
    }
}

const fn said(text: String) -> Answer {
    let code = code::DONE;
    Answer { text, code }
}

fn run(command: Command) -> Result<Answer> {
    if !matches!(command, Command::Verify { .. } | Command::Check { .. }) {
        require_net_admin()?;
    }
    if let Command::Apply { signed, .. } | Command::Verify { signed, .. } = &command
        && signed.unsigned
    {
        complain(&format!(
            "{PROGRAM}: WARNING: --unsigned: no signature is checked"
        ));
    }
    let common = command.common();
    let (json, places) = (
        common.json,
        Places {
            state: common.state_dir.clone(),
            run: common.run_dir.clone(),
            lock_wait: Duration::from_secs_f64(common.lock_wait),
            program: bpf::Places {
                cgroup: common.cgroup.clone(),
                pins: common.pins.clone(),
            },
        },
    );
    match &command {
        Command::Check { .. } => {
            let report = operations::check(&places, lacks_net_admin());
            Ok(answer(&report, json))
        }
        Command::Apply {
            common,
            signed,
            dry_run,
        } => apply(common, signed, *dry_run, &places),
        Command::Verify { common, signed, at } => {
            let edge = edge_name(common.edge.as_deref())?;
            Ok(answer(
                &operations::verify(&source(signed, &edge), *at)?,
                json,
            ))
        }
        Command::Status { .. } => Ok(answer(&operations::status(&places)?, json)),
        Command::Withdraw {
            forget_round,
            reason,
            dry_run,
            ..
        } => withdraw(json, *forget_round, reason, *dry_run, &places),
        Command::Expire { .. } => Ok(answer(&operations::expire(&places)?, json)),
        Command::Follow { measured, .. } => follow(json, measured, &places),
        Command::Run {
            interval, measured, ..
        } => watch(json, *interval, measured, &places, &notify()?),
        Command::Watch {
            interval, measured, ..
        } => watch(json, *interval, measured, &places, &Notify::default()),
    }
}

fn apply(common: &Common, signed: &Signed, dry_run: bool, places: &Places) -> Result<Answer> {
    let edge = edge_name(common.edge.as_deref())?;
    let source = source(signed, &edge);
    if dry_run {
        return Ok(answer(&operations::preview(&source, places)?, common.json));
    }
    Ok(answer(&operations::apply(&source, places)?, common.json))
}

fn withdraw(
    json: bool,
    forget_round: bool,
    reason: &str,
    dry_run: bool,
    places: &Places,
) -> Result<Answer> {
    if dry_run {
        let report = operations::preview_withdrawal(places, forget_round)?;
        return Ok(answer(&report, json));
    }
    let report = operations::withdraw(places, &one_line(reason), forget_round)?;
    Ok(answer(&report, json))
}

fn notify() -> Result<Notify> {
    Notify::from_environment().map_err(|error| {
        Error::refused(format!(
            "NOTIFY_SOCKET: {}; let systemd set it",
            reason(&error)
        ))
    })
}

fn follow(json: bool, measured: &Measured, places: &Places) -> Result<Answer> {
    let file = measured.file();
    let done = operations::follow(places);
    if let Some(file) = file {
        measure(&file, places, done.is_ok());
        file.finish(PATIENCE);
    }
    Ok(answer(&done?, json))
}

impl Measured {
    fn file(&self) -> Option<TextFile> {
        let grumble = |text: &str| complain(&format!("{PROGRAM}: {text}"));
        let file = |path: &PathBuf| TextFile::new(path.clone(), grumble);
        self.metrics.as_ref().map(file)
    }
}

fn measure(file: &TextFile, places: &Places, succeeded: bool) {
    match operations::measure(places, succeeded) {
        Ok(found) => file.put(move |missed| found.text(missed)),
        Err(error) => complain(&format!("{PROGRAM}: metrics: {error}")),
    }
}

/// Every metric, a line each.
fn metrics_help() -> String {
    let line = |(name, kind, help): &(&str, &str, &str)| {
        format!("  springtide_edge_{name} ({kind})\n          {help}")
    };
    let lines: Vec<String> = operations::METRICS.iter().map(line).collect();
    format!("Metrics:\n{}", lines.join("\n"))
}

fn watch(
    json: bool,
    interval: u64,
    measured: &Measured,
    places: &Places,
    notify: &Notify,
) -> Result<Answer> {
    let file = measured.file();
    let mut report = |found: &Followed| put(&answer(found, json).text);
    let mut grumble = |text: &str| complain(&format!("{PROGRAM}: {text}"));
    let mut passed = |text: &str, succeeded: bool| {
        notify.alive(text);
        if let Some(file) = &file {
            measure(file, places, succeeded);
        }
    };
    let interval = Duration::from_secs(interval);
    let interval = notify
        .at_least_every
        .map_or(interval, |longest| longest.min(interval));
    let ended: Infallible =
        operations::watch(places, interval, &mut report, &mut grumble, &mut passed)?;
    match ended {}
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

fn source<'a>(signed: &'a Signed, edge: &'a str) -> Source<'a> {
    let allowed_signers = (!signed.unsigned).then_some(signed.allowed_signers.as_path());
    Source {
        bundle: &signed.bundle,
        allowed_signers,
        edge,
    }
}

fn edge_name(given: Option<&str>) -> Result<String> {
    let (name, place) = match given {
        Some(name) => (name.to_owned(), "--edge"),
        None => {
            let content =
                read_regular(EDGE_FILE.as_ref(), MAX_EDGE_FILE_BYTES).map_err(|error| {
                    let fix = "write this edge's name there, or use --edge";
                    Error::refused(format!("{EDGE_FILE}: edge: {}; {fix}", reason(&error)))
                })?;
            (
                String::from_utf8_lossy(&content.1).trim().to_owned(),
                EDGE_FILE,
            )
        }
    };
    if is_name(&name) {
        return Ok(name);
    }
    let shown = printable(&format!("'{name}'"));
    Err(Error::refused(format!(
        "{place}: edge: {shown} is not a name of an edge; use the one in fleet.yaml"
    )))
}

fn require_net_admin() -> Result<()> {
    lacks_net_admin().map_or(Ok(()), |why| {
        Err(Error::refused(format!("{PROGRAM}: {why}")))
    })
}

/// Why this process may change nothing, or None.
fn lacks_net_admin() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    let why = "changing what connections start with takes CAP_NET_ADMIN; run it as root";
    (bits >> CAP_NET_ADMIN & 1 == 0).then(|| why.to_owned())
}

/// A line for whoever still reads. A terminal or pipe that is gone keeps nothing from being done.
fn put(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
