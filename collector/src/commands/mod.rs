//! The commands: each takes its options, does its work with the other rooms, and ends with a code.

mod files;
mod once;
mod run;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap_complete::Shell;

use crate::accounting::Accounting;
use crate::config::render::{default_file, effective};
use crate::config::resolve::{ConfigError, Resolved, resolve};
use crate::config::source::Source;
use crate::config::{Command, program};
use crate::kernel::host;
use crate::operate::metrics::sample_page;
use crate::options::names::parse_host;
use crate::read::poller::scan::make_room;
use crate::read::poller::settings::Settings;
use crate::read::poller::{PollError, Poller};
use crate::sample::encode::{AccEcn, Identity};
use crate::sinks::SinkError;
use crate::stats::Stats;

const PROGRAM: &str = "springtide-collector";

/// An end of a command other than success.
enum Failure {
    /// Bad input or usage: exit code 2.
    Input(String),
    /// A failure while running: exit code 1.
    Runtime(String),
    /// Too little was seen for an answer: exit code 3, as of `springtide`.
    Thin(String),
    /// Already on standard error.
    Reported(u8),
    /// The reader of our output has gone: nothing is wrong.
    Unread,
}

type Outcome = Result<(), Failure>;

/// Runs the command line.
pub fn main() -> ExitCode {
    let Resolved { cli, settings, .. } = match command_line() {
        Ok(resolved) => resolved,
        Err(code) => return code,
    };
    let accounting = Arc::new(Accounting::default());
    let mut stats = Stats::default();
    let (outcome, report) = match &cli.command {
        Command::Once(options) => (once::once(options, &mut stats), &options.report),
        Command::Run(options) => (
            run::run(options, settings, &accounting, &mut stats),
            &options.report,
        ),
        Command::Decode(options) => (files::decode(options, &mut stats), &options.report),
        Command::Config(options) => (print(&default_file()), &options.report),
        Command::Top(options) => (once::top(options), &options.report),
        Command::Cat(options) => (files::cat(options, &mut stats), &options.report),
        Command::Completion(options) => (complete(options.shell), &options.report),
        Command::Metrics(report) => (print(&sample_page()), report),
        Command::Man(options) => (manual(&options.dir), &options.report),
        Command::Estimate(options) => (once::estimate(options, &mut stats), &options.report),
    };
    let code = match outcome {
        Ok(()) | Err(Failure::Unread) => 0,
        Err(Failure::Input(what)) => {
            complain(&what);
            2
        }
        Err(Failure::Runtime(what)) => {
            complain(&what);
            1
        }
        Err(Failure::Thin(what)) => {
            complain(&what);
            3
        }
        Err(Failure::Reported(code)) => code,
    };
    if report.stats {
        // Standard error may be closed; the exit code shows it too.
        let _ = writeln!(
            io::stderr(),
            "{}",
            stats.to_json_with(&accounting.snapshot())
        );
    }
    code.into()
}

fn complain(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "springtide-collector: {what}");
}

/// The command line merged with the configuration; an exit code when there is nothing to do.
fn command_line() -> Result<Resolved, ExitCode> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let resolved = match resolve(&arguments, std::env::vars_os()) {
        Ok(resolved) => resolved,
        Err(ConfigError::Usage(error)) => error.exit(),
        Err(ConfigError::Problems(problems)) => {
            problems.iter().for_each(|problem| complain(problem));
            return Err(2.into());
        }
    };
    let Command::Run(run) = &resolved.cli.command else {
        return Ok(resolved);
    };
    if !run.check_config {
        return Ok(resolved);
    }
    if let Err(error) = run.sinks.check() {
        complain(&error);
        return Err(2.into());
    }
    match print(&effective(&resolved)) {
        Ok(()) => Err(0.into()),
        Err(_) => Err(1.into()),
    }
}

fn print(text: &str) -> Outcome {
    let output = |error: io::Error| sink_failure(SinkError::Output(error));
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).map_err(output)?;
    out.flush().map_err(output)
}

fn complete(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&program()), PROGRAM, &mut script);
    // clap_complete 4.6 takes the hyphen of a program's name for a subcommand's in half of the places of bash's script.
    let script = String::from_utf8_lossy(&script);
    print(&script.replace("springtide__subcmd__collector", "springtide__collector"))
}

/// The program without its hidden commands: completion would offer them.
fn shown(program: &clap::Command) -> clap::Command {
    let commands = program.get_subcommands().filter(|one| !one.is_hide_set());
    clap::Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .args(program.get_arguments().cloned())
        .subcommands(commands.cloned())
}

/// A page of the program and one of each command; the list of subcommands in the program's leads to them.
fn manual(folder: &Path) -> Outcome {
    clap_mangen::generate_to(program(), folder)
        .map_err(|error| Failure::Runtime(format!("{}: {error}", folder.display())))
}

fn poller(identity: Identity, settings: Settings) -> Result<Poller, Failure> {
    make_room(settings.scope);
    let accecn = AccEcn::of_release(&host::kernel_release());
    Poller::new(identity, accecn, settings).map_err(|error| match error {
        PollError::NotAllowed => Failure::Input(format!("{error}: use --netns auto or own")),
        error => runtime(error),
    })
}

fn identity(source: &Source) -> Result<Identity, Failure> {
    let host = match &source.host {
        Some(host) => host.clone(),
        None => parse_host(&host::hostname()).map_err(|error| {
            Failure::Input(format!(
                "this host's name cannot be used: {error}: give one with --host"
            ))
        })?,
    };
    let boot_id =
        host::boot_id().map_err(|error| runtime(format!("cannot read the boot id: {error}")))?;
    let netns = host::netns()
        .map_err(|error| runtime(format!("cannot read the network namespace: {error}")))?;
    Ok(Identity {
        host,
        pop: source.pop.clone(),
        boot_id,
        netns,
    })
}

fn unusable(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::Input(format!("{}: cannot {what}: {error}", path.display()))
}

fn runtime(error: impl Display) -> Failure {
    Failure::Runtime(error.to_string())
}

fn sink_failure(error: SinkError) -> Failure {
    if error.is_closed_pipe() {
        Failure::Unread
    } else {
        runtime(error)
    }
}
