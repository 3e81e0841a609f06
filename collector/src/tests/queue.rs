//! The queue: in order, at least once, and whatever is lost is counted.
//!
//! Longer than 400 lines: one model of the queue serves all of its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::mounted::Mounted;
use proptest::prelude::*;

use crate::accounting::{Accounting, Books, Cause, SinkId};
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::spool::queue::{
    Held, Lane, Limits, MEMORY_LIMIT, Outcome, Position, Queue, QueueError, Record, Taken,
};
use crate::spool::record::{self, HEADER};
use crate::spool::scan;
use crate::stats::Stats;

const SINKS: [&str; 2] = ["first", "second"];
const SMALL: Limits = Limits {
    bytes: 8 << 10,
    age: Duration::from_secs(3600),
};
const LARGE: Limits = Limits {
    bytes: 1 << 30,
    ..SMALL
};

/// One life of a collector.
struct Life {
    queue: Queue,
    lanes: Vec<Lane>,
    accounting: Arc<Accounting>,
    sinks: [SinkId; SINKS.len()],
    stats: Stats,
}

fn try_open(directory: &Path, limits: Limits) -> Result<Life, QueueError> {
    let accounting = Arc::new(Accounting::default());
    let sinks = SINKS.map(|name| (accounting.add(name), name));
    let reporter = Arc::new(Reporter::new(|_, _| {}));
    let mut stats = Stats::default();
    let (queue, lanes) = Queue::open(
        directory,
        &sinks,
        limits,
        &accounting,
        &reporter,
        &mut stats,
    )?;
    Ok(Life {
        queue,
        lanes,
        accounting,
        sinks: sinks.map(|(id, _)| id),
        stats,
    })
}

fn open(directory: &Path, limits: Limits) -> Life {
    // The bound on the wait below is for a machine that stands still.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match try_open(directory, limits) {
            // A process that another test is just starting holds every lock of this one until it executes.
            Err(QueueError::Locked(_)) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1))
            }
            result => return result.unwrap(),
        }
    }
}

/// A payload that contains its number. The queue does not look inside.
fn payload(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    // Bytes that a scan for records could take for one.
    bytes.extend(b"STB1".iter().cycle().take(length));
    bytes
}

/// The same, of bytes that do not compress.
fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    let mut state = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bytes.extend((0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    }));
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

impl Life {
    fn append(&mut self, number: u64, rows: u32, length: usize) -> Result<(), Cause> {
        self.append_bytes(rows, &payload(number, length))
    }

    fn append_bytes(&mut self, rows: u32, bytes: &[u8]) -> Result<(), Cause> {
        let message = Message { rows, bytes };
        self.accounting.read(rows.into());
        let result = self.queue.append(message);
        if let Err(cause) = result {
            // As the fan-out does.
            for sink in self.sinks {
                self.accounting.dropped(sink, rows.into(), cause);
            }
        }
        result
    }

    fn take(&mut self, lane: usize) -> Option<Record> {
        match self.lanes[lane].take(Duration::ZERO) {
            Taken::Record(record) => Some(record),
            Taken::Nothing | Taken::Closed => None,
        }
    }

    fn books(&self) -> Books {
        let books = self.accounting.snapshot();
        assert!(books.balanced(), "{books:?}");
        books
    }

    /// Takes and delivers all that there is.
    fn drain(&mut self, lane: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        while let Some(record) = self.take(lane) {
            taken.push(number(&record.bytes));
            self.lanes[lane].resolve(record.at, Outcome::Delivered);
        }
        taken
    }
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "spool"))
        .collect();
    paths.sort();
    paths
}

/// The numbers of the records in a file.
fn numbers(path: &Path) -> BTreeSet<u64> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let (mut at, mut found, mut bytes, mut message) = (0, BTreeSet::new(), Vec::new(), Vec::new());
    while let Some(header) = scan::record_at(&file, at, length, &mut bytes).unwrap() {
        record::decompress(header.codec, &bytes, &mut message).unwrap();
        found.insert(number(&message));
        at += header.record();
    }
    found
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        rows: u32,
        length: usize,
    },
    Take {
        lane: usize,
    },
    Resolve {
        lane: usize,
        which: prop::sample::Index,
        delivered: bool,
    },
    Rewind {
        lane: usize,
    },
    Crash {
        cut: Option<prop::sample::Index>,
    },
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lane = || 0..SINKS.len();
    let step = prop_oneof![
        8 => (1..5_u32, 0..900_usize).prop_map(|(rows, length)| Step::Append { rows, length }),
        6 => lane().prop_map(|lane| Step::Take { lane }),
        5 => (lane(), any::<prop::sample::Index>(), prop::bool::weighted(0.9))
            .prop_map(|(lane, which, delivered)| Step::Resolve { lane, which, delivered }),
        1 => lane().prop_map(|lane| Step::Rewind { lane }),
        1 => any::<Option<prop::sample::Index>>().prop_map(|cut| Step::Crash { cut }),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..120)
}

/// Events that must have happened to one sink, known from watching it.
#[derive(Default)]
struct Witness {
    /// In flight, in the order taken.
    in_flight: Vec<(Position, u64)>,
    ever_taken: BTreeSet<u64>,
    last: Option<u64>,
    dropped: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn nothing_comes_out_of_order_and_nothing_is_lost_uncounted(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut life = open(dir.path(), SMALL);
        let mut witnesses = [Witness::default(), Witness::default()];
        let mut appended = BTreeMap::new();
        let mut torn = BTreeSet::<u64>::new();
        for step in steps {
            match step {
                Step::Append { rows, length } => {
                    let next = appended.len() as u64;
                    life.append(next, rows, length).unwrap();
                    appended.insert(next, u64::from(rows));
                    prop_assert!(life.queue.gauge().held().disk_bytes <= SMALL.bytes);
                }
                Step::Take { lane } => {
                    if let Some(record) = life.take(lane) {
                        let (witness, number) = (&mut witnesses[lane], number(&record.bytes));
                        prop_assert!(witness.last.is_none_or(|last| last < number), "{:?} then {number}", witness.last);
                        prop_assert_eq!(u64::from(record.rows), appended[&number]);
                        witness.last = Some(number);
                        witness.ever_taken.insert(number);
                        witness.in_flight.push((record.at, number));
                    }
                }
                Step::Resolve { lane, which, delivered } => {
                    let in_flight = &mut witnesses[lane].in_flight;
                    if !in_flight.is_empty() {
                        let (at, _) = in_flight.remove(which.index(in_flight.len()));
                        let outcome = if delivered { Outcome::Delivered } else { Outcome::Dropped(Cause::TooLarge) };
                        life.lanes[lane].resolve(at, outcome);
                    }
                }
                Step::Rewind { lane } => {
                    life.lanes[lane].rewind();
                    let witness = &mut witnesses[lane];
                    witness.in_flight.clear();
                    witness.last = None;
                }
                Step::Crash { .. } | Step::Close => {
                    let books = life.books();
                    for (witness, book) in witnesses.iter_mut().zip(&books.sinks) {
                        witness.dropped += book.dropped();
                        witness.in_flight.clear();
                        witness.last = None;
                    }
                    if let Step::Crash { cut } = step {
                        drop(life);
                        if let (Some(cut), Some(path)) = (cut, segments(dir.path()).last()) {
                            let before = numbers(path);
                            let length = fs::metadata(path).unwrap().len();
                            OpenOptions::new().write(true).open(path).unwrap()
                                .set_len(cut.index(length as usize + 1) as u64).unwrap();
                            torn.extend(before.difference(&numbers(path)));
                        }
                    } else {
                        life.queue.close(Instant::now());
                    }
                    life = open(dir.path(), SMALL);
                }
            }
            life.books();
        }
        for (lane, witness) in witnesses.iter_mut().enumerate() {
            life.lanes[lane].rewind();
            let rest = life.drain(lane);
            prop_assert!(rest.is_sorted());
            witness.ever_taken.extend(rest);
        }
        let books = life.books();
        for (witness, book) in witnesses.iter().zip(&books.sinks) {
            prop_assert_eq!(book.rows_spooled, 0);
            let missing: u64 = appended
                .iter()
                .filter(|(number, _)| !witness.ever_taken.contains(number) && !torn.contains(number))
                .map(|(_, rows)| rows)
                .sum();
            prop_assert!(missing <= witness.dropped + book.dropped(), "{missing} rows are missing: {book:?}");
        }
    }
}

#[test]
fn a_slow_sink_loses_nothing_and_keeps_no_other_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), LARGE);
    for number in 0..50 {
        life.append(number, 2, 100).unwrap();
        assert_eq!(life.drain(0), [number]);
    }
    assert_eq!(life.drain(1), (0..50).collect::<Vec<_>>());
    let books = life.books();
    assert_eq!(books.rows_read, 100);
    assert!(books.sinks.iter().all(|book| book.rows_delivered == 100));
    life.queue.close(Instant::now());
    assert_eq!(segments(dir.path()), <[PathBuf; 0]>::default());
}

#[test]
fn a_killed_process_leaves_what_was_not_acknowledged_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), LARGE);
    for number in 0..10 {
        life.append(number, 3, 1000).unwrap();
    }
    let taken: Vec<_> = (0..4).map(|_| life.take(0).unwrap()).collect();
    // Acknowledged out of order: only what has no gap before it is sure.
    for record in [&taken[0], &taken[2]] {
        life.lanes[0].resolve(record.at, Outcome::Delivered);
    }
    drop(life);
    let mut life = open(dir.path(), LARGE);
    let books = life.books();
    assert_eq!(
        (books.sinks[0].rows_recovered, books.sinks[1].rows_recovered),
        (27, 30)
    );
    assert_eq!(life.drain(0), (1..10).collect::<Vec<_>>());
    assert_eq!(life.drain(1), (0..10).collect::<Vec<_>>());
}

#[test]
fn the_oldest_goes_first_when_the_queue_is_full_and_what_is_in_flight_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), SMALL);
    life.append(0, 1, 900).unwrap();
    let held = life.take(0).unwrap();
    for number in 1..100 {
        life.append(number, 1, 900).unwrap();
    }
    let books = life.books();
    let dropped = books.sinks[1].rows_dropped[Cause::QueueBytes as usize];
    assert!(dropped > 80, "{books:?}");
    // The one in flight is not dropped: its fate is not known.
    assert_eq!(
        books.sinks[0].rows_dropped[Cause::QueueBytes as usize],
        dropped - 1
    );
    life.lanes[0].resolve(held.at, Outcome::Delivered);
    assert_eq!(life.drain(0), (dropped..100).collect::<Vec<_>>());
    assert_eq!(life.books().sinks[0].rows_delivered, 100 - dropped + 1);
    assert_eq!(life.drain(1), (dropped..100).collect::<Vec<_>>());
}

#[test]
fn a_limit_that_is_lowered_holds_from_the_next_record_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut life = open(directory.path(), LARGE);
    for number in 0..64 {
        life.append_bytes(1, &noise(number, 50_000)).unwrap();
    }
    let gauge = life.queue.gauge();
    assert!(gauge.held().disk_bytes > 3_000_000);
    let limits = Limits {
        bytes: 1 << 20,
        ..LARGE
    };
    gauge.set_limits(limits);
    life.append_bytes(1, &noise(64, 50_000)).unwrap();
    assert!(gauge.held().disk_bytes <= limits.bytes);
    let dropped = life.books().sinks[0].rows_dropped[Cause::QueueBytes as usize];
    let left = life.drain(0);
    assert!(
        dropped > 40 && left.last() == Some(&64),
        "{dropped} {left:?}"
    );
    assert_eq!(dropped + left.len() as u64, 65);
}

#[test]
fn what_is_too_old_is_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let age = Duration::from_millis(300);
    let mut life = open(dir.path(), Limits { age, ..LARGE });
    life.append(0, 5, 10).unwrap();
    // It is due after 0.3 s: the bound is for a machine that stands still.
    let deadline = Instant::now() + Duration::from_secs(20);
    while life.books().sinks[0].rows_spooled > 0 {
        assert!(
            Instant::now() < deadline,
            "nothing was dropped: {:?}",
            life.books()
        );
        thread::sleep(Duration::from_millis(20));
    }
    let books = life.books();
    assert_eq!(books.sinks[1].rows_dropped[Cause::QueueAge as usize], 5);
    // A younger record stays. A busy machine may let one grow as old before it is read: then another one is made.
    for number in 1.. {
        let begun = Instant::now();
        life.append(number, 1, 10).unwrap();
        let left = life.drain(0);
        if left == [number] {
            break;
        }
        assert!(left.is_empty() && begun.elapsed() > age, "{left:?}");
    }
}

#[test]
fn records_are_compressed_only_while_the_sinks_lag() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), LARGE);
    for number in 0..12 {
        life.append(number, 1, 1 << 20).unwrap();
    }
    let file = File::open(&segments(dir.path())[0]).unwrap();
    let length = file.metadata().unwrap().len();
    let first = scan::header_at(&file, 0, length).unwrap().unwrap();
    assert_eq!(first.codec, record::Codec::None);
    assert!(length < 8 << 20, "{length} bytes for 12 MiB");
    assert_eq!(life.drain(0), (0..12).collect::<Vec<_>>());
}

#[test]
fn damage_costs_the_damaged_record_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), LARGE);
    for number in 0..5 {
        life.append(number, 2, 500).unwrap();
    }
    drop(life);
    let path = &segments(dir.path())[0];
    let mut bytes = fs::read(path).unwrap();
    let record = HEADER + 8 + 500;
    bytes[2 * record + HEADER + 100] ^= 1;
    fs::write(path, bytes).unwrap();
    let mut life = open(dir.path(), LARGE);
    assert_eq!(life.stats.spool_stretches_corrupt, 1);
    assert_eq!(life.drain(0), [0, 1, 3, 4]);
    // While it runs, too: then the rows were counted already.
    for number in 5..8 {
        life.append(number, 2, 500).unwrap();
    }
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[record + HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(life.drain(0), [5, 7]);
    life.queue.close(Instant::now());
    assert_eq!(life.lanes[0].take(Duration::ZERO).is_record(), None);
    let books = life.accounting.snapshot();
    assert!(books.balanced());
    assert_eq!(books.sinks[0].rows_dropped[Cause::Unreadable as usize], 2);
}

trait IsRecord {
    fn is_record(&self) -> Option<u64>;
}

impl IsRecord for Taken {
    fn is_record(&self) -> Option<u64> {
        match self {
            Taken::Record(record) => Some(number(&record.bytes)),
            Taken::Nothing | Taken::Closed => None,
        }
    }
}

#[test]
fn a_new_sink_gets_what_is_there_and_an_old_cursor_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut life = open(dir.path(), LARGE);
    life.append(0, 1, 10).unwrap();
    life.append(1, 1, 10).unwrap();
    assert_eq!(life.drain(0), [0, 1]);
    drop(life);
    fs::remove_file(dir.path().join("second.cursor")).unwrap();
    let mut life = open(dir.path(), LARGE);
    assert_eq!(life.drain(1), [0, 1]);
    life.queue.close(Instant::now());
    drop(life.lanes);
    // All segments are gone; the numbers go on, so that the cursors do not stand in front of what comes.
    let mut life = open(dir.path(), LARGE);
    life.append(2, 1, 10).unwrap();
    assert_eq!((life.drain(0), life.drain(1)), (vec![2], vec![2]));
}

#[test]
fn two_processes_do_not_share_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path(), LARGE);
    assert!(matches!(
        try_open(dir.path(), LARGE),
        Err(QueueError::Locked(_))
    ));
}

#[test]
fn a_path_that_is_not_a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    let error = try_open(&path, LARGE).err().unwrap().to_string();
    assert!(error.contains("cannot use it as the queue"), "{error}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn the_books_balance_at_every_moment_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let Life {
        mut queue,
        lanes,
        accounting,
        ..
    } = open(
        dir.path(),
        Limits {
            bytes: 1 << 20,
            ..SMALL
        },
    );
    let done = Arc::new(AtomicBool::new(false));
    let watcher = thread::spawn({
        let (accounting, done) = (accounting.clone(), done.clone());
        move || {
            while !done.load(Ordering::Relaxed) {
                let books = accounting.snapshot();
                assert!(books.balanced(), "{books:?}");
            }
        }
    });
    let sinks: Vec<_> = lanes
        .into_iter()
        .enumerate()
        .map(|(index, mut lane)| {
            thread::spawn(move || {
                let (mut last, mut delivered, mut turn) = (None, 0, 0_u32);
                loop {
                    match lane.take(Duration::from_millis(50)) {
                        Taken::Record(record) => {
                            let number = number(&record.bytes);
                            assert!(last.is_none_or(|last| last < number));
                            last = Some(number);
                            delivered += u64::from(record.rows);
                            lane.resolve(record.at, Outcome::Delivered);
                            turn += 1;
                            if index == 1 && turn.is_multiple_of(50) {
                                thread::sleep(Duration::from_millis(1));
                            }
                        }
                        Taken::Nothing => {}
                        Taken::Closed => return delivered,
                    }
                }
            })
        })
        .collect();
    for number in 0..20_000_u64 {
        let bytes = payload(number, 1000);
        accounting.read(2);
        queue
            .append(Message {
                rows: 2,
                bytes: &bytes,
            })
            .unwrap();
    }
    // The sinks take what is left: the bound is for a machine that stands still.
    queue.close(Instant::now() + Duration::from_secs(60));
    let delivered: Vec<_> = sinks.into_iter().map(|sink| sink.join().unwrap()).collect();
    done.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    let books = accounting.snapshot();
    for (book, delivered) in books.sinks.iter().zip(delivered) {
        assert_eq!((book.rows_spooled, book.rows_delivered), (0, delivered));
        assert_eq!(book.rows_delivered + book.dropped(), 40_000);
    }
}

/// Appends until something is lost; how many were taken.
fn append_until_lost(life: &mut Life, length: usize) -> u64 {
    for number in 0..10_000 {
        if life.append_bytes(1, &noise(number, length)) == Err(Cause::DiskUnavailable) {
            return number;
        }
    }
    panic!("the queue takes more than it may");
}

#[test]
fn a_full_disk_is_survived_in_little_memory_and_nothing_is_lost_uncounted() {
    let disk = Mounted::tmpfs(1024);
    let queue = disk.path().join("queue");
    let mut life = open(&queue, LARGE);
    let length = 100_000;
    let taken = append_until_lost(&mut life, length);
    let Held {
        disk_bytes,
        memory_bytes,
        ..
    } = life.queue.gauge().held();
    assert!(disk_bytes > 512 << 10, "{disk_bytes}");
    assert!(
        memory_bytes <= MEMORY_LIMIT && memory_bytes > MEMORY_LIMIT - 2 * length as u64,
        "{memory_bytes}"
    );
    assert_eq!(
        life.books().sinks[0].rows_dropped[Cause::DiskUnavailable as usize],
        1
    );
    // The sinks go on, from disk and then from memory.
    assert_eq!(life.drain(0), (0..taken).collect::<Vec<_>>());
    assert_eq!(life.books().sinks[1].rows_spooled, taken);
    // When there is room again, what waits in memory goes to disk, behind what was there before it.
    disk.remount("size=16384k");
    // The disk is tried again within half a minute (`RETRY`): the bound is for a machine that stands still.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut next = 20_000;
    while life.queue.gauge().held().memory_bytes > 0 {
        assert!(Instant::now() < deadline, "the disk is not tried again");
        thread::sleep(Duration::from_millis(50));
        let _ = life.append(next, 1, 10);
        next += 1;
    }
    drop(life);
    let mut life = open(&queue, LARGE);
    let rest = life.drain(1);
    assert!(rest.is_sorted());
    assert_eq!(rest[..taken as usize], (0..taken).collect::<Vec<_>>());
}

#[test]
fn a_read_only_disk_is_survived_from_the_start() {
    let disk = Mounted::tmpfs(1024);
    let mut life = open(disk.path(), LARGE);
    life.append(0, 1, 10).unwrap();
    drop(life);
    disk.remount("ro");
    let mut life = open(disk.path(), LARGE);
    life.append(1, 1, 10).unwrap();
    assert_eq!(life.drain(0), [0, 1]);
    assert_eq!(life.books().sinks[0].rows_delivered, 2);
    disk.remount("rw");
    // At the end what is in memory is saved, if that can be done now.
    life.queue.close(Instant::now());
    drop(life.lanes);
    let mut life = open(disk.path(), LARGE);
    assert_eq!(life.drain(1), [0, 1]);
}

#[test]
fn a_directory_that_vanishes_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let queue = dir.path().join("queue");
    let mut life = open(&queue, LARGE);
    life.append(0, 4, 10).unwrap();
    fs::remove_dir_all(&queue).unwrap();
    assert_eq!(life.drain(0), <[u64; 0]>::default());
    life.queue.close(Instant::now());
    assert_eq!(
        life.accounting.snapshot().sinks[0].rows_dropped[Cause::Unreadable as usize],
        4
    );
    let mut life = open(&queue, LARGE);
    life.append(1, 1, 10).unwrap();
    assert_eq!(life.drain(0), [1]);
}
