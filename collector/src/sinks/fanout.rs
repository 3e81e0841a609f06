//! Every message to every sink, and into the books. No sink keeps the reader or another sink waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Sink, SinkError};
use crate::accounting::{Accounting, Cause, SinkId};
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::spool::queue::{Gauge, Queue};
use crate::stats::Stats;

/// Time that remote sinks may take for the rest at the end: a service manager waits five seconds
/// for the whole.
const GRACE: Duration = Duration::from_secs(4);

/// Hands messages to the sinks. Direct sinks take them in the reader's thread; remote ones, each in its own, from the
/// queue.
pub(crate) struct FanOut {
    accounting: Arc<Accounting>,
    reporter: Arc<Reporter>,
    queue: Option<(Queue, Vec<SinkId>)>,
    direct: Vec<Direct>,
}

struct Direct {
    id: SinkId,
    name: &'static str,
    sink: Box<dyn Sink>,
}

impl FanOut {
    /// Without any sink yet.
    pub(crate) fn new(accounting: Arc<Accounting>, reporter: Arc<Reporter>) -> Self {
        Self {
            accounting,
            reporter,
            queue: None,
            direct: Vec::new(),
        }
    }

    /// Adds a sink that takes messages in place.
    pub(crate) fn add(&mut self, name: &'static str, sink: Box<dyn Sink>) {
        let id = self.accounting.add(name);
        self.direct.push(Direct { id, name, sink });
    }

    /// Measures the queue, if there is one.
    pub(crate) fn gauge(&self) -> Option<Gauge> {
        self.queue.as_ref().map(|(queue, _)| queue.gauge())
    }

    /// Sets the queue of the remote sinks.
    pub(crate) fn set_queue(&mut self, queue: Queue, sinks: Vec<SinkId>) {
        self.queue = Some((queue, sinks));
    }
}

impl Sink for FanOut {
    fn write(&mut self, message: Message<'_>, stats: &mut Stats) -> Result<(), SinkError> {
        let rows = message.rows.into();
        self.accounting.read(rows);
        if let Some((queue, sinks)) = &mut self.queue
            && let Err(cause) = queue.append(message)
        {
            for &sink in &*sinks {
                self.accounting.dropped(sink, rows, cause);
            }
        }
        let mut result = Ok(());
        for direct in &mut self.direct {
            match direct.sink.write(message, stats) {
                Ok(()) => self.accounting.delivered(direct.id, rows),
                Err(error) => {
                    self.accounting
                        .dropped(direct.id, rows, Cause::DiskUnavailable);
                    result = result.and(survive(error, direct.name, &self.reporter));
                }
            }
        }
        result
    }

    fn end_poll(&mut self, stats: &mut Stats) -> Result<(), SinkError> {
        let mut result = Ok(());
        for direct in &mut self.direct {
            if let Err(error) = direct.sink.end_poll(stats) {
                result = result.and(survive(error, direct.name, &self.reporter));
            }
        }
        result
    }

    fn finish(&mut self, stats: &mut Stats) -> Result<(), SinkError> {
        let deadline = Instant::now() + GRACE;
        let mut result = Ok(());
        for direct in &mut self.direct {
            result = result.and(direct.sink.finish(stats));
        }
        if let Some((queue, _)) = self.queue.take() {
            queue.close(deadline);
        }
        result
    }
}

/// A disk that is full or broken for a while ends nothing; an output that is gone ends the run.
fn survive(error: SinkError, name: &str, reporter: &Reporter) -> Result<(), SinkError> {
    match error {
        SinkError::Spool(error) => {
            reporter.complain(format!(
                "{name}: {error}: rows are lost to this sink until it works again"
            ));
            Ok(())
        }
        error @ SinkError::Output(_) => Err(error),
    }
}
