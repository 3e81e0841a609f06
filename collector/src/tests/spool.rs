//! The spool's files: what is written is read, what is damaged is reported and costs no other record.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use prost::Message as _;

use crate::report::Reporter;
use crate::sample::batch::{Batch, Message};
use crate::sample::proto::{Envelope, TcpSample};
use crate::spool::reader::{Item, SpoolReader};
use crate::spool::record::{Codec, HEADER, RecordWriter};
use crate::spool::recover::recover;
use crate::spool::writer::{Rotation, SpoolWriter};
use crate::stats::Stats;

/// Some rows: their cookies are `first` and the numbers after it.
fn message(first: u64, rows: u64) -> Vec<u8> {
    let row = (first..first + rows).map(|cookie| TcpSample {
        cookie,
        host: "h".into(),
        ..TcpSample::default()
    });
    Envelope { row: row.collect() }.encode_length_delimited_to_vec()
}

fn record(first: u64, rows: u64) -> Vec<u8> {
    let bytes = message(first, rows);
    let message = Message {
        rows: u32::try_from(rows).unwrap(),
        bytes: &bytes,
    };
    RecordWriter::new()
        .unwrap()
        .record(message)
        .unwrap()
        .to_vec()
}

/// A record's first cookie and its number of rows.
type Records = Vec<(u64, usize)>;
/// Where a corrupt stretch begins and how long it is.
type Stretches = Vec<(u64, u64)>;

fn items(path: &Path) -> (Records, Stretches) {
    let (mut records, mut corrupt) = (Vec::new(), Vec::new());
    let mut reader = SpoolReader::open(path).unwrap();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Record { envelope, .. } => {
                records.push((envelope.row[0].cookie, envelope.row.len()))
            }
            Item::Corrupt { offset, bytes, .. } => corrupt.push((offset, bytes)),
        }
    }
    (records, corrupt)
}

fn silent() -> Reporter {
    Reporter::new(|_, _| {})
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h-1-2-3.spool");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn a_record_has_the_layout_of_the_contract() {
    let bytes = record(1, 3);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(
        (&bytes[..4], &bytes[4..8]),
        (&b"STB1"[..], &[Codec::Zstd as u8, 0, 0, 0][..])
    );
    assert_eq!((word(8), word(12) as usize), (3, bytes.len() - HEADER));
    let checked = [&bytes[4..16], &bytes[HEADER..]].concat();
    assert_eq!(word(16), crc32fast::hash(&checked));
    assert_eq!(zstd::decode_all(&bytes[HEADER..]).unwrap(), message(1, 3));
}

#[test]
fn a_record_without_compression_is_read_too() {
    let payload = message(5, 2);
    let mut bytes = b"STB1\0\0\0\0\x02\0\0\0".to_vec();
    bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    let sum = crc32fast::hash(&[&bytes[4..16], &payload].concat());
    bytes.extend(sum.to_le_bytes());
    bytes.extend(payload);
    let (_directory, path) = file(&bytes);
    assert_eq!(items(&path), (vec![(5, 2)], vec![]));
}

#[test]
fn a_payload_that_does_not_match_its_header_is_corrupt() {
    let with = |codec: u8, rows: u32, payload: &[u8]| {
        let mut bytes = [b"STB1", &[codec, 0, 0, 0][..], &rows.to_le_bytes()].concat();
        bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        let sum = crc32fast::hash(&[&bytes[4..16], payload].concat());
        bytes.extend(sum.to_le_bytes());
        bytes.extend(payload);
        bytes
    };
    let message = message(1, 2);
    let bomb = zstd::encode_all(&vec![0; (64 << 20) + 1][..], 1).unwrap();
    for (bytes, what) in [
        (with(1, 2, &message), "the payload does not decompress"),
        (
            with(0, 3, &message),
            "the payload has 2 rows and its header says 3",
        ),
        (
            with(0, 2, &message[..message.len() - 1]),
            "the payload is not one message",
        ),
        (
            with(0, 2, &[&message[..], &[0]].concat()),
            "the payload is not one message",
        ),
        (
            with(0, 0, b"\x02\xff\xff"),
            "the payload is not one message",
        ),
        (
            with(1, 2, &bomb),
            "the payload decompresses to more than 67108864 bytes",
        ),
    ] {
        let good = record(9, 1);
        let (_directory, path) = file(&[&bytes[..], &good].concat());
        let mut reader = SpoolReader::open(&path).unwrap();
        let corrupt = Item::Corrupt {
            offset: 0,
            bytes: bytes.len() as u64,
            reason: what.to_owned(),
        };
        assert_eq!(reader.next_item().unwrap(), Some(corrupt));
        assert_eq!(items(&path).0, vec![(9, 1)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damage_to_one_record_costs_that_record_alone(
        which in 0..5_usize, place: prop::sample::Index, mask in 1..=255_u8,
    ) {
        let records: Vec<_> = (0..5).map(|number| record(number * 100, 7)).collect();
        let start: usize = records[..which].iter().map(Vec::len).sum();
        let mut bytes = records.concat();
        bytes[start + place.index(records[which].len())] ^= mask;
        let (_directory, path) = file(&bytes);
        let (found, corrupt) = items(&path);
        let expected: Vec<_> = (0..5).filter(|&number| number != which).map(|number| (number as u64 * 100, 7)).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(corrupt, vec![(start as u64, records[which].len() as u64)]);
    }

    #[test]
    fn unknown_bytes_between_records_are_reported_and_skipped(
        before in prop::collection::vec(any::<u8>(), 0..100), between in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let bytes = [&before[..], &record(1, 1), &between, &record(2, 1)].concat();
        let (_directory, path) = file(&bytes);
        let (found, corrupt) = items(&path);
        prop_assert_eq!(found, vec![(1, 1), (2, 1)]);
        prop_assert_eq!(corrupt.iter().map(|(_, bytes)| bytes).sum::<u64>(), (before.len() + between.len()) as u64);
    }

    #[test]
    fn recovery_keeps_every_complete_record_and_nothing_else(cut: prop::sample::Index) {
        let records: Vec<_> = (1..5).map(|number| record(number, 3)).collect();
        let whole = records.concat();
        let cut = cut.index(whole.len() + 1);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("h-1-2-3.spool.open");
        fs::write(&path, &whole[..cut]).unwrap();
        let mut stats = Stats::default();
        recover(directory.path(), "h", &silent(), &mut stats).unwrap();

        let (mut kept, mut end) = (Vec::new(), 0);
        for (number, record) in records.iter().enumerate() {
            if end + record.len() <= cut {
                kept.push((number as u64 + 1, 3));
                end += record.len();
            }
        }
        prop_assert!(!path.exists());
        let done = directory.path().join("h-1-2-3.spool");
        prop_assert_eq!(done.exists(), !kept.is_empty());
        if done.exists() {
            prop_assert_eq!(items(&done), (kept, vec![]));
        }
        prop_assert_eq!((stats.spool_files_recovered, stats.spool_bytes_cut), (1, (cut - end) as u64));
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_reader(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            Just(b"STB1".to_vec()),
            Just(b"STB1\x01\0\0\0\x01\0\0\0\x08\0\0\0".to_vec()),
        ], 0..20),
    ) {
        let bytes = pieces.concat();
        let (_directory, path) = file(&bytes);
        let (records, corrupt) = items(&path);
        prop_assert_eq!(records, vec![]);
        prop_assert_eq!(corrupt.iter().map(|(_, length)| length).sum::<u64>(), bytes.len() as u64);
    }
}

#[test]
fn a_marker_across_two_reads_of_the_scan_is_found() {
    for length in 65_530..65_545 {
        let (_directory, path) = file(&[vec![0; length], record(4, 1)].concat());
        assert_eq!(
            items(&path),
            (vec![(4, 1)], vec![(0, length as u64)]),
            "{length}"
        );
    }
}

#[test]
fn recovery_leaves_other_hosts_files_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "h-2-1-2-3.spool.open",
        "other-1-2-3.spool.open",
        "h-1-2-3.spool",
        "h.state",
        "h-1-2-3.spool.open.bak",
    ] {
        fs::write(directory.path().join(name), b"x").unwrap();
    }
    let mut stats = Stats::default();
    recover(directory.path(), "h", &silent(), &mut stats).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    assert_eq!(stats, Stats::default());
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_completed_before_it_is_too_large() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = message(1, 100);
    let message = Message {
        rows: 100,
        bytes: &bytes,
    };
    let length = RecordWriter::new().unwrap().record(message).unwrap().len() as u64;
    let rotation = Rotation {
        bytes: 2 * length,
        interval: Duration::from_secs(3600),
    };
    let mut writer = SpoolWriter::new(directory.path(), "h", rotation).unwrap();
    let mut stats = Stats::default();
    for _ in 0..5 {
        writer.append(message, &mut stats).unwrap();
    }
    let open = names(directory.path())
        .iter()
        .filter(|name| name.ends_with(".spool.open"))
        .count();
    assert_eq!(
        (open, names(directory.path()).len(), stats.spool_files),
        (1, 3, 2)
    );
    writer.seal(&mut stats).unwrap();
    assert!(
        names(directory.path())
            .iter()
            .all(|name| name.starts_with("h-") && name.ends_with(".spool"))
    );
    let rows: usize = names(directory.path())
        .iter()
        .flat_map(|name| items(&directory.path().join(name)).0)
        .map(|(_, rows)| rows)
        .sum();
    assert_eq!(
        (rows, stats.spool_files, stats.spool_bytes),
        (500, 3, 5 * length)
    );
}

#[test]
fn a_file_is_completed_when_it_is_old_enough() {
    let directory = tempfile::tempdir().unwrap();
    let rotation = Rotation {
        bytes: u64::MAX,
        interval: Duration::from_millis(1),
    };
    let mut writer = SpoolWriter::new(directory.path(), "h", rotation).unwrap();
    let mut stats = Stats::default();
    writer.rotate(&mut stats).unwrap();
    assert_eq!(names(directory.path()), Vec::<String>::new());
    let bytes = message(1, 1);
    writer
        .append(
            Message {
                rows: 1,
                bytes: &bytes,
            },
            &mut stats,
        )
        .unwrap();
    std::thread::sleep(Duration::from_millis(2));
    writer.rotate(&mut stats).unwrap();
    assert!(matches!(&names(directory.path())[..], [name] if name.ends_with(".spool")));
}

#[test]
fn a_spool_that_cannot_be_written_is_an_error_with_its_cause() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let rotation = Rotation {
        bytes: u64::MAX,
        interval: Duration::from_secs(3600),
    };
    let mut writer = SpoolWriter::new(&missing, "h", rotation).unwrap();
    let bytes = message(1, 1);
    let error = writer
        .append(
            Message {
                rows: 1,
                bytes: &bytes,
            },
            &mut Stats::default(),
        )
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{}/h-", missing.display())),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("cannot create it: No such file or directory"),
        "{error}"
    );
}

#[test]
fn a_batch_is_a_message_that_protobuf_readers_take() {
    let mut batch = Batch::default();
    assert!(batch.is_empty());
    let sample = TcpSample {
        host: "h".repeat(90),
        ..TcpSample::default()
    }
    .encode_to_vec();
    let mut pushed = 0;
    while !batch.is_full() {
        batch.push(|slot| {
            slot[..sample.len()].copy_from_slice(&sample);
            sample.len()
        });
        pushed += 1;
    }
    let message = batch.message();
    let envelope = Envelope::decode_length_delimited(message.bytes).unwrap();
    assert_eq!(
        (pushed, message.rows, envelope.row.len()),
        (1000, 1000, 1000)
    );
    assert!(envelope.row.iter().all(|row| row.host.len() == 90));
    batch.clear();
    assert!(batch.is_empty());
    assert_eq!(batch.message().bytes, [0]);
}
