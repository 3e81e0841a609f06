//! Polls again and again until a signal says to stop.

use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::operate::signals::{Signals, Wish};
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

/// Whoever looks after a run.
pub(crate) trait Overseer {
    /// A poll has ended, `took` after it began.
    fn polled(&mut self, result: Result<(), &PollError>, took: Duration, stats: &Stats);

    /// Something that an operator should know once.
    fn notice(&mut self, text: &str);

    /// The run is alive. Returns when it is to say so again, at the latest.
    fn alive(&mut self) -> Duration;

    /// Reads the configuration again and gives what has changed to the poller and the sink. Returns the interval from now
    /// on; None when all stays as it was.
    fn reload(&mut self, poller: &mut Poller, sink: &mut dyn Sink) -> Option<Duration>;

    /// The last poll has been done; what is left is to finish the sink.
    fn stopping(&mut self);
}

/// Polls as `schedule` says, at most `polls` times, and finishes the sink. One poll ends before the next begins: those
/// whose time has passed meanwhile are left out and counted. A poll that fails after the first has succeeded does not end
/// the run.
pub(crate) fn run(
    poller: &mut Poller,
    sequence: &mut Sequence,
    sink: &mut dyn Sink,
    (schedule, polls): (Schedule, Option<u64>),
    signals: &mut Signals,
    stats: &mut Stats,
    overseer: &mut dyn Overseer,
) -> Result<(), RunError> {
    let schedule = (schedule, polls);
    let result = poll_until_told(poller, sequence, sink, schedule, signals, stats, overseer);
    overseer.stopping();
    // After a failure of the sink itself this completes what was written before it.
    result.and(sink.finish(stats).map_err(RunError::Sink))
}

fn poll_until_told(
    poller: &mut Poller,
    sequence: &mut Sequence,
    sink: &mut dyn Sink,
    (mut schedule, polls): (Schedule, Option<u64>),
    signals: &mut Signals,
    stats: &mut Stats,
    overseer: &mut dyn Overseer,
) -> Result<(), RunError> {
    let mut tries = 0;
    loop {
        let begun = Instant::now();
        let number = sequence.advance();
        stats.polls_unnumbered += u64::from(!sequence.kept());
        let result = poller.poll(number, sink, stats);
        tell(poller, overseer);
        match result {
            Ok(()) => overseer.polled(Ok(()), begun.elapsed(), stats),
            Err(PollError::Sink(error)) => return Err(error.into()),
            Err(error) if tries == 0 => return Err(RunError::Poll(error)),
            Err(error) => {
                stats.polls_failed += 1;
                overseer.polled(Err(&error), begun.elapsed(), stats);
            }
        }
        tries += 1;
        if polls == Some(tries) {
            return Ok(());
        }
        stats.polls_skipped += schedule.advance(Instant::now());
        loop {
            let sign = Instant::now().checked_add(overseer.alive());
            let until = sign.map_or(schedule.due(), |sign| sign.min(schedule.due()));
            let waited = poller.wait(until, signals.as_fd(), sink, stats);
            let wish = signals.wish();
            let settled = match waited {
                // The next poll was due when the signal came.
                Ok(false) if wish.is_some() => poller.settle(sink, stats),
                waited => waited.map(drop),
            };
            match settled {
                Ok(()) => tell(poller, overseer),
                Err(PollError::Sink(error)) => return Err(error.into()),
                Err(error) => return Err(RunError::Poll(error)),
            }
            match wish {
                Some(Wish::Stop) => return Ok(()),
                Some(Wish::Reload) => {
                    if let Some(interval) = overseer.reload(poller, sink) {
                        schedule.change(interval, Instant::now(), wall_clock());
                    }
                }
                None => {}
            }
            if Instant::now() >= schedule.due() {
                break;
            }
        }
    }
}

fn tell(poller: &mut Poller, overseer: &mut dyn Overseer) {
    for notice in poller.notices() {
        overseer.notice(&notice);
    }
}

/// Time since the epoch; zero when the clock stands before it.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
