//! The command line: thin, all work is in the library.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use springtide_collector::accounting::Accounting;
use springtide_collector::config::render::{default_file, effective};
use springtide_collector::config::resolve::{ConfigError, Resolved, Setting, resolve};
use springtide_collector::config::source::Source;
use springtide_collector::config::states::States;
use springtide_collector::config::watching::Watching;
use springtide_collector::config::{Cat, Command, Decode, Format, Once, Run, Top};
use springtide_collector::kernel::filter::Filter;
use springtide_collector::kernel::host;
use springtide_collector::operate::log::Log;
use springtide_collector::operate::notify::Notifier;
use springtide_collector::operate::operator::Operator;
use springtide_collector::operate::run::{RunError, run, wall_clock};
use springtide_collector::operate::signals::Signals;
use springtide_collector::operate::{http, monitor::Monitor};
use springtide_collector::options::names::parse_host;
use springtide_collector::read::poller::scan::make_room;
use springtide_collector::read::poller::settings::Settings;
use springtide_collector::read::poller::{PollError, Poller};
use springtide_collector::read::schedule::Schedule;
use springtide_collector::read::sequence::{self, Sequence, SequenceError};
use springtide_collector::replay::{ReplayError, replay};
use springtide_collector::report::Reporter;
use springtide_collector::sample::encode::{AccEcn, Identity};
use springtide_collector::sample::proto::TcpState;
use springtide_collector::sinks::print::json::JsonSink;
use springtide_collector::sinks::print::null::NullSink;
use springtide_collector::sinks::print::table::TableSink;
use springtide_collector::sinks::spool::RecordSink;
use springtide_collector::sinks::start::{Opening, StartError, start};
use springtide_collector::sinks::{Sink, SinkError, stdout};
use springtide_collector::spool::reader::{Item, SpoolReader};
use springtide_collector::stats::Stats;
use springtide_collector::top::model::Model;
use springtide_collector::top::{Scene, TopError};

/// How a command ends other than well.
enum Failure {
    /// Bad input or usage: exit code 2.
    Input(String),
    /// A failure while running: exit code 1.
    Runtime(String),
    /// Already told on standard error.
    Told(u8),
    /// The reader of our output has gone: nobody is left to tell, and nothing is wrong.
    Unread,
}

type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    let Resolved { cli, settings, .. } = match command_line() {
        Ok(resolved) => resolved,
        Err(code) => return code,
    };
    let accounting = Arc::new(Accounting::default());
    let mut stats = Stats::default();
    let (outcome, report) = match &cli.command {
        Command::Once(options) => (once(options, &mut stats), &options.report),
        Command::Run(options) => (
            run_until_told(options, settings, &accounting, &mut stats),
            &options.report,
        ),
        Command::Decode(options) => (decode(options, &mut stats), &options.report),
        Command::Config(options) => (print(&default_file()), &options.report),
        Command::Top(options) => (top(options), &options.report),
        Command::Cat(options) => (cat(options, &mut stats), &options.report),
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
        Err(Failure::Told(code)) => code,
    };
    if report.stats {
        // Standard error may be closed; the exit code still tells.
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

fn once(options: &Once, stats: &mut Stats) -> Outcome {
    let mut poller = poller(identity(&options.source)?, options.source.settings())?;
    let terminal = io::stdout().is_terminal();
    let mut sink: Box<dyn Sink> = match options.format {
        Format::Table => Box::new(TableSink::new(stdout(), terminal && colours())),
        Format::Json => Box::new(JsonSink::new(stdout())),
        Format::Spool if terminal => {
            let what =
                "--format spool writes bytes that are not for a terminal: redirect them to a file";
            return Err(Failure::Input(what.to_owned()));
        }
        Format::Null => Box::new(NullSink),
        Format::Spool => Box::new(RecordSink::new(stdout()).map_err(runtime)?),
    };
    poller
        .poll(sequence::of_single_poll(), &mut *sink, stats)
        .map_err(|error| match error {
            PollError::Sink(error) => sink_failure(error),
            error => runtime(error),
        })?;
    sink.finish(stats).map_err(sink_failure)
}

fn run_until_told(
    options: &Run,
    settings: Vec<Setting>,
    accounting: &Arc<Accounting>,
    stats: &mut Stats,
) -> Outcome {
    let mut signals = Signals::listen()
        .map_err(|error| runtime(format!("cannot listen for signals: {error}")))?;
    options.sinks.check().map_err(start_failure)?;
    let identity = identity(&options.source)?;
    let host = identity.host.clone();
    let mut sequence = match options.sinks.state_dir() {
        None => Sequence::unkept(),
        Some(directory) => {
            // Without the directory, on a disk that takes nothing, numbers are not kept.
            if let Err(error) = fs::create_dir_all(directory)
                && options.sinks.directory().is_some()
            {
                return Err(unusable(directory, "use it as the spool", &error));
            }
            Sequence::open(directory, &host, &identity.boot_id).map_err(|error| match error {
                SequenceError::Locked(_) => Failure::Input(error.to_string()),
                SequenceError::Io { .. } => runtime(error),
            })?
        }
    };
    let Watching {
        http_listen,
        log_format,
        log_level,
    } = options.watching;
    let log = Log::new(log_format, log_level);
    let reporter = Arc::new(Reporter::new(move |level, what| log.say(level, what)));
    let notifier =
        Notifier::from_environment().map_err(|error| Failure::Input(error.to_string()))?;
    let opening = Opening {
        host: &host,
        accounting,
        reporter: &reporter,
        stats,
    };
    let mut sink = start(&options.sinks, opening).map_err(start_failure)?;
    let monitor = Arc::new(Monitor::new(
        accounting.clone(),
        sink.gauge(),
        options.interval,
    ));
    if let Some(address) = http_listen {
        listen(address, monitor.clone(), &reporter)?;
    }
    let following = &options.following;
    let mut poller = poller(
        identity,
        following.settings(&options.source, options.interval),
    )?;
    let schedule = Schedule::new(&host, options.interval, Instant::now(), wall_clock());
    let mut operator = Operator::new(reporter.clone(), monitor, notifier, sink.gauge(), settings);
    reporter.inform(format!(
        "polling as {host} every {} s, to {}",
        options.interval.as_secs_f64(),
        accounting.names().join(", ")
    ));
    let result = run(
        &mut poller,
        &mut sequence,
        &mut sink,
        (schedule, options.polls),
        &mut signals,
        stats,
        &mut operator,
    );
    reporter.finish();
    result.map_err(|error: RunError| runtime(error))
}

/// Lets others ask for metrics and health.
fn listen(address: SocketAddr, monitor: Arc<Monitor>, reporter: &Reporter) -> Result<(), Failure> {
    let bound = http::serve(address, move |path| monitor.answer(path)).map_err(|error| {
        Failure::Input(format!(
            "--http-listen {address}: cannot listen there: {error}"
        ))
    })?;
    reporter.inform(format!("http://{bound}/metrics and /healthz are there"));
    Ok(())
}

/// The command line with what the configuration says; an exit code when there is nothing to do.
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

/// Whether colours are wanted where they make sense (no-color.org).
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn top(options: &Top) -> Outcome {
    let mut settings = options.source.settings();
    if options.source.states == States::default_set() {
        // Listeners are no connections.
        settings.states &= !(1 << TcpState::Listen as u32);
    }
    let filter = options.source.filter.as_ref().map(Filter::text);
    let mut model = Model::new(
        options.sort.column(),
        options.interval,
        filter.unwrap_or_default().to_owned(),
    );
    model.grouped = options.group;
    let scene = Scene {
        poller: poller(identity(&options.source)?, settings.clone())?,
        settings,
        model,
    };
    let result = if options.once || options.json || !io::stdout().is_terminal() {
        scene.once(options.json, &mut stdout())
    } else {
        scene.live(colours())
    };
    result.map_err(|error| match error {
        TopError::Terminal(error) => sink_failure(SinkError::Output(error)),
        error => runtime(error),
    })
}

fn decode(options: &Decode, stats: &mut Stats) -> Outcome {
    let path = &options.file;
    let file = File::open(path).map_err(|error| unusable(path, "open it", &error))?;
    let identity = Identity {
        host: options.host.clone(),
        pop: options.pop.clone(),
        ..Identity::default()
    };
    let accecn = options
        .kernel
        .as_deref()
        .map_or(AccEcn::Unknown, AccEcn::of_release);
    let mut sink = JsonSink::new(stdout());
    let tell =
        |offset: u64, what: &str| complain(&format!("{}: offset {offset}: {what}", path.display()));
    match replay(
        BufReader::new(file),
        &identity,
        accecn,
        &mut sink,
        stats,
        tell,
    ) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Failure::Told(2)),
        Err(ReplayError::Sink(error)) => Err(sink_failure(error)),
        Err(ReplayError::Pcap(error)) => {
            Err(Failure::Input(format!("{}: {error}", path.display())))
        }
    }
}

fn cat(options: &Cat, stats: &mut Stats) -> Outcome {
    let mut sink = JsonSink::new(stdout());
    let output = |error: io::Error| sink_failure(SinkError::Output(error));
    // The worst of all files; none stops the others.
    let mut code = 0;
    for path in &options.files {
        let mut reader = match SpoolReader::open(path) {
            Ok(reader) => reader,
            Err(error) => {
                complain(&error);
                code = 2;
                continue;
            }
        };
        loop {
            match reader.next_item() {
                Ok(None) => break,
                Err(error) => {
                    complain(&error);
                    code = code.max(1);
                    break;
                }
                Ok(Some(Item::Record { envelope, .. })) => {
                    for sample in &envelope.row {
                        sink.sample(sample).map_err(output)?;
                        stats.rows += 1;
                    }
                }
                Ok(Some(Item::Corrupt {
                    offset,
                    bytes,
                    reason,
                })) => {
                    code = code.max(1);
                    stats.spool_stretches_corrupt += 1;
                    stats.spool_bytes_corrupt += bytes;
                    let path = path.display();
                    complain(&format!(
                        "{path}: offset {offset}: {bytes} bytes are not a valid record: {reason}"
                    ));
                }
            }
        }
    }
    sink.flush().map_err(output)?;
    match code {
        0 => Ok(()),
        code => Err(Failure::Told(code)),
    }
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
        .map_err(|error| runtime(format!("cannot tell the network namespace: {error}")))?;
    Ok(Identity {
        host,
        pop: source.pop.clone(),
        boot_id,
        netns,
    })
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Spool(_) | StartError::Thread { .. } => runtime(error),
        error => Failure::Input(error.to_string()),
    }
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
