//! Looks after a run for its operators: the monitor, the service manager, and the configuration when it is read again.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::resolve::{ConfigError, Resolved, Setting, changes, resolve};
use crate::config::{Command, Run};
use crate::operate::monitor::Monitor;
use crate::operate::notify::Notifier;
use crate::operate::run::Overseer;
use crate::options::Reload;
use crate::read::poller::{PollError, Poller};
use crate::report::Reporter;
use crate::sinks::Sink;
use crate::spool::queue::Gauge;
use crate::stats::Stats;

/// See the module.
pub(crate) struct Operator {
    reporter: Arc<Reporter>,
    monitor: Arc<Monitor>,
    notifier: Notifier,
    queue: Option<Gauge>,
    settings: Vec<Setting>,
    ready: bool,
}

impl Operator {
    /// For a run with `settings`.
    pub(crate) fn new(
        reporter: Arc<Reporter>,
        monitor: Arc<Monitor>,
        notifier: Notifier,
        queue: Option<Gauge>,
        settings: Vec<Setting>,
    ) -> Self {
        Self {
            reporter,
            monitor,
            notifier,
            queue,
            settings,
            ready: false,
        }
    }

    /// The present configuration; why it cannot be used.
    fn read(&self) -> Result<(Box<Run>, Vec<Setting>), String> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let Resolved { cli, settings, .. } =
            resolve(&arguments, std::env::vars_os()).map_err(|error| match error {
                ConfigError::Usage(error) => first_line(&error.to_string()),
                ConfigError::Problems(problems) => problems.join("; "),
            })?;
        let Command::Run(run) = cli.command else {
            unreachable!("only `run` has an operator")
        };
        run.sinks.check().map_err(|error| error.to_string())?;
        Ok((run, settings))
    }

    /// Gives the poller and the queue what has changed for them: all of it, or an error and nothing.
    fn apply(&mut self, poller: &mut Poller) -> Result<Duration, String> {
        let (run, mut settings) = self.read()?;
        let changed: Vec<_> = changes(&self.settings, &settings).cloned().collect();
        let (now, later): (Vec<_>, Vec<_>) = changed
            .iter()
            .partition(|key| key.reload() != Reload::Restart);
        if now.iter().any(|key| key.reload() == Reload::Poller) {
            let new = run.following.settings(&run.source, run.interval);
            poller.change(new).map_err(|error| error.to_string())?;
        }
        if let Some(queue) = &self.queue {
            queue.set_limits(run.sinks.queue.limits());
        }
        self.monitor.set_interval(run.interval);

        let names = |keys: &[_]| {
            let names = keys
                .iter()
                .map(|key: &&crate::config::keys::Key| key.path());
            names.collect::<Vec<_>>().join(", ")
        };
        match (now.is_empty(), later.is_empty()) {
            (true, true) => self
                .reporter
                .inform("configuration read again: nothing has changed"),
            (false, _) => {
                let names = names(&now);
                self.reporter
                    .inform(format!("configuration read again: in force now: {names}"));
            }
            _ => {}
        }
        if !later.is_empty() {
            let names = names(&later);
            self.reporter.refuse(format!(
                "configuration read again: this waits for a restart: {names}"
            ));
        }
        // A key that waits keeps its old value, so that it is reported the next time too.
        for (new, old) in settings.iter_mut().zip(&self.settings) {
            if new.key.reload() == Reload::Restart {
                new.clone_from(old);
            }
        }
        self.settings = settings;
        Ok(run.interval)
    }
}

impl Overseer for Operator {
    fn polled(&mut self, result: Result<(), &PollError>, took: Duration, stats: &Stats) {
        let failure = result.err().map(ToString::to_string);
        if let Some(failure) = &failure {
            self.reporter.complain(format!("a poll failed: {failure}"));
        } else if !std::mem::replace(&mut self.ready, true) {
            self.notifier.ready();
            self.notifier.status("polling");
        }
        self.monitor.polled(failure, took, stats);
    }

    fn notice(&mut self, text: &str) {
        self.reporter.complain(text);
    }

    fn alive(&mut self) -> Duration {
        self.notifier.alive(Instant::now()).unwrap_or(Duration::MAX)
    }

    fn reload(&mut self, poller: &mut Poller, _: &mut dyn Sink) -> Option<Duration> {
        self.notifier.reloading();
        let interval = self.apply(poller).map_err(|error| {
            let error = first_line(&error);
            self.reporter
                .refuse(format!("the configuration stays as it was: {error}"));
        });
        self.notifier.ready();
        interval.ok()
    }

    fn stopping(&mut self) {
        self.notifier.stopping();
        self.reporter
            .inform("stopping: what is left goes to the sinks or stays in the queue");
    }
}

fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned()
}
