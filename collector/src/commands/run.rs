//! `run`: opens all that a run needs, and polls until a signal comes.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::{Failure, Outcome, identity, poller, runtime, unusable};
use crate::accounting::Accounting;
use crate::config::Run;
use crate::config::resolve::Setting;
use crate::config::watching::Watching;
use crate::operate::http;
use crate::operate::log;
use crate::operate::monitor::Monitor;
use crate::operate::notify::Notifier;
use crate::operate::operator::Operator;
use crate::operate::run::{self, RunError, Running, wall_clock};
use crate::operate::signals::Signals;
use crate::read::schedule::Schedule;
use crate::read::sequence::{Sequence, SequenceError};
use crate::report::Reporter;
use crate::sample::encode::Identity;
use crate::sinks::AllOptions;
use crate::sinks::start::{Opening, StartError, start};
use crate::spool::make_directory;
use crate::stats::Stats;

pub(super) fn run(
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
    let mut sequence = sequence(&options.sinks, &identity)?;
    let Watching {
        http_listen,
        log_format,
        log_level,
    } = options.watching;
    log::install(log_format, log_level);
    let reporter = Arc::new(Reporter::to_log());
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
    let result = run::run(Running {
        poller: &mut poller,
        sequence: &mut sequence,
        sink: &mut sink,
        schedule,
        polls: options.polls,
        signals: &mut signals,
        stats,
        overseer: &mut operator,
    });
    reporter.finish();
    result.map_err(|error: RunError| runtime(error))
}

/// The numbers of the polls, kept where the sinks keep what they have.
fn sequence(sinks: &AllOptions, identity: &Identity) -> Result<Sequence, Failure> {
    let Some(directory) = sinks.state_dir() else {
        return Ok(Sequence::unkept());
    };
    if sinks.directory().is_some() {
        make_directory(directory)
            .map_err(|error| unusable(directory, "use it as the spool", &error))?;
    } else {
        // Without the directory, on a disk that takes nothing, numbers are not kept.
        let _ = fs::create_dir_all(directory);
    }
    let sequence = Sequence::open(directory, &identity.host, &identity.boot_id);
    sequence.map_err(|error| match error {
        SequenceError::Locked(_) => Failure::Input(error.to_string()),
        SequenceError::Io { .. } => runtime(error),
    })
}

/// Serves metrics and health.
fn listen(address: SocketAddr, monitor: Arc<Monitor>, reporter: &Reporter) -> Result<(), Failure> {
    let bound = http::serve(address, move |path| monitor.answer(path)).map_err(|error| {
        Failure::Input(format!(
            "--http-listen {address}: cannot listen there: {error}"
        ))
    })?;
    reporter.inform(format!("http://{bound}/metrics and /healthz are there"));
    Ok(())
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Spool(_) | StartError::Thread { .. } => runtime(error),
        error => Failure::Input(error.to_string()),
    }
}
