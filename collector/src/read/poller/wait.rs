//! Waits for the next poll, and reads what closes meanwhile.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::flights::RECORDS;
use super::{PollError, Poller, system};
use crate::sinks::Sink;
use crate::sinks::pass_on;
use crate::stats::Stats;

/// Rows of closed sockets wait at most this long for the batch to fill.
const LONGEST_IN_BATCH: Duration = Duration::from_secs(1);

/// After events have been read, more are left to gather for this long, so that a busy host does not wake the collector
/// for each. The smallest kernel buffer holds 20,000 events a second for this time.
const GATHER: Duration = Duration::from_millis(10);

/// So many datagrams at once mean that the kernel's buffer fills quickly: then none are left to gather.
const MANY: u64 = 128;

/// Turns of reading what waits before the collector obeys a signal, or leaves a namespace: enough for a full kernel buffer, and an
/// end even where connections close without end.
pub(super) const LAST_TURNS: usize = 64;

/// Most namespaces whose events are read in one go; the others' turn is next.
const READY: usize = 64;

impl Poller {
    /// Waits until `due` and reads close events as they come. Returns early, and true, when `signals` can be read; then all
    /// rows have been passed on.
    pub fn wait(
        &mut self,
        due: Instant,
        signals: BorrowedFd<'_>,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<bool, PollError> {
        loop {
            self.scan_if_due(sink, stats)?;
            let now = Instant::now();
            if self.flush.is_some_and(|flush| flush <= now) {
                self.flush(sink, stats)?;
            }
            if now >= due {
                return Ok(false);
            }
            let until = [Some(due), self.next_scan, self.flush]
                .into_iter()
                .flatten()
                .min();
            let left = until.unwrap_or(due).saturating_duration_since(now);
            if is_readable([signals, self.epoll.as_fd()], left)? {
                break;
            }
            let read = self.drain_closes(sink, stats)?;
            if read > 0 && self.flush.is_none() {
                self.flush = Some(Instant::now() + LONGEST_IN_BATCH);
            }
            let left = due.saturating_duration_since(Instant::now());
            if (1..MANY).contains(&read) && is_readable([signals], GATHER.min(left))? {
                break;
            }
        }
        self.settle(sink, stats)?;
        Ok(true)
    }

    /// Reads the close events that wait, and passes all rows on.
    pub fn settle(&mut self, sink: &mut dyn Sink, stats: &mut Stats) -> Result<(), PollError> {
        for _ in 0..LAST_TURNS {
            if self.drain_closes(sink, stats)? == 0 {
                break;
            }
        }
        self.flush(sink, stats)
    }

    /// Passes on what the batch holds.
    pub(super) fn flush(
        &mut self,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), PollError> {
        self.flush = None;
        pass_on(&mut self.batch, sink, stats)?;
        Ok(sink.end_poll(stats)?)
    }

    /// The namespaces that have close events.
    pub(super) fn ready(&self) -> Vec<u64> {
        let mut events = Vec::with_capacity(READY);
        let now = Timespec::default();
        // Whatever fails here fails again in the wait, which reports it.
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        ) {
            Ok(_) => {
                let events = events.iter().map(|event| event.data.u64());
                events.filter(|netns| *netns != RECORDS).collect()
            }
            Err(_) => Vec::new(),
        }
    }
}

/// Waits until one of the descriptors can be read or `time` has passed; whether the first can be read.
fn is_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    time: Duration,
) -> Result<bool, PollError> {
    let mut wanted = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let time = Timespec::try_from(time).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    });
    match poll(&mut wanted, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(!wanted[0].revents().is_empty()),
        Err(errno) => Err(system("wait for the next poll")(errno.into())),
    }
}
