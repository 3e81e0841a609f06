//! Polls again and again until a signal stops it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::operate::signals::{Request, Signals};
use crate::read::poller::{PollError, Poller};
use crate::read::schedule::Schedule;
use crate::read::sequence::Sequence;
use crate::sinks::{Sink, SinkError};
use crate::stats::Stats;

/// Why a run ended other than by a signal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Not even the first poll could be done.
    #[error(transparent)]
    Poll(PollError),
    /// The sink failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Looks after a run.
pub(crate) trait Overseer {
    /// A poll has ended, `took` after it began.
    fn polled(&mut self, result: Result<(), &PollError>, took: Duration, stats: &Stats);

    /// Something that an operator should know once.
    fn notice(&mut self, text: &str);

    /// The run is alive. Returns when it must report that again, at the latest.
    fn alive(&mut self) -> Duration;

    /// Reads the configuration again and gives what has changed to the poller and the sink. Returns the interval from now
    /// on; None when all stays as it was.
    fn reload(&mut self, poller: &mut Poller, sink: &mut dyn Sink) -> Option<Duration>;

    /// The last poll has been done; what is left is to finish the sink.
    fn stopping(&mut self);
}

/// Parts that a run works with.
pub(crate) struct Running<'a> {
    /// Reads the sockets.
    pub(crate) poller: &'a mut Poller,
    /// Numbers the polls.
    pub(crate) sequence: &'a mut Sequence,
    /// Takes the messages.
    pub(crate) sink: &'a mut dyn Sink,
    /// When polls are due.
    pub(crate) schedule: Schedule,
    /// Number of polls at most.
    pub(crate) polls: Option<u64>,
    /// Signals that end the run, or have the configuration read again.
    pub(crate) signals: &'a mut Signals,
    /// The counters.
    pub(crate) stats: &'a mut Stats,
    /// Looks after the run.
    pub(crate) overseer: &'a mut dyn Overseer,
}

/// Polls by the schedule and finishes the sink. One poll ends before the next begins: those whose time has passed
/// meanwhile are left out and counted. A poll that fails after the first has succeeded does not end the run.
pub(crate) fn run(mut running: Running<'_>) -> Result<(), RunError> {
    let result = running.poll_until_stopped();
    running.overseer.stopping();
    // After a failure of the sink itself this completes what was written before it.
    let finished = running.sink.finish(running.stats);
    result.and(finished.map_err(RunError::Sink))
}

impl Running<'_> {
    fn poll_until_stopped(&mut self) -> Result<(), RunError> {
        let mut tries = 0;
        loop {
            self.poll(tries == 0)?;
            tries += 1;
            if self.polls == Some(tries) {
                return Ok(());
            }
            self.stats.polls_skipped += self.schedule.advance(Instant::now());
            if self.wait()? == Some(Request::Stop) {
                return Ok(());
            }
        }
    }

    /// One poll.
    fn poll(&mut self, first: bool) -> Result<(), RunError> {
        let begun = Instant::now();
        let number = self.sequence.advance();
        self.stats.polls_unnumbered += u64::from(!self.sequence.kept());
        let result = self.poller.poll(number, self.sink, self.stats);
        self.notice();
        match result {
            Ok(()) => self.overseer.polled(Ok(()), begun.elapsed(), self.stats),
            Err(PollError::Sink(error)) => return Err(error.into()),
            Err(error) if first => return Err(RunError::Poll(error)),
            Err(error) => {
                self.stats.polls_failed += 1;
                self.overseer
                    .polled(Err(&error), begun.elapsed(), self.stats);
            }
        }
        Ok(())
    }

    /// Waits until the next poll is due, and reads close events meanwhile; ends early when it is to stop.
    fn wait(&mut self) -> Result<Option<Request>, RunError> {
        loop {
            let sign = Instant::now().checked_add(self.overseer.alive());
            let due = self.schedule.due();
            let until = sign.map_or(due, |sign| sign.min(due));
            let signals = self.signals.as_fd();
            let waited = self.poller.wait(until, signals, self.sink, self.stats);
            let request = self.signals.request();
            let settled = match waited {
                // The next poll was due when the signal came.
                Ok(false) if request.is_some() => self.poller.settle(self.sink, self.stats),
                waited => waited.map(drop),
            };
            match settled {
                Ok(()) => self.notice(),
                Err(PollError::Sink(error)) => return Err(error.into()),
                Err(error) => return Err(RunError::Poll(error)),
            }
            match request {
                Some(Request::Stop) => return Ok(request),
                Some(Request::Reload) => {
                    if let Some(interval) = self.overseer.reload(self.poller, self.sink) {
                        self.schedule.change(interval, Instant::now(), wall_clock());
                    }
                }
                None => {}
            }
            if Instant::now() >= self.schedule.due() {
                return Ok(None);
            }
        }
    }

    fn notice(&mut self) {
        for notice in self.poller.notices() {
            self.overseer.notice(&notice);
        }
    }
}

/// Time since the epoch; zero when the clock is before it.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
