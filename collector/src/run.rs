//! Polls at a fixed interval until a signal says to stop.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::kernel::dump::DumpError;
use crate::poller::Poller;
use crate::sequence::{Sequence, SequenceError};
use crate::sink::{Sink, SinkError};
use crate::stats::Stats;

/// Why a run ended other than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Not even the first poll could be done.
    #[error(transparent)]
    Poll(DumpError<SinkError>),
    /// The sink failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Polls could not be numbered.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// Waiting failed.
    #[error("cannot wait for the next poll: {0}")]
    Wait(#[from] io::Error),
}

/// Wakes a sleeper at SIGINT and SIGTERM. The signals no longer end the process by themselves.
pub struct Shutdown {
    wake: UnixStream,
}

impl Shutdown {
    /// Takes over the signals.
    pub fn listen() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGINT, signalled.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGTERM, signalled)?;
        Ok(Self { wake })
    }

    /// Sleeps for `time`; true when a signal has come, at once.
    fn within(&mut self, time: Duration) -> io::Result<bool> {
        // A timeout of zero would mean none.
        self.wake
            .set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        match self.wake.read(&mut [0]) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Polls every `interval`, at most `polls` times, and finishes the sink. One poll ends before the next begins: those whose
/// time has passed meanwhile are left out and counted. A poll that fails after the first has succeeded is told to
/// `complain` and does not end the run.
pub fn run(
    poller: &mut Poller,
    sequence: &mut Sequence,
    sink: &mut dyn Sink,
    schedule: (Duration, Option<u64>),
    shutdown: &mut Shutdown,
    stats: &mut Stats,
    complain: impl FnMut(&DumpError<SinkError>),
) -> Result<(), RunError> {
    let result = poll_until_told(poller, sequence, sink, schedule, shutdown, stats, complain);
    // After a failure of the sink itself this completes what was written before it.
    result.and(sink.finish(stats).map_err(RunError::Sink))
}

fn poll_until_told(
    poller: &mut Poller,
    sequence: &mut Sequence,
    sink: &mut dyn Sink,
    (interval, polls): (Duration, Option<u64>),
    shutdown: &mut Shutdown,
    stats: &mut Stats,
    mut complain: impl FnMut(&DumpError<SinkError>),
) -> Result<(), RunError> {
    let mut due = Instant::now();
    let mut tries = 0;
    loop {
        match poller.poll(sequence.advance()?, sink, stats) {
            Ok(()) => {}
            Err(DumpError::Consumer(error)) => return Err(error.into()),
            Err(error) if tries == 0 => return Err(RunError::Poll(error)),
            Err(error) => {
                stats.polls_failed += 1;
                complain(&error);
            }
        }
        tries += 1;
        if polls == Some(tries) {
            return Ok(());
        }
        let (next, skipped) = next_due(due, interval, Instant::now());
        stats.polls_skipped += skipped;
        due = next;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if shutdown.within(left)? {
                return Ok(());
            }
            if Instant::now() >= due {
                break;
            }
        }
    }
}

/// The first multiple of `interval` after `due` that is not before `now`, and how many were left out for it.
fn next_due(due: Instant, interval: Duration, now: Instant) -> (Instant, u64) {
    let late = now.saturating_duration_since(due + interval);
    let skipped = late.as_nanos().div_ceil(interval.as_nanos());
    let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
    (due + interval + interval * skipped, skipped.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_keep_their_rhythm_and_leave_out_what_is_past() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let interval = Duration::from_millis(100);
        assert_eq!(next_due(start, interval, ms(20)), (ms(100), 0));
        assert_eq!(next_due(start, interval, ms(100)), (ms(100), 0));
        assert_eq!(next_due(start, interval, ms(101)), (ms(200), 1));
        assert_eq!(next_due(start, interval, ms(350)), (ms(400), 3));
    }
}
