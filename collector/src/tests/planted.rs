//! Entries that somebody put into the directories of the spool and of the queue: nothing waits for
//! one, follows it, overwrites it or stops for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::accounting::Accounting;
use crate::read::sequence::{Sequence, SequenceError};
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::sample::proto::{Envelope, TcpSample};
use crate::spool::queue::{Lane, Limits, Queue, Record, Taken};
use crate::spool::reader::{Item, SpoolReader};
use crate::spool::record::RecordWriter;
use crate::spool::recover::recover;
use crate::stats::Stats;
use prost::Message as _;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A bound that only keeps a failure from hanging: work that waits for no pipe takes it only on a machine that stands
/// still.
const LONG: Duration = Duration::from_secs(60);

/// Does the work in a thread of its own, which a failure leaves behind.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waits) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    waits
        .recv_timeout(LONG)
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn message(cookie: u64) -> Vec<u8> {
    let row = TcpSample {
        cookie,
        host: "h".into(),
        ..TcpSample::default()
    };
    Envelope { row: vec![row] }.encode_length_delimited_to_vec()
}

fn record(cookie: u64) -> Vec<u8> {
    let bytes = message(cookie);
    let message = Message {
        rows: 1,
        bytes: &bytes,
    };
    RecordWriter::new()
        .unwrap()
        .record(message)
        .unwrap()
        .to_vec()
}

/// Each header claims as much of what follows as there is.
fn false_headers(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for left in (0..count).rev() {
        let claimed = u32::try_from(left * 20).unwrap();
        bytes.extend(b"STB1\0\0\0\0");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(claimed.to_le_bytes());
        bytes.extend([7; 4]);
    }
    bytes
}

#[test]
fn headers_that_claim_each_other_are_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h-1-2-3.spool");
    let (first, headers) = (record(1), false_headers(100_000));
    fs::write(&path, [&first[..], &headers].concat()).unwrap();
    let file = path.clone();
    let items = within("reading", move || {
        let mut reader = SpoolReader::open(&file).unwrap();
        std::iter::from_fn(|| reader.next_item().unwrap()).collect::<Vec<_>>()
    });
    let [
        Item::Record { end, .. },
        Item::Corrupt { offset, bytes, .. },
    ] = &items[..]
    else {
        panic!("{items:?}");
    };
    assert_eq!((*end, *offset), (first.len() as u64, first.len() as u64));
    assert_eq!(*bytes, headers.len() as u64);

    // The same as a segment of the queue.
    let queue = directory.path().join("queue");
    fs::create_dir(&queue).unwrap();
    fs::rename(&path, segment(&queue, 1)).unwrap();
    within("opening the queue", move || {
        let mut life = open(&queue);
        assert_eq!(life.cookie(), Some(1));
        assert_eq!(life.cookie(), None);
    });
}

#[test]
fn a_few_false_headers_cost_no_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h-1-2-3.spool");
    fs::write(&path, [&false_headers(500)[..], &record(2)].concat()).unwrap();
    let mut reader = SpoolReader::open(&path).unwrap();
    let items: Vec<_> = std::iter::from_fn(|| reader.next_item().unwrap()).collect();
    assert!(
        matches!(&items[..], [Item::Corrupt { .. }, Item::Record { envelope, .. }] if envelope.row[0].cookie == 2),
        "{items:?}"
    );
}

#[test]
fn a_spool_is_completed_whatever_else_is_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, outside) = (
        directory.path().join("spool"),
        directory.path().join("outside"),
    );
    fs::create_dir(&spool).unwrap();
    let torn = [&record(9)[..], b"STB1 torn"].concat();
    fs::write(&outside, &torn).unwrap();
    fifo(&spool.join("h-1-1-1.spool.open"));
    fs::create_dir(spool.join("h-1-1-2.spool.open")).unwrap();
    symlink("nowhere", spool.join("h-1-1-3.spool.open")).unwrap();
    symlink(&outside, spool.join("h-1-1-4.spool.open")).unwrap();
    fs::write(spool.join("h-1-1-5.spool.open"), &torn).unwrap();
    fs::write(spool.join("h-1-1-6.spool.open"), record(6)).unwrap();
    fs::write(spool.join("h-1-1-6.spool"), "another's").unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (sink, place) = (reported.clone(), spool.clone());
    within("completing", move || {
        let reporter = Reporter::new(move |_, line| sink.lock().unwrap().push(line.to_owned()));
        recover(&place, "h", &reporter, &mut Stats::default()).unwrap();
    });
    assert_eq!(fs::read(&outside).unwrap(), torn);
    assert_eq!(
        fs::read(spool.join("h-1-1-5.spool")).unwrap(),
        record(9),
        "the good one"
    );
    assert_eq!(fs::read(spool.join("h-1-1-6.spool")).unwrap(), b"another's");
    for number in [1, 2, 3, 4, 6] {
        let left = spool.join(format!("h-1-1-{number}.spool.open"));
        assert!(left.symlink_metadata().is_ok(), "{number} is left");
    }
    // Complaints that differ only in numbers are reported once.
    let reported = reported.lock().unwrap().join("\n");
    assert!(
        reported.contains("it is not a file: it is left as it is"),
        "{reported}"
    );
}

struct Life {
    queue: Queue,
    lane: Lane,
    accounting: Arc<Accounting>,
}

fn open(directory: &Path) -> Life {
    let accounting = Arc::new(Accounting::default());
    let sinks = [(accounting.add("sink"), "sink")];
    let limits = Limits {
        bytes: 1 << 30,
        age: Duration::from_secs(3600),
    };
    let reporter = Arc::new(Reporter::new(|_, _| {}));
    let mut stats = Stats::default();
    let (queue, lanes) = Queue::open(
        directory,
        &sinks,
        limits,
        &accounting,
        &reporter,
        &mut stats,
    )
    .unwrap();
    let lane = lanes.into_iter().next().unwrap();
    Life {
        queue,
        lane,
        accounting,
    }
}

impl Life {
    fn take(&mut self) -> Option<Record> {
        match self.lane.take(Duration::ZERO) {
            Taken::Record(record) => Some(record),
            Taken::Nothing | Taken::Closed => None,
        }
    }

    fn cookie(&mut self) -> Option<u64> {
        let record = self.take()?;
        let envelope = Envelope::decode_length_delimited(&record.bytes[..]).unwrap();
        Some(envelope.row[0].cookie)
    }

    fn append(&mut self, cookie: u64) {
        let bytes = message(cookie);
        let message = Message {
            rows: 1,
            bytes: &bytes,
        };
        self.accounting.read(1);
        self.queue.append(message).unwrap();
    }
}

fn segment(directory: &Path, id: u64) -> std::path::PathBuf {
    directory.join(format!("{id:020}.spool"))
}

#[test]
fn a_queue_delivers_whatever_else_is_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let queue = directory.path().join("queue");
    fs::create_dir(&queue).unwrap();
    let outside = directory.path().join("outside");
    fs::write(&outside, [&record(9)[..], b"torn"].concat()).unwrap();
    fifo(&segment(&queue, 1));
    fs::create_dir(segment(&queue, 2)).unwrap();
    symlink("nowhere", segment(&queue, 3)).unwrap();
    symlink(&outside, segment(&queue, 4)).unwrap();
    fs::write(segment(&queue, 5), record(5)).unwrap();
    // Behind it no number is left.
    fs::write(segment(&queue, u64::MAX), record(8)).unwrap();
    let place = queue.clone();
    within("delivering", move || {
        let mut life = open(&place);
        life.append(6);
        assert_eq!(
            [life.cookie(), life.cookie(), life.cookie()],
            [Some(5), Some(6), None]
        );
        life.queue.close(Instant::now());
    });
    assert!(fs::read(&outside).unwrap().ends_with(b"torn"));
}

#[test]
fn a_segment_that_becomes_something_else_is_lost_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(segment(directory.path(), 1), record(1)).unwrap();
    fs::write(segment(directory.path(), 2), record(2)).unwrap();
    let place = directory.path().to_owned();
    within("delivering", move || {
        let mut life = open(&place);
        fs::remove_file(segment(&place, 1)).unwrap();
        fifo(&segment(&place, 1));
        assert_eq!([life.cookie(), life.cookie()], [Some(2), None]);
    });
}

#[test]
fn what_is_set_aside_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let queue = directory.path().join("queue");
    let rejected = queue.join("rejected");
    let (outside, name) = (
        directory.path().join("outside"),
        "sink-00000000000000000001-0",
    );
    fs::create_dir_all(&rejected).unwrap();
    fs::write(&outside, "mine").unwrap();
    symlink(&outside, rejected.join(format!("{name}.spool"))).unwrap();
    fs::write(rejected.join(format!("{name}-1.spool")), "older").unwrap();
    let mut life = open(&queue);
    life.append(7);
    let record = life.take().unwrap();
    life.lane.set_aside(&record);
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
    assert_eq!(
        fs::read(rejected.join(format!("{name}-1.spool"))).unwrap(),
        b"older"
    );
    let mut kept = SpoolReader::open(&rejected.join(format!("{name}-2.spool"))).unwrap();
    let Some(Item::Record { envelope, .. }) = kept.next_item().unwrap() else {
        panic!("no record is kept");
    };
    assert_eq!(envelope.row[0].cookie, 7);
}

#[test]
fn the_number_of_the_poll_is_written_through_no_link() {
    let directory = tempfile::tempdir().unwrap();
    let outside = directory.path().join("outside");
    fs::write(&outside, "mine").unwrap();
    symlink(&outside, directory.path().join("h.state")).unwrap();
    fifo(&directory.path().join("i.state"));
    let place = directory.path().to_owned();
    within("opening", move || {
        for host in ["h", "i"] {
            let opened = Sequence::open(&place, host, "boot");
            assert!(matches!(opened, Err(SequenceError::Io { .. })), "{host}");
        }
    });
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
}
