//! One network namespace as the poller reads it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

use super::idle::{Idle, Signs};
use super::settings::Settings;
use crate::kernel::dump::{DumpError, Family, Progress, Request, Taker};
use crate::kernel::host::now_unix_us;
use crate::kernel::inet_diag::SocketView;
use crate::kernel::namespaces::Handles;
use crate::kernel::starts::Start;
use crate::kernel::{closes, dump};
use crate::read::sampling::spread;
use crate::read::sockets::{SocketTable, Visit};
use crate::sample::algorithms::Algorithms;
use crate::sample::batch::Batch;
use crate::sample::digest::digest;
use crate::sample::encode::{Encoder, Identity, Noted};
use crate::sinks::{Sink, SinkError};
use crate::stats::Stats;

/// Whether nothing happens is only looked at in a namespace with at most so many sockets: it costs a digest of each, and
/// for more of them a walk is not a waste.
const QUIET_LIMIT: usize = 1024;

/// Most sockets that room is made for before they are seen: 26 MB.
const RESERVE_LIMIT: usize = 1_000_000;

/// A bit set of the states that sockstat's numbers leave out: a socket that is only bound.
const UNCOUNTED_STATES: u32 = 1 << 13;
/// TIME-WAIT.
const TIME_WAIT: u32 = 1 << 6;

/// A namespace.
pub(super) struct Watched {
    /// Values that its samples share.
    pub identity: Identity,
    /// Handles that it is read through.
    pub handles: Handles,
    /// The last look for namespaces found neither a name nor a process of it.
    pub unreferenced: bool,
    table: SocketTable,
    /// None for the process' own, which every poll reads.
    idle: Option<Idle>,
    /// A socket has closed since the last walk.
    closed: bool,
    /// The poll that last read it.
    last: Option<u64>,
    /// Sockets of the last walk, and whether they differ from the one before.
    sockets: usize,
    changed: bool,
}

/// Where rows go, and what the poller keeps for all namespaces.
pub(super) struct Out<'a> {
    pub batch: &'a mut Batch,
    pub algorithms: &'a mut Algorithms,
    pub settings: &'a Settings,
    pub sink: &'a mut dyn Sink,
}

impl Out<'_> {
    /// Passes the batch on when it is full.
    pub(super) fn settle(&mut self, stats: &mut Stats) -> Result<(), SinkError> {
        if self.batch.is_full() {
            crate::sinks::pass_on(self.batch, self.sink, stats)
        } else {
            Ok(())
        }
    }
}

/// Turns the sockets of a walk into rows.
struct Rows<'a, 'b> {
    table: &'a mut SocketTable,
    /// Whether to look if sockets have changed, and whether one has.
    compare: bool,
    changed: &'a mut bool,
    /// The poll that last read the namespace.
    last: Option<u64>,
    encoder: &'a Encoder,
    sequence: u64,
    again: bool,
    out: &'a mut Out<'b>,
}

impl Taker for Rows<'_, '_> {
    type Error = SinkError;

    #[inline(always)]
    fn expect(&mut self, cookie: u64) {
        self.table.expect(cookie);
    }

    #[inline(always)]
    fn take(&mut self, view: &SocketView<'_>, stats: &mut Stats) -> Result<(), SinkError> {
        let cookie = view.cookie();
        let spread = spread(cookie);
        if !self.out.settings.sampling.takes(spread) {
            stats.sockets_sampled_out += 1;
            return Ok(());
        }
        let (socket, known) = match self.table.visit(cookie) {
            Visit::New(socket) => (socket, false),
            Visit::Known(socket) => (socket, true),
            Visit::Duplicate => {
                if self.again {
                    stats.sockets_reread += 1;
                } else {
                    stats.sockets_duplicate += 1;
                }
                return Ok(());
            }
        };
        if self.compare {
            let digest = digest(view);
            let same = known && socket.digest == digest;
            socket.digest = digest;
            *self.changed |= !same;
            if let Some(every) = self.out.settings.full_every
                && same
                && !is_full_due(every, spread, self.last, self.sequence)
            {
                stats.rows_unchanged += 1;
                return Ok(());
            }
        }
        let mut noted = Noted::default();
        self.out.batch.push(|slot| {
            let len;
            (len, noted) = self.encoder.encode_noting(view, slot, stats);
            len
        });
        if let Some(algorithm) = noted.algorithm {
            socket.algorithm = self.out.algorithms.number(algorithm);
        }
        if let Some(start) = noted.start
            && !socket.started
        {
            self.table.note_start(cookie, start);
        }
        stats.rows += 1;
        self.out.settle(stats)
    }
}

impl Watched {
    /// A namespace that was not read before.
    pub(super) fn new(identity: Identity, handles: Handles, idle: Option<Idle>) -> Self {
        Self {
            identity,
            handles,
            unreferenced: false,
            table: SocketTable::default(),
            idle,
            closed: false,
            last: None,
            sockets: 0,
            changed: true,
        }
    }

    /// Whether this poll reads it.
    pub(super) fn is_due(&mut self, states: u32) -> bool {
        let Some(idle) = &mut self.idle else {
            return true;
        };
        let mut in_use = self.handles.sockstat.as_ref().and_then(|stat| stat.read());
        if let Some(in_use) = &mut in_use
            && states & TIME_WAIT == 0
        {
            in_use.time_wait = 0;
        }
        idle.is_due(&Signs {
            in_use,
            uncounted_states: states & UNCOUNTED_STATES != 0,
            closed: std::mem::take(&mut self.closed),
        })
    }

    /// The walks of a poll begin.
    pub(super) fn begin(&mut self, settings: &Settings) {
        self.table.begin();
        if self.last.is_none() && settings.filter.is_none() {
            let in_use = self.handles.sockstat.as_ref().and_then(|stat| stat.read());
            let sockets =
                in_use.unwrap_or_default().sockets / u64::from(settings.sampling.weight());
            // A number that the kernel gives, but memory is not given out on anyone's word without limit.
            self.table
                .reserve(usize::try_from(sockets).unwrap_or(0).min(RESERVE_LIMIT));
        }
        self.changed = false;
    }

    /// Asks for a walk, with the storages of this map.
    pub(super) fn request(
        &mut self,
        family: Family,
        settings: &Settings,
        storage: Option<BorrowedFd<'_>>,
    ) -> Result<(), DumpError<SinkError>> {
        let request = Request {
            states: settings.states,
            attributes: settings.attributes,
            bytecode: settings
                .filter
                .as_ref()
                .map_or(&[], |filter| filter.bytecode()),
            storage,
        };
        self.handles.dump.send(family, &request)
    }

    /// Receives a datagram of the walk. `again`: the walk is repeated, so that most of it is known.
    #[inline]
    pub(super) fn receive(
        &mut self,
        encoder: &mut Encoder,
        sequence: u64,
        again: bool,
        buffer: &mut [u8; dump::BUFFER],
        out: &mut Out<'_>,
        stats: &mut Stats,
    ) -> Result<Progress, DumpError<SinkError>> {
        // The kernel filled the datagram when the one before was taken.
        encoder.stamp(now_unix_us());
        let may_be_idle = self.idle.is_some() && self.sockets <= QUIET_LIMIT;
        let mut rows = Rows {
            compare: may_be_idle || out.settings.full_every.is_some(),
            table: &mut self.table,
            changed: &mut self.changed,
            last: self.last,
            encoder,
            sequence,
            again,
            out,
        };
        self.handles.dump.receive(buffer, stats, &mut rows)
    }

    /// The walks of the poll numbered `sequence` are done.
    pub(super) fn finish(&mut self, sequence: u64) {
        let sockets = self.table.seen();
        let compared = self.sockets <= QUIET_LIMIT;
        let changed = self.changed || !compared || sockets != self.sockets;
        self.sockets = sockets;
        self.last = Some(sequence);
        if let Some(idle) = &mut self.idle {
            idle.walked(changed);
        }
    }

    /// Size of the kernel's buffer for close events, bytes; 0 without one.
    pub(super) fn close_buffer_bytes(&self) -> usize {
        let closes = self.handles.closes.as_ref();
        closes
            .and_then(|closes| closes.buffer_bytes().ok())
            .unwrap_or(0)
    }

    /// Reads a turn of close events and returns the number of datagrams.
    pub(super) fn drain(
        &mut self,
        encoder: &Encoder,
        buffer: &mut [u8; closes::BUFFER],
        recorded: &mut HashMap<u64, Start>,
        out: &mut Out<'_>,
        stats: &mut Stats,
    ) -> Result<u64, closes::DrainError<SinkError>> {
        let Some(closes) = &self.handles.closes else {
            return Ok(0);
        };
        let table = &self.table;
        let events = stats.close_events;
        let datagrams = closes.drain(buffer, stats, |view, stats| {
            if !is_wanted(view, out.settings, stats) {
                return Ok(());
            }
            let algorithm = table
                .find(view.cookie())
                .and_then(|socket| out.algorithms.name(socket.algorithm));
            let cookie = view.cookie();
            let recorded = recorded.remove(&cookie);
            let started = recorded.as_ref().or_else(|| table.start(cookie));
            out.batch
                .push(|slot| encoder.encode_close(view, algorithm, started, slot, stats));
            stats.rows += 1;
            stats.close_rows += 1;
            out.settle(stats)
        })?;
        self.closed |= stats.close_events > events;
        Ok(datagrams)
    }
}

/// Whether a close event becomes a row; counts why not.
///
/// A socket without a peer was a listener, or never connected, or had its failed connection taken back by the kernel: the
/// event shows only that it existed.
fn is_wanted(view: &SocketView<'_>, settings: &Settings, stats: &mut Stats) -> bool {
    if view.destination_port() == 0 {
        stats.close_events_unconnected += 1;
        return false;
    }
    if settings
        .filter
        .as_ref()
        .is_some_and(|filter| !filter.matches(view))
    {
        stats.close_events_filtered += 1;
        return false;
    }
    if !settings.sampling.takes(spread(view.cookie())) {
        stats.sockets_sampled_out += 1;
        return false;
    }
    true
}

/// Whether a socket's full row falls into the polls after `last` up to `sequence`: each socket has its own turn in
/// `every` polls, so that the full rows of a host spread evenly.
fn is_full_due(every: NonZeroU32, spread: u64, last: Option<u64>, sequence: u64) -> bool {
    let every = u64::from(every.get());
    let turn = |sequence: u64| sequence.wrapping_add((spread >> 32) % every) / every;
    last.is_none_or(|last| turn(last) != turn(sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_gets_a_full_row_once_in_its_turn() {
        let every = NonZeroU32::new(60).unwrap();
        let mut turns = [0; 60];
        for cookie in 1..=6000 {
            let spread = spread(cookie);
            let due: Vec<_> = (101..=160)
                .filter(|&sequence| is_full_due(every, spread, Some(sequence - 1), sequence))
                .collect();
            assert_eq!(due.len(), 1);
            turns[(due[0] - 101) as usize] += 1;
            // Also when polls have been left out.
            assert!(is_full_due(every, spread, Some(100), 160));
        }
        assert!(
            turns.iter().all(|&turn| (40..160).contains(&turn)),
            "{turns:?}"
        );
    }
}
