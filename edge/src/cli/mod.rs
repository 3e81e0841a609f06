//! The command line.

mod options;

use std::convert::Infallible;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use serde_json::json;

use crate::bundle::is_name;
use crate::enforce::bpf;
use crate::error::{Error, Result, code};
use crate::files::read_regular;
use crate::notify::Notify;
use crate::operations::{self, Followed, Given, Origin, Places, Pulled, Report, Source};
use crate::probe;
use crate::text::{one_line, printable, reason};
use crate::textfile::TextFile;
use options::{Any, Command, Common, Measured, Options, PROGRAM, Pulling, Signed, Trust};

const EDGE_FILE: &str = "/etc/springtide/edge";
const ORIGIN_FILE: &str = "/etc/springtide/origin";
const ORIGIN_CA_FILE: &str = "/etc/springtide/origin-ca.pem";
const MAX_EDGE_FILE_BYTES: usize = 4096;
/// linux/capability.h
const CAP_NET_ADMIN: u32 = 12;
/// A disk that takes longer to write a small file hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answer of a run: text for standard output, and the exit code.
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
        Any::Completion { shell } => ("completion", false, completion(shell).map(said)),
        Any::Man { dir } => ("man", false, manual(&dir).map(said)),
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

/// Writes the script, which is all that was asked for: unlike a report's, its loss is a failure.
fn completion(shell: Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&Options::command()), PROGRAM, &mut script);
    let mut out = std::io::stdout();
    match out.write_all(&script).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::failed(format!(
            "{PROGRAM}: standard output: {}; write the script to another file",
            reason(&error)
        ))),
        _ => Ok(String::new()),
    }
}

/// The program without its hidden commands: completion would offer them.
fn shown(program: &clap::Command) -> clap::Command {
    let commands = program.get_subcommands().filter(|one| !one.is_hide_set());
    clap::Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .args(program.get_arguments().cloned())
        .subcommands(commands.cloned())
}

/// A page of the program and one of each command.
fn manual(folder: &Path) -> Result<String> {
    clap_mangen::generate_to(Options::command(), folder)
        .map_err(|error| Error::failed(format!("{}: {error}", folder.display())))?;
    Ok(format!("manual pages in {}", folder.display()))
}

fn run(command: Command) -> Result<Answer> {
    if !matches!(command, Command::Verify { .. } | Command::Check { .. }) {
        require_net_admin()?;
    }
    if let Command::Apply {
        signed: Signed { trust, .. },
        ..
    }
    | Command::Verify {
        signed: Signed { trust, .. },
        ..
    }
    | Command::Pull {
        pulling: Pulling { trust, .. },
        ..
    } = &command
        && trust.unsigned
    {
        complain(&format!(
            "{PROGRAM}: WARNING: --unsigned: no signature is checked"
        ));
    }
    let json = command.common().json;
    let places = command.common().places();
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
        Command::Parity { key, port, .. } => match operations::parity(&places, key, *port)? {},
        Command::Pull { common, pulling } => pull(common, pulling, &places),
        Command::Verify { common, signed, at } => {
            let edge = edge_name(common.edge.as_deref())?;
            let report = operations::verify(&source(signed, &edge), *at)?;
            Ok(answer(&report, json))
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

fn pull(common: &Common, pulling: &Pulling, places: &Places) -> Result<Answer> {
    let edge = edge_name(common.edge.as_deref())?;
    let mut origin = open(pulling, &edge)?;
    let mut look = || origin.look(pulling.trust.allowed_signers(), &edge, places);
    if pulling.once {
        return Ok(answer(&look()?, common.json));
    }
    let mut report = |found: &Pulled| put(&answer(found, common.json).text);
    let mut grumble = |text: &str| complain(&format!("{PROGRAM}: {text}"));
    let interval = Duration::from_secs(pulling.interval);
    operations::pull(interval, &mut look, &mut report, &mut grumble)
}

/// The origin of options, or else of the files beside the edge's name.
fn open(pulling: &Pulling, edge: &str) -> Result<Origin> {
    let fix = "write where bundles are offered there, or use --origin";
    let url = match &pulling.origin {
        Some(url) => url.clone(),
        None => content_of(ORIGIN_FILE, "origin", fix)?,
    };
    let usual = Path::new(ORIGIN_CA_FILE);
    let ca = pulling.ca.as_deref();
    Origin::new(&url, edge, ca.or_else(|| usual.exists().then_some(usual)))
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

fn source<'a>(signed: &'a Signed, edge: &'a str) -> Source<'a> {
    Source {
        bundle: Given::File(&signed.bundle),
        allowed_signers: signed.trust.allowed_signers(),
        edge,
        heeds_withdrawals: false,
    }
}

impl Common {
    fn places(&self) -> Places {
        Places {
            state: self.state_dir.clone(),
            run: self.run_dir.clone(),
            lock_wait: Duration::from_secs_f64(self.lock_wait),
            program: bpf::Places {
                cgroup: self.cgroup.clone(),
                pins: self.pins.clone(),
            },
        }
    }
}

impl Trust {
    fn allowed_signers(&self) -> Option<&Path> {
        (!self.unsigned).then_some(&*self.allowed_signers)
    }
}

fn edge_name(given: Option<&str>) -> Result<String> {
    let (name, place) = match given {
        Some(name) => (name.to_owned(), "--edge"),
        None => {
            let fix = "write this edge's name there, or use --edge";
            (content_of(EDGE_FILE, "edge", fix)?, EDGE_FILE)
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

/// The content of a small file, as one value.
fn content_of(file: &str, what: &str, fix: &str) -> Result<String> {
    let (_, content) = read_regular(file.as_ref(), MAX_EDGE_FILE_BYTES)
        .map_err(|error| Error::refused(format!("{file}: {what}: {}; {fix}", reason(&error))))?;
    Ok(String::from_utf8_lossy(&content).trim().to_owned())
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
