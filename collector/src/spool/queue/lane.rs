//! One sink's way through the queue.

use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::aside;
use super::cursor::{CursorFile, Position};
use super::state::{Outcome, Place};
use super::{SEGMENT, Shared};
use crate::accounting::Cause;
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::spool::record::{self, HEADER, Header};
use crate::spool::scan::{self, Patience};
use crate::spool::{open_own, reading};

/// A record that a sink has taken and must resolve.
#[derive(Debug)]
pub(crate) struct Record {
    /// Names it in the queue.
    pub at: Position,
    /// Checksum of what lies in the queue.
    pub checksum: u32,
    /// Rows inside.
    pub rows: u32,
    /// Varint length and Envelope.
    pub bytes: Vec<u8>,
}

impl Record {
    /// It as a message.
    pub(crate) fn message(&self) -> Message<'_> {
        Message {
            rows: self.rows,
            bytes: &self.bytes,
        }
    }
}

/// Answer of a lane to its sink.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The next record.
    Record(Record),
    /// None within the time.
    Nothing,
    /// None ever: the sink resolves what it has, if it can, and ends.
    Closed,
}

/// The end of the queue that one sink reads.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    index: usize,
    name: &'static str,
    cursor: Option<CursorFile>,
    file: Option<(u64, File, Patience)>,
    payload: Vec<u8>,
    delivered: u64,
}

/// Content of a place.
enum Found {
    Record(Record, u64),
    /// Nothing up to here.
    Corrupt(u64),
    /// It cannot be read now.
    Later,
}

impl Lane {
    pub(super) fn new(
        shared: Arc<Shared>,
        index: usize,
        name: &'static str,
        cursor: Option<CursorFile>,
    ) -> Self {
        Self {
            shared,
            index,
            name,
            cursor,
            file: None,
            payload: Vec::new(),
            delivered: 0,
        }
    }

    /// The sink's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// For the sink's complaints.
    pub(crate) fn reporter(&self) -> &Arc<Reporter> {
        &self.shared.reporter
    }

    /// Takes the next record, waiting for it at most `wait`.
    pub(crate) fn take(&mut self, wait: Duration) -> Taken {
        let deadline = Instant::now() + wait;
        loop {
            let place = match self.place(deadline) {
                Ok(place) => place,
                Err(nothing) => return nothing,
            };
            match self.read(&place) {
                Found::Record(record, end) => {
                    let mut state = self.shared.lock();
                    if state.take(self.index, &place, end, record.rows.into()) {
                        return Taken::Record(record);
                    }
                    // Dropped meanwhile, or a record that was never counted.
                    state.skip(self.index, &place, end);
                }
                Found::Corrupt(end) => {
                    let path = self.shared.path(place.at.segment);
                    let (path, offset) = (path.display(), place.at.offset);
                    self.shared.reporter.complain(format!(
                        "{path}: offset {offset}: no valid record: its rows are lost to {}",
                        self.name
                    ));
                    self.shared.lock().skip(self.index, &place, end);
                }
                Found::Later => {
                    thread::sleep(Duration::from_millis(100));
                    return Taken::Nothing;
                }
            }
        }
    }

    /// Whether the time that a sink has after the end is over.
    pub(crate) fn expired(&self) -> bool {
        let closing = self.shared.lock().closing;
        closing.is_some_and(|closing| Instant::now() >= closing)
    }

    /// Number of records that its sink has delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Sleeps, but not beyond the end.
    pub(crate) fn pause(&self, time: Duration) {
        let mut state = self.shared.lock();
        let end = Instant::now() + time;
        loop {
            let end = state.closing.map_or(end, |closing| end.min(closing));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.records.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Settles what became of a record. The cursor moves on when all before it are resolved too.
    pub(crate) fn resolve(&mut self, at: Position, outcome: Outcome) {
        self.delivered += u64::from(outcome == Outcome::Delivered);
        let mut state = self.shared.lock();
        let floor = state.resolve(self.index, at, outcome);
        let chores = !state.doomed.is_empty();
        drop(state);
        let Some(floor) = floor else { return };
        if chores {
            self.shared.chores.notify_one();
        }
        if let Some(cursor) = &self.cursor
            && let Err(error) = cursor.set(floor)
        {
            self.complain(&error);
        }
        self.shared.progress.notify_all();
    }

    /// Gives back every record that is not resolved: they are taken again, in order.
    pub(crate) fn rewind(&mut self) {
        self.shared.lock().rewind(self.index);
    }

    /// Keeps a record that the receiver will never take beside the queue, and resolves it so.
    pub(crate) fn set_aside(&mut self, record: &Record) {
        let directory = self.shared.directory.join("rejected");
        let name = format!(
            "{}-{:020}-{}",
            self.name, record.at.segment, record.at.offset
        );
        match aside::keep(&directory, &name, record.message()) {
            Ok(path) => {
                let (sink, rows, bytes) = (self.name, record.rows, record.bytes.len());
                self.shared.reporter.complain(format!(
                    "{sink}: a message of {rows} rows and {bytes} bytes is larger than the receiver takes: it is kept in {}",
                    path.display()
                ));
            }
            Err(error) => self.shared.reporter.complain(format!(
                "{}: a message is larger than the receiver takes, and cannot be kept in {}: {error}",
                self.name,
                directory.display()
            )),
        }
        self.resolve(record.at, Outcome::Dropped(Cause::TooLarge));
    }

    /// Where to read next, or what to return instead.
    fn place(&self, deadline: Instant) -> Result<Place, Taken> {
        let mut state = self.shared.lock();
        loop {
            if state
                .closing
                .is_some_and(|closing| Instant::now() >= closing)
            {
                return Err(Taken::Closed);
            }
            if let Some(place) = state.next(self.index) {
                return Ok(place);
            }
            if state.closing.is_some() {
                self.shared.progress.notify_all();
                return Err(Taken::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Taken::Nothing);
            }
            let waited = self.shared.records.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn read(&mut self, place: &Place) -> Found {
        let found = match &place.memory {
            Some(memory) => Ok(read_memory(place, memory)),
            None => self.read_disk(place),
        };
        match found {
            Ok(found) => found,
            Err(error) => {
                self.file = None;
                self.complain(&error);
                // A segment without its file is lost, and what is there instead is not a segment; anything else is temporary.
                match error.kind() {
                    io::ErrorKind::NotFound
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidInput => Found::Corrupt(place.length),
                    _ => Found::Later,
                }
            }
        }
    }

    fn read_disk(&mut self, place: &Place) -> io::Result<Found> {
        let id = place.at.segment;
        let (at, length) = (place.at.offset, place.length);
        if self.file.as_ref().is_none_or(|(open, ..)| *open != id) {
            let file = open_own(&reading(), &self.shared.path(id))?;
            self.file = Some((id, file, Patience::of(SEGMENT)));
        }
        let Some((_, file, patience)) = &mut self.file else {
            return Ok(Found::Later);
        };
        if let Some(header) = scan::record_at(file, at, length, &mut self.payload)?
            && let Some(found) = found(place, &header, &self.payload)
        {
            return Ok(found);
        }
        Ok(Found::Corrupt(scan::next_record(
            file,
            at + 1,
            length,
            &mut self.payload,
            patience,
        )?))
    }

    fn complain(&self, error: &io::Error) {
        let queue = self.shared.directory.display();
        self.shared
            .reporter
            .complain(format!("{queue}: the queue of {}: {error}", self.name));
    }
}

fn read_memory(place: &Place, memory: &[u8]) -> Found {
    let rest = memory.get(place.at.offset as usize..).unwrap_or_default();
    rest.first_chunk::<HEADER>()
        .and_then(Header::parse)
        .and_then(|header| found(place, &header, rest.get(HEADER..HEADER + header.payload)?))
        .unwrap_or(Found::Corrupt(place.length))
}

fn found(place: &Place, header: &Header, payload: &[u8]) -> Option<Found> {
    let mut bytes = Vec::new();
    record::decompress(header.codec, payload, &mut bytes).ok()?;
    let record = Record {
        at: place.at,
        checksum: header.checksum(),
        rows: header.rows,
        bytes,
    };
    Some(Found::Record(record, place.at.offset + header.record()))
}
