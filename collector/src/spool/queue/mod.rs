//! The queue between the reader and the remote sinks: a write-ahead spool on disk that outlives the process.
//!
//! The reader appends records to segments, files `<20 digits>.spool` of records as in any spool file; a `write` is all
//! that it ever waits for. Each sink has a [`Lane`] with a durable cursor, reads in order and at its own pace, and gets
//! every record at least once. A segment goes when every lane has passed it. A segment is synced to disk when it stays
//! after it is full: while the sinks keep up nothing is. Over the limits the oldest segment is dropped and counted.
//! While the disk takes nothing, records wait in a little memory; the disk is tried again.
//!
//! Longer than 400 lines: the queue and its disk share one lock, and the order in which they take it is seen here.

mod aside;
mod cursor;
mod keeper;
mod lane;
mod recover;
mod state;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::state::{Segment, State};
use super::is_outage;
use super::record::{Codec, RecordWriter};
use crate::accounting::{Accounting, Cause, SinkId};
use crate::lock;
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::stats::Stats;

pub(crate) use self::cursor::Position;
pub(crate) use self::lane::{Lane, Record, Taken};
pub(crate) use self::state::Outcome;

/// Most bytes that wait in memory while the disk takes nothing.
pub(crate) const MEMORY_LIMIT: u64 = 4 << 20;

/// A segment in memory is freed as a whole.
const MEMORY_SEGMENT: u64 = 1 << 20;

/// Largest segment, bytes: what one removal frees and one loss of the oldest costs.
const SEGMENT: u64 = 16 << 20;

/// The disk is tried again after the first time, then after twice as long, up to the second.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// Limits of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes on disk.
    pub bytes: u64,
    /// Age of a record.
    pub age: Duration,
}

/// Why the queue cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    /// Two processes cannot share it.
    #[error("{}: another collector is running on this queue: give each its own --queue-dir", .0.display())]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("{}: cannot use it as the queue: {source}", path.display())]
    Io {
        /// The directory or a file in it.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Contents of the queue now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes in memory because the disk takes nothing.
    pub memory_bytes: u64,
    /// Age of the segment with the oldest record that some sink has not resolved, milliseconds; 0 without one.
    pub oldest_ms: u64,
}

struct Shared {
    state: Mutex<State>,
    /// Records have come, or the end has.
    records: Condvar,
    /// A lane has come further.
    progress: Condvar,
    /// There are files to remove.
    chores: Condvar,
    directory: PathBuf,
    limits: Mutex<Limits>,
    reporter: Arc<Reporter>,
}

impl Shared {
    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id:020}.spool"))
    }

    fn held(&self) -> Held {
        let state = self.lock();
        let (disk_bytes, memory_bytes) = state.bytes();
        let oldest = state.oldest_unresolved();
        let oldest_ms = oldest.map_or(0, |born| born.elapsed().as_millis() as u64);
        Held {
            disk_bytes,
            memory_bytes,
            oldest_ms,
        }
    }
}

/// Shows what a queue holds and may hold, from any thread.
#[derive(Clone)]
pub(crate) struct Gauge(Arc<Shared>);

impl Gauge {
    /// Limits of the queue.
    pub(crate) fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// Sets what the queue may hold from the next record on; what is over that is dropped and counted.
    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Contents of the queue now.
    pub(crate) fn held(&self) -> Held {
        self.0.held()
    }
}

/// The end of the queue that records are appended to.
pub(crate) struct Queue {
    records: RecordWriter,
    disk: Disk,
    lanes: usize,
    _lock: Option<File>,
}

impl Queue {
    /// Opens the queue in `directory`, which is made if it is missing, and a lane for each of `sinks`, whose names are those
    /// of their cursors. What a predecessor left is recovered and accounted for. A disk that is full or read-only is no
    /// error.
    pub(crate) fn open(
        directory: &Path,
        sinks: &[(SinkId, &'static str)],
        limits: Limits,
        accounting: &Arc<Accounting>,
        reporter: &Arc<Reporter>,
        stats: &mut Stats,
    ) -> Result<(Self, Vec<Lane>), QueueError> {
        let failed = |source| QueueError::Io {
            path: directory.to_owned(),
            source,
        };
        survive(fs::create_dir_all(directory)).map_err(failed)?;
        let lock = survive(File::open(directory)).map_err(failed)?;
        if let Some(held) = &lock {
            lock::exclusive(held).map_err(|errno| match errno {
                rustix::io::Errno::WOULDBLOCK => QueueError::Locked(directory.to_owned()),
                errno => failed(errno.into()),
            })?;
        }
        let (state, cursors) = recover::recover(directory, sinks, accounting, reporter, stats)?;
        let records = RecordWriter::new().map_err(failed)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            records: Condvar::new(),
            progress: Condvar::new(),
            chores: Condvar::new(),
            directory: directory.to_owned(),
            limits: Mutex::new(limits),
            reporter: reporter.clone(),
        });
        keeper::start(&shared).map_err(failed)?;
        let lanes = (cursors.into_iter().zip(sinks).enumerate())
            .map(|(index, (cursor, (_, name)))| Lane::new(shared.clone(), index, name, cursor))
            .collect();
        let disk = Disk {
            shared,
            file: None,
            outage: None,
        };
        let queue = Self {
            records,
            disk,
            lanes: sinks.len(),
            _lock: lock,
        };
        Ok((queue, lanes))
    }

    /// For those who want to know what the queue holds.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(self.disk.shared.clone())
    }

    /// Appends the message; after that it outlives the process. In an error the rows are lost for the cause given.
    pub(crate) fn append(&mut self, message: Message<'_>) -> Result<(), Cause> {
        let codec = if self.disk.shared.lock().lags() {
            Codec::Zstd
        } else {
            Codec::None
        };
        // Compression fails only for want of memory.
        let record = self
            .records
            .record_as(message, codec)
            .map_err(|_| Cause::DiskUnavailable)?;
        let (rows, now) = (message.rows.into(), Instant::now());
        if self.disk.write(record, rows, now) {
            return Ok(());
        }
        self.disk.keep(record, rows, now)
    }

    /// Nothing will follow. Waits until every lane has resolved all, at most until `deadline`; what then remains stays on
    /// disk.
    pub(crate) fn close(self, deadline: Instant) {
        let Self {
            mut disk, lanes, ..
        } = self;
        disk.shared.lock().seal();
        if let Err(error) = disk.save_memory() {
            disk.complain(&error, "rows that no sink takes now are lost");
        }
        let shared = disk.shared;
        let mut state = shared.lock();
        state.closing = Some(deadline);
        shared.records.notify_all();
        while !(0..lanes).all(|lane| state.idle(lane)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = shared.progress.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.remove_passed();
        drop(state);
        keeper::tidy(&shared, None);
    }
}

/// Appends to files, as long as the disk takes it.
struct Disk {
    shared: Arc<Shared>,
    /// The file of the open segment, with its number and length.
    file: Option<(u64, File, u64)>,
    outage: Option<Outage>,
}

struct Outage {
    retry_at: Instant,
    wait: Duration,
}

impl Disk {
    /// Appends the record to the open segment's file. False when the disk does not take it, or did not a short time ago.
    fn write(&mut self, record: &[u8], rows: u64, now: Instant) -> bool {
        if self
            .outage
            .as_ref()
            .is_some_and(|outage| now < outage.retry_at)
        {
            return false;
        }
        match self.try_write(record, rows, now) {
            Ok(()) => {
                if self.outage.take().is_some() {
                    let queue = self.shared.directory.display();
                    self.shared
                        .reporter
                        .complain(format!("{queue}: the queue can be written again"));
                }
                true
            }
            Err(error) => {
                let wait = self
                    .outage
                    .as_ref()
                    .map_or(RETRY[0], |outage| RETRY[1].min(outage.wait * 2));
                self.outage = Some(Outage {
                    retry_at: now + wait,
                    wait,
                });
                self.file = None;
                self.shared.lock().seal();
                let memory = MEMORY_LIMIT >> 20;
                self.complain(
                    &error,
                    &format!("up to {memory} MiB of rows wait in memory"),
                );
                false
            }
        }
    }

    fn try_write(&mut self, record: &[u8], rows: u64, now: Instant) -> io::Result<()> {
        let length = record.len() as u64;
        self.rotate(length);
        self.save_memory()?;
        let (id, file, end) = match &mut self.file {
            Some(open) => open,
            None => {
                let id = self.shared.lock().new_id();
                let file = create(&self.shared.path(id))?;
                self.file.insert((id, file, 0))
            }
        };
        if let Err(error) = file.write_all(record) {
            // Any leftover of a torn record is cut when the queue is opened again.
            let _ = if *end == 0 {
                fs::remove_file(self.shared.path(*id))
            } else {
                file.set_len(*end)
            };
            return Err(error);
        }
        *end += length;
        let mut state = self.shared.lock();
        if state.open().is_none() {
            state.segments.push_back(Segment::new(*id, None, now));
        }
        state.appended(length, rows, now);
        drop(state);
        self.shared.records.notify_all();
        Ok(())
    }

    /// Ends the open segment when it is full, or is not on disk, and makes room for `length` bytes more.
    fn rotate(&mut self, length: u64) {
        let limit = self.shared.limits().bytes;
        let full = SEGMENT.min(limit / 8);
        let mut state = self.shared.lock();
        let fits =
            |segment: &mut Segment| segment.memory.is_none() && segment.length + length <= full;
        if !state.open().is_some_and(fits) {
            state.seal();
        }
        state.make_room(length, limit);
        if state.open().is_none() {
            self.file = None;
        }
        let chores = !state.doomed.is_empty();
        drop(state);
        if chores {
            self.shared.chores.notify_one();
        }
    }

    /// Writes to disk what waits in memory; its place in the queue stays the same.
    fn save_memory(&mut self) -> io::Result<()> {
        loop {
            let state = self.shared.lock();
            let waiting = state
                .segments
                .iter()
                .find_map(|segment| Some((segment.id, segment.memory.clone()?)));
            drop(state);
            let Some((id, bytes)) = waiting else {
                return Ok(());
            };
            let path = self.shared.path(id);
            if let Err(error) = create(&path).and_then(|mut file| file.write_all(&bytes)) {
                let _ = fs::remove_file(&path);
                return Err(error);
            }
            let mut state = self.shared.lock();
            match state.segments.iter_mut().find(|segment| segment.id == id) {
                Some(segment) => segment.memory = None,
                None => state.doomed.push(id),
            }
        }
    }

    /// Keeps the record in memory, if there is room.
    fn keep(&mut self, record: &[u8], rows: u64, now: Instant) -> Result<(), Cause> {
        let length = record.len() as u64;
        let mut state = self.shared.lock();
        if state.bytes().1 + length > MEMORY_LIMIT {
            return Err(Cause::DiskUnavailable);
        }
        if state
            .open()
            .is_some_and(|segment| segment.length + length > MEMORY_SEGMENT)
        {
            state.seal();
        }
        if state.open().is_none() {
            let id = state.new_id();
            state
                .segments
                .push_back(Segment::new(id, Some(Arc::default()), now));
        }
        if let Some(memory) = state.open().and_then(|segment| segment.memory.as_mut()) {
            Arc::make_mut(memory).extend_from_slice(record);
        }
        state.appended(length, rows, now);
        drop(state);
        self.shared.records.notify_all();
        Ok(())
    }

    fn complain(&self, error: &io::Error, consequence: &str) {
        let queue = self.shared.directory.display();
        self.shared.reporter.complain(format!(
            "{queue}: cannot write to the queue: {error}: {consequence}"
        ));
    }
}

/// A fresh file; the directory is made again if somebody removed it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            options.open(path)
        }
        result => result,
    }
}

/// None when the disk takes nothing now: that must not keep the collector from running.
fn survive<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_outage(&error) || error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
