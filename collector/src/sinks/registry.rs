//! Opens the sinks that the options name, and starts the threads of those that are remote.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::fanout::FanOut;
use super::options::{Print, SinkOptions};
use super::print::json::JsonSink;
use super::print::null::NullSink;
use super::print::table::TableSink;
use super::stdout;
use crate::accounting::Accounting;
use crate::report::Reporter;
use crate::spool::SpoolError;
use crate::spool::queue::{Lane, Limits, Queue, QueueError};
use crate::spool::recover::recover;
use crate::spool::writer::{Rotation, SpoolWriter};
use crate::stats::Stats;

/// Why the sinks could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The options are of no use: what is wrong and what to do.
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

/// A sink that works in a thread of its own.
pub struct Remote {
    /// Its name: of the cursor, the books and the metrics.
    pub name: &'static str,
    /// What the thread does.
    pub work: Box<dyn FnOnce(Lane) + Send>,
}

impl SinkOptions {
    /// The directory in which the number of the poll is kept, if any sink has one.
    pub fn state_dir(&self) -> Option<&Path> {
        let queue = self.has_remote().then_some(self.queue.queue_dir.as_path());
        self.spool_dir.as_deref().or(queue)
    }

    fn has_remote(&self) -> bool {
        let named: &[bool] = &[
            #[cfg(feature = "kafka")]
            self.kafka.kafka.is_some(),
            #[cfg(feature = "clickhouse")]
            self.clickhouse.clickhouse.is_some(),
        ];
        named.contains(&true)
    }

    /// Looks at what can be wrong without touching anything.
    pub fn check(&self) -> Result<(), StartError> {
        let names = [
            "--spool-dir",
            #[cfg(feature = "kafka")]
            "--kafka",
            #[cfg(feature = "clickhouse")]
            "--clickhouse",
            "--print",
        ];
        if self.spool_dir.is_none() && self.print.is_none() && !self.has_remote() {
            let what = format!("no sink is given: use one or more of {}", names.join(", "));
            return Err(StartError::Options(what));
        }
        if self.has_remote() && self.spool_dir.as_ref() == Some(&self.queue.queue_dir) {
            let what = "--spool-dir and --queue-dir are the same: a reader of spool files would take the queue's";
            return Err(StartError::Options(what.to_owned()));
        }
        #[cfg(feature = "kafka")]
        super::kafka::check(&self.kafka).map_err(StartError::Options)?;
        #[cfg(feature = "clickhouse")]
        super::clickhouse::check(&self.clickhouse).map_err(StartError::Options)?;
        Ok(())
    }

    /// The remote sinks, ready to work.
    fn remotes(&self, host: &str, reporter: &Arc<Reporter>) -> Result<Vec<Remote>, String> {
        let _ = (host, reporter);
        let wanted: Vec<Option<Remote>> = Vec::from([
            #[cfg(feature = "kafka")]
            super::kafka::remote(&self.kafka, host, reporter)?,
            #[cfg(feature = "clickhouse")]
            super::clickhouse::remote(&self.clickhouse, host)?,
        ]);
        Ok(wanted.into_iter().flatten().collect())
    }
}

/// Starts the sinks. What predecessors left in their directories is recovered first; the caller holds the host's lock on
/// the spool directory.
pub fn start(
    options: &SinkOptions,
    host: &str,
    accounting: &Arc<Accounting>,
    reporter: &Arc<Reporter>,
    stats: &mut Stats,
) -> Result<FanOut, StartError> {
    let remotes = options
        .remotes(host, reporter)
        .map_err(StartError::Options)?;
    let mut fan_out = FanOut::new(accounting.clone(), reporter.clone());
    if let Some(directory) = &options.spool_dir {
        fs::create_dir_all(directory).map_err(|source| StartError::Directory {
            path: directory.display().to_string(),
            source,
        })?;
        recover(directory, host, reporter, stats)?;
        let rotation = Rotation {
            bytes: options.rotate_bytes,
            interval: options.rotate_interval,
        };
        fan_out.add(
            "file",
            Box::new(SpoolWriter::new(directory, host, rotation)?),
        );
    }
    match options.print {
        Some(Print::Table) => fan_out.add("stdout", Box::new(TableSink::new(stdout(), false))),
        Some(Print::Json) => fan_out.add("stdout", Box::new(JsonSink::new(stdout()))),
        Some(Print::Null) => fan_out.add("null", Box::new(NullSink)),
        None => {}
    }
    if !remotes.is_empty() {
        let limits = Limits {
            bytes: options.queue.queue_bytes,
            age: options.queue.queue_age,
        };
        let sinks: Vec<_> = remotes
            .iter()
            .map(|remote| (accounting.add(remote.name), remote.name))
            .collect();
        let directory = &options.queue.queue_dir;
        let (queue, lanes) = Queue::open(directory, &sinks, limits, accounting, reporter, stats)?;
        for (remote, lane) in remotes.into_iter().zip(lanes) {
            let Remote { name, work } = remote;
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(lane))
                .map_err(|source| StartError::Thread { name, source })?;
        }
        fan_out.set_queue(queue, sinks.into_iter().map(|(id, _)| id).collect());
    }
    Ok(fan_out)
}
