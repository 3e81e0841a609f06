//! Opens the sinks that the options name, and starts the threads of those that are remote.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::driver::{self, Remote};
use super::fanout::FanOut;
use super::{AllOptions, Sink};
use crate::accounting::Accounting;
use crate::report::Reporter;
use crate::spool::SpoolError;
use crate::spool::queue::{Queue, QueueError};
use crate::stats::Stats;

/// Why the sinks could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The options cannot be used: what is wrong and what to do.
    #[error("{0}")]
    Options(String),
    /// A directory cannot be used.
    #[error("{path}: cannot use it as the spool: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The spool failed.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The queue failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A thread could not be started.
    #[error("cannot start a thread for {name}: {source}")]
    Thread {
        /// Its sink.
        name: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Values that sinks are opened with.
pub(crate) struct Opening<'a> {
    /// This host's name in the samples.
    pub host: &'a str,
    /// Where rows are accounted for.
    pub accounting: &'a Arc<Accounting>,
    /// For complaints.
    pub reporter: &'a Arc<Reporter>,
    /// Counts what is recovered.
    pub stats: &'a mut Stats,
}

/// A sink with its name: of the books and the metrics, and of a remote one's cursor in the queue.
pub(crate) enum Opened {
    /// Takes messages in the reader's thread.
    Direct(&'static str, Box<dyn Sink>),
    /// Takes them in a thread of its own, from the queue.
    Remote(&'static str, Box<dyn Remote>),
}

/// The options of one sink.
pub(crate) trait SinkOptions {
    /// The option that selects the sink, as an error names it.
    fn flag(&self) -> &'static str;

    /// Whether the sink is selected. What follows is called only when it is.
    fn wanted(&self) -> bool;

    /// Whether it takes its messages from the queue.
    fn is_remote(&self) -> bool;

    /// A directory that is the sink's own, in which the run keeps its state too.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Looks at what can be wrong without touching anything. In an error: what it is and what to do.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Opens the sink.
    fn open(&self, opening: &mut Opening<'_>) -> Result<Opened, StartError>;
}

impl AllOptions {
    fn wanted(&self) -> impl Iterator<Item = &dyn SinkOptions> {
        self.each().into_iter().filter(|sink| sink.wanted())
    }

    /// The directory that is a sink's own, if there is one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        let own = |sink: &&dyn SinkOptions| sink.directory().is_some();
        self.wanted().find(own).and_then(SinkOptions::directory)
    }

    /// The directory in which the number of the poll is kept, if any sink has one.
    pub(crate) fn state_dir(&self) -> Option<&Path> {
        let queue = self.has_remote().then_some(self.queue.queue_dir.as_path());
        self.directory().or(queue)
    }

    fn has_remote(&self) -> bool {
        self.wanted().any(SinkOptions::is_remote)
    }

    /// Looks at what can be wrong without touching anything.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.wanted().next().is_none() {
            let flags: Vec<_> = self.each().into_iter().map(SinkOptions::flag).collect();
            let what = format!("no sink is given: use one or more of {}", flags.join(", "));
            return Err(StartError::Options(what));
        }
        for sink in self.wanted() {
            if self.has_remote() && sink.directory() == Some(&self.queue.queue_dir) {
                let what = format!(
                    "{} and --queue-dir are the same: a reader of spool files would take the queue's",
                    sink.flag()
                );
                return Err(StartError::Options(what));
            }
            sink.check().map_err(StartError::Options)?;
        }
        Ok(())
    }
}

/// Starts the sinks. What predecessors left in their directories is recovered first; the caller holds the host's lock on
/// [`AllOptions::state_dir`].
pub(crate) fn start(options: &AllOptions, mut opening: Opening<'_>) -> Result<FanOut, StartError> {
    let (accounting, reporter) = (opening.accounting, opening.reporter);
    let mut fan_out = FanOut::new(accounting.clone(), reporter.clone());
    let mut remotes = Vec::new();
    for sink in options.wanted() {
        match sink.open(&mut opening)? {
            Opened::Direct(name, sink) => fan_out.add(name, sink),
            Opened::Remote(name, remote) => remotes.push((name, remote)),
        }
    }
    if remotes.is_empty() {
        return Ok(fan_out);
    }
    let sinks: Vec<_> = remotes
        .iter()
        .map(|&(name, _)| (accounting.add(name), name))
        .collect();
    let (directory, limits) = (&options.queue.queue_dir, options.queue.limits());
    let stats = &mut *opening.stats;
    let (queue, lanes) = Queue::open(directory, &sinks, limits, accounting, reporter, stats)?;
    for ((name, remote), lane) in remotes.into_iter().zip(lanes) {
        driver::start(name, remote, lane).map_err(|source| StartError::Thread { name, source })?;
    }
    fan_out.set_queue(queue, sinks.into_iter().map(|(id, _)| id).collect());
    Ok(fan_out)
}
