//! Several sinks at once: what befalls one is nothing to the others, and everything is in the books.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::mounted::Mounted;
use prost::Message as _;

use crate::accounting::{Accounting, Book, Cause};
use crate::read::sequence::Sequence;
use crate::report::Reporter;
use crate::sample::batch::Message;
use crate::sample::proto::{Envelope, TcpSample};
use crate::sinks::fanout::FanOut;
use crate::sinks::print::null::NullSink;
use crate::sinks::{Sink, SinkError};
use crate::spool::reader::{Item, SpoolReader};
use crate::spool::writer::{Rotation, SpoolWriter};
use crate::stats::Stats;

const HOURLY: Rotation = Rotation {
    bytes: 64 << 20,
    interval: Duration::from_secs(3600),
};

/// Bytes that do not compress, as rows.
fn message(seed: u64) -> Vec<u8> {
    let mut state = seed + 1;
    let row = (0..10).map(|_| TcpSample {
        host: (0..2000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                char::from(33 + (state >> 33) as u8 % 90)
            })
            .collect(),
        ..TcpSample::default()
    });
    Envelope { row: row.collect() }.encode_length_delimited_to_vec()
}

/// A sink whose reader has gone.
struct Broken;

impl Sink for Broken {
    fn write(&mut self, _: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        Err(SinkError::Output(std::io::ErrorKind::BrokenPipe.into()))
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }
}

struct Setting {
    accounting: Arc<Accounting>,
    reported: Arc<Mutex<Vec<String>>>,
    fan_out: FanOut,
    stats: Stats,
}

impl Setting {
    fn new() -> Self {
        let (accounting, reported) = (Arc::new(Accounting::default()), Arc::new(Mutex::default()));
        let reporter = Reporter::new({
            let reported = Arc::<Mutex<Vec<String>>>::clone(&reported);
            move |_, line: &str| reported.lock().unwrap().push(line.to_owned())
        });
        let fan_out = FanOut::new(accounting.clone(), Arc::new(reporter));
        Self {
            accounting,
            reported,
            fan_out,
            stats: Stats::default(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let message = Message { rows: 10, bytes };
        self.fan_out.write(message, &mut self.stats)
    }

    fn books(&self) -> Vec<Book> {
        let books = self.accounting.snapshot();
        assert!(books.balanced(), "{books:?}");
        books.sinks
    }
}

#[test]
fn a_spool_on_a_full_disk_loses_what_it_counts_and_recovers() {
    let disk = Mounted::tmpfs(512);
    let mut setting = Setting::new();
    let spool = SpoolWriter::new(disk.path(), "h", HOURLY).unwrap();
    setting.fan_out.add("file", Box::new(spool));
    setting.fan_out.add("null", Box::new(NullSink));
    for seed in 0..60 {
        setting.write(&message(seed)).unwrap();
    }
    let [file, null] = &setting.books()[..] else {
        panic!("there are two sinks")
    };
    let lost = file.rows_dropped[Cause::DiskUnavailable as usize];
    assert!(lost > 0 && file.rows_delivered > 0, "{file:?}");
    assert_eq!(null.rows_delivered, 600);
    let reported = setting.reported.lock().unwrap().clone();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("No space left on device"),
        "{reported:?}"
    );

    disk.remount("size=16384k");
    for seed in 100..110 {
        setting.write(&message(seed)).unwrap();
    }
    setting.fan_out.finish(&mut setting.stats).unwrap();
    let file = &setting.books()[0];
    assert_eq!(file.dropped(), lost);
    let mut rows = 0;
    for entry in fs::read_dir(disk.path()).unwrap() {
        let mut reader = SpoolReader::open(&entry.unwrap().path()).unwrap();
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                Item::Record { envelope, .. } => rows += envelope.row.len() as u64,
                Item::Corrupt { .. } => panic!("a part of a record stayed: {item:?}"),
            }
        }
    }
    assert_eq!(rows, file.rows_delivered);
}

#[test]
fn an_output_that_has_gone_ends_the_run_and_the_others_have_the_rows() {
    let mut setting = Setting::new();
    setting.fan_out.add("stdout", Box::new(Broken));
    setting.fan_out.add("null", Box::new(NullSink));
    let error = setting.write(&message(0)).unwrap_err();
    assert!(error.is_closed_pipe());
    let books = setting.books();
    assert_eq!((books[0].rows_delivered, books[1].rows_delivered), (0, 10));
}

#[test]
fn polls_are_numbered_on_a_disk_that_cannot_be_written() {
    let disk = Mounted::tmpfs(512);
    let mut kept = Sequence::open(disk.path(), "h", "boot").unwrap();
    let last = kept.advance();
    assert!(kept.kept());
    drop(kept);
    disk.remount("ro");
    // Numbers used now must not be used again by a run that goes on from the state on disk.
    let mut unkept = Sequence::open(disk.path(), "h", "boot").unwrap();
    let numbers = [unkept.advance(), unkept.advance()];
    assert!(!unkept.kept());
    assert_eq!(numbers[1], numbers[0] + 1);
    assert!(numbers[0] > last);
    drop(unkept);
    disk.remount("rw");
    let mut kept = Sequence::open(disk.path(), "h", "boot").unwrap();
    assert_eq!((kept.advance(), kept.kept()), (last + 1, true));
}
