//! Reads sockets: a poll is one walk over those of every network namespace; between polls, and in the middle of long
//! ones, closing sockets are read as they come. Rows go batch by batch to a sink.

mod flights;
mod idle;
pub(crate) mod scan;
pub(crate) mod settings;
mod wait;
mod watched;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;

use crate::kernel::dump::{self, DumpError, Family, Method, Progress};
use crate::kernel::host::now_unix_us;
use crate::kernel::pin::Pin;
use crate::kernel::starts::Starts;
use crate::kernel::{closes, namespaces};
use crate::sample::algorithms::Algorithms;
use crate::sample::batch::Batch;
use crate::sample::encode::{AccEcn, Encoder, Identity};
use crate::sample::proto::SampleKind;
use crate::sinks::{Sink, SinkError};
use crate::stats::Stats;
use flights::Flights;
use settings::{Scope, Settings};
use watched::{Out, Watched};

/// After so many datagrams of a walk (about 4,000 sockets, 6 ms) close events are read: the kernel's smallest buffer for
/// them holds some 300.
const DATAGRAMS_BETWEEN_DRAINS: u32 = 64;

/// Why a poll is incomplete, or reading cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// A namespace could not be read to its end; the others were.
    #[error("network namespace {netns}: {source}")]
    Namespace {
        /// Its inode.
        netns: u64,
        /// The cause.
        source: DumpError<SinkError>,
    },
    /// Namespaces are to be entered and may not be.
    #[error("other network namespaces cannot be entered: that needs CAP_SYS_ADMIN")]
    NotAllowed,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The sink failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// For `map_err`: adds what was tried.
fn system(what: &'static str) -> impl FnOnce(io::Error) -> PollError {
    move |source| PollError::System { what, source }
}

/// Reads the network namespace of the process that made it and, as far as it is configured and allowed, all others.
pub struct Poller {
    identity: Identity,
    accecn: AccEcn,
    settings: Settings,
    method: Method,
    namespaces: BTreeMap<u64, Watched>,
    /// When to look for namespaces; None for never.
    next_scan: Option<Instant>,
    /// Knows of close events in every namespace, by inode.
    epoll: OwnedFd,
    buffer: Box<[u8; dump::BUFFER]>,
    close_buffer: Box<[u8; closes::BUFFER]>,
    batch: Batch,
    /// When to pass on what is in the batch between polls.
    flush: Option<Instant>,
    algorithms: Algorithms,
    starts: Pin<Starts>,
    flights: Flights,
    sequence: u64,
    notices: Notices,
}

/// Notices that operators should get once.
#[derive(Debug, Default)]
struct Notices {
    known: Vec<&'static str>,
    /// Data of springtide-edge that are not read, and why.
    refused: BTreeMap<&'static str, String>,
    waiting: Vec<String>,
}

impl Notices {
    /// Queues `text`, unless there was a notice about `subject` before.
    fn once(&mut self, subject: &'static str, text: impl FnOnce() -> String) {
        if !self.known.contains(&subject) {
            self.known.push(subject);
            self.waiting.push(text());
        }
    }

    /// Queues why something of springtide-edge's is not read, unless it is as before.
    fn refused(&mut self, what: &'static str, refusal: Option<String>) {
        let Some(why) = refusal else {
            self.refused.remove(what);
            return;
        };
        if self.refused.get(what) != Some(&why) {
            self.waiting
                .push(format!("{what} is not read, everything else is: {why}"));
            self.refused.insert(what, why);
        }
    }
}

impl Poller {
    /// Close events are read from here on.
    pub fn new(identity: Identity, accecn: AccEcn, settings: Settings) -> Result<Self, PollError> {
        let mut notices = Notices::default();
        let enter = settings.scope != Scope::Own
            && namespaces::may_enter().map_err(system("enter a network namespace"))?;
        match settings.scope {
            Scope::All if !enter => return Err(PollError::NotAllowed),
            Scope::AsAllowed if !enter => notices.once("scope", || {
                "only this network namespace is read: others need CAP_SYS_ADMIN and CAP_SYS_PTRACE".to_owned()
            }),
            _ => {}
        }
        let mut poller = Self {
            identity,
            accecn,
            starts: Pin::new(&settings.start_values),
            flights: Flights::new(&settings.start_values),
            settings,
            method: Method::OneWalk,
            namespaces: BTreeMap::new(),
            next_scan: enter.then(Instant::now),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|errno| system("watch for close events")(errno.into()))?,
            buffer: Box::new([0; dump::BUFFER]),
            close_buffer: Box::new([0; closes::BUFFER]),
            batch: Batch::default(),
            flush: None,
            algorithms: Algorithms::default(),
            sequence: 0,
            notices,
        };
        poller.open_own()?;
        poller.look_for_flights()?;
        Ok(poller)
    }

    /// Goes on with other settings, or after an error with those it had. What is remembered of sockets is forgotten: the
    /// next poll exports each of them, and a close event that is read twice on the way has the name that it had.
    pub fn change(&mut self, settings: Settings) -> Result<(), PollError> {
        let mut changed = Self::new(self.identity.clone(), self.accecn, settings)?;
        changed.sequence = self.sequence;
        std::mem::swap(&mut changed.batch, &mut self.batch);
        *self = changed;
        Ok(())
    }

    /// Takes the notices for an operator; none comes twice.
    pub fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices.waiting)
    }

    /// Does the poll numbered `sequence`. After an error the rows read before it have been passed on, unless the error is
    /// the sink's.
    pub fn poll(
        &mut self,
        sequence: u64,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), PollError> {
        self.sequence = sequence;
        let result = self.read_all(sink, stats);
        if matches!(result, Err(PollError::Sink(_))) {
            self.batch.clear();
            return result;
        }
        self.flush(sink, stats)?;
        stats.polls += 1;
        result
    }

    /// Reads every namespace that is due; the first error of those that could not be read to their end.
    fn read_all(&mut self, sink: &mut dyn Sink, stats: &mut Stats) -> Result<(), PollError> {
        self.open_own()?;
        self.scan_if_due(sink, stats)?;
        self.starts.look();
        // A ring buffer that is replaced may still hold records.
        for _ in 0..wait::LAST_TURNS {
            if self.drain_flights(sink, stats)? == 0 {
                break;
            }
        }
        self.look_for_flights()?;
        let mut result = Ok(());
        let inodes: Vec<u64> = self.namespaces.keys().copied().collect();
        for netns in inodes {
            match self.read(netns, sink, stats) {
                Ok(()) => {}
                Err(DumpError::Consumer(error)) => return Err(error.into()),
                Err(source) => {
                    // Its handles are in an unknown state: it is opened anew.
                    self.namespaces.remove(&netns);
                    stats.namespaces_failed += 1;
                    result = result.and(Err(PollError::Namespace { netns, source }));
                }
            }
            self.drain_closes(sink, stats)?;
        }
        let refusal = self.starts.refusal();
        stats.start_values_refused += u64::from(refusal.is_some());
        self.notices
            .refused("what connections started with", refusal);
        result
    }

    /// Reads one namespace, if it is due.
    fn read(
        &mut self,
        netns: u64,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), DumpError<SinkError>> {
        let Some(watched) = self.namespaces.get_mut(&netns) else {
            return Ok(());
        };
        if !watched.is_due(self.settings.states) {
            stats.walks_saved += self.method.walks().len() as u64;
            return Ok(());
        }
        watched.begin(&self.settings);
        let mut encoder = encoder(
            &watched.identity,
            self.sequence,
            SampleKind::Poll,
            self.accecn,
            &self.settings,
        )
        .with_starts(self.starts.get().map(Starts::id));
        let mut walks = self.method.walks().iter();
        while let Some(&family) = walks.next() {
            match self.walk(netns, family, &mut encoder, sink, stats) {
                // Any refusal may be about the map, if there is one: without it the next error is about something else.
                Err(DumpError::Refused { source, .. }) if self.starts.get().is_some() => {
                    self.starts.refuse(&source);
                    walks = self.method.walks().iter();
                }
                Err(error) if error.is_unknown_request() && self.method == Method::OneWalk => {
                    self.method = Method::WalkPerFamily;
                    walks = self.method.walks().iter();
                }
                result => result?,
            }
        }
        if let Some(watched) = self.namespaces.get_mut(&netns) {
            watched.finish(self.sequence);
        }
        Ok(())
    }

    /// One walk; it is repeated once when it was disturbed, which gives what it missed.
    fn walk(
        &mut self,
        netns: u64,
        family: Family,
        encoder: &mut Encoder,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), DumpError<SinkError>> {
        for again in [false, true] {
            let Some(watched) = self.namespaces.get_mut(&netns) else {
                return Ok(());
            };
            watched.request(family, &self.settings, self.starts.get().map(AsFd::as_fd))?;
            stats.walks += 1;
            let mut datagrams = 0;
            let progress = loop {
                let Some(watched) = self.namespaces.get_mut(&netns) else {
                    return Ok(());
                };
                let mut out = Out {
                    batch: &mut self.batch,
                    algorithms: &mut self.algorithms,
                    settings: &self.settings,
                    sink,
                };
                let (sequence, buffer) = (self.sequence, &mut self.buffer);
                match watched.receive(encoder, sequence, again, buffer, &mut out, stats)? {
                    Progress::More => datagrams += 1,
                    progress => break progress,
                }
                if datagrams % DATAGRAMS_BETWEEN_DRAINS == 0 {
                    self.drain_closes(sink, stats)
                        .map_err(DumpError::Consumer)?;
                }
            };
            if progress == Progress::Complete {
                break;
            }
            stats.walks_repeated += u64::from(!again);
        }
        Ok(())
    }

    /// Reads the close events that wait, a turn in each namespace, and the records of first flights; how many datagrams and
    /// records they were.
    fn drain_closes(&mut self, sink: &mut dyn Sink, stats: &mut Stats) -> Result<u64, SinkError> {
        let mut total = self.drain_flights(sink, stats)?;
        for netns in self.ready() {
            total += self.drain(netns, sink, stats)?;
        }
        Ok(total)
    }

    /// Reads a turn of one namespace's close events and returns the number of datagrams.
    fn drain(
        &mut self,
        netns: u64,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<u64, SinkError> {
        let Some(watched) = self.namespaces.get_mut(&netns) else {
            return Ok(0);
        };
        let mut encoder = encoder(
            &watched.identity,
            self.sequence,
            SampleKind::Close,
            self.accecn,
            &self.settings,
        );
        encoder.stamp(now_unix_us());
        let mut out = Out {
            batch: &mut self.batch,
            algorithms: &mut self.algorithms,
            settings: &self.settings,
            sink,
        };
        let overruns = stats.close_overruns;
        let recorded = &mut self.flights.recorded;
        let drained = watched.drain(&encoder, &mut self.close_buffer, recorded, &mut out, stats);
        if stats.close_overruns > overruns {
            let bytes = watched.close_buffer_bytes();
            self.notices.once("overrun", || {
                format!(
                    "close events were lost: they came faster than a kernel buffer of {bytes} bytes holds; enlarge it with --close-buffer, which above net.core.rmem_max needs CAP_NET_ADMIN"
                )
            });
        }
        match drained {
            Ok(datagrams) => Ok(datagrams),
            Err(closes::DrainError::Consumer(error)) => Err(error),
            Err(closes::DrainError::Socket(source)) => {
                // The next poll or scan opens the namespace anew.
                self.namespaces.remove(&netns);
                stats.namespaces_failed += 1;
                self.notices.once("drain", || {
                    format!("network namespace {netns}: cannot read close events: {source}")
                });
                Ok(0)
            }
        }
    }
}

fn encoder(
    identity: &Identity,
    sequence: u64,
    kind: SampleKind,
    accecn: AccEcn,
    settings: &Settings,
) -> Encoder {
    Encoder::new(identity, sequence, kind, accecn).weighing(settings.sampling.weight())
}
