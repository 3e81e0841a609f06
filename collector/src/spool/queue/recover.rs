//! Finds what a predecessor left: counts its records, cuts a torn end, and places the cursors.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::cursor::{CursorFile, Position};
use super::state::{LaneState, Segment, State};
use super::{QueueError, survive};
use crate::accounting::{Accounting, SinkId};
use crate::report::Reporter;
use crate::spool::scan::{self, Patience};
use crate::spool::{open_own, reading};
use crate::stats::Stats;

/// A queue that begins a segment each millisecond comes here after 292 million years.
const LARGEST: u64 = u64::MAX / 2;

/// The queue as it was left, and each sink's cursor; None for one that cannot be written.
pub(super) fn recover(
    directory: &Path,
    sinks: &[(SinkId, &'static str)],
    accounting: &Arc<Accounting>,
    reporter: &Reporter,
    stats: &mut Stats,
) -> Result<(State, Vec<Option<CursorFile>>), QueueError> {
    let failed = |path: &Path, source| QueueError::Io {
        path: path.to_owned(),
        source,
    };
    let cursors = sinks.iter().map(|(_, name)| {
        let path = directory.join(format!("{name}.cursor"));
        cursor(&path).map_err(|error| failed(&path, error))
    });
    let mut cursors = cursors.collect::<Result<Vec<_>, _>>()?;
    let ids = survive(segment_ids(directory)).map_err(|error| failed(directory, error))?;
    let ids = ids.unwrap_or_default();
    // A number is never used twice, so that an old cursor cannot stand in front of new records.
    let cursor_ids = cursors.iter().map(|(_, position)| position.segment);
    let next_id = ids.iter().copied().chain(cursor_ids).max().unwrap_or(0) + 1;

    let mut segments = VecDeque::new();
    let mut rows_before = vec![0; cursors.len()];
    let mut rows_behind = vec![0; cursors.len()];
    for &id in &ids {
        let path = directory.join(format!("{id:020}.spool"));
        let newest = ids.last() == Some(&id);
        let records = match walk(&path, newest, stats) {
            Ok(records) => records,
            Err(error) => {
                reporter.complain(format!(
                    "{}: cannot be read, and is left out: {error}",
                    path.display()
                ));
                continue;
            }
        };
        let rows: u64 = records.iter().map(|record| record.rows).sum();
        for (lane, (_, cursor)) in cursors.iter().enumerate() {
            let passed = passed(id, &records, *cursor);
            if id == cursor.segment {
                rows_before[lane] = passed;
            }
            rows_behind[lane] += rows - passed;
        }
        let mut segment = Segment::new(id, None, came(&path));
        segment.length = records.last().map_or(0, |record| record.end);
        for (_, cursor) in &mut cursors {
            // A power cut may have kept the cursor and lost the records before it.
            if cursor.segment == id {
                cursor.offset = cursor.offset.min(segment.length);
            }
        }
        segment.rows = rows;
        segment.sealed = true;
        segments.push_back(segment);
    }
    for (&(sink, _), rows) in sinks.iter().zip(rows_behind) {
        accounting.recovered(sink, rows);
    }
    let lanes = (sinks.iter().zip(&cursors).zip(rows_before))
        .map(|((&(sink, _), &(_, position)), rows)| LaneState::new(sink, position, rows))
        .collect();
    let state = State::new(segments, lanes, next_id, accounting.clone());
    Ok((state, cursors.into_iter().map(|(file, _)| file).collect()))
}

/// A sink's cursor: the file, unless it cannot be written, and how far it stands.
fn cursor(path: &Path) -> io::Result<(Option<CursorFile>, Position)> {
    let (file, position) = match survive(CursorFile::open(path))? {
        Some((file, position)) => (Some(file), position),
        None => (None, CursorFile::peek(path)),
    };
    let position = position.filter(|position| position.segment <= LARGEST);
    Ok((file, position.unwrap_or_default()))
}

/// Number of rows of a segment that a cursor has passed.
fn passed(id: u64, records: &[Walked], cursor: Position) -> u64 {
    let before =
        |record: &&Walked| id < cursor.segment || id == cursor.segment && record.at < cursor.offset;
    records
        .iter()
        .take_while(before)
        .map(|record| record.rows)
        .sum()
}

fn segment_ids(directory: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(".spool"));
        let digits = digits
            .filter(|digits| digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()));
        // A number that has no successor, or nearly none, is not ours.
        ids.extend(
            digits
                .and_then(|digits| digits.parse::<u64>().ok())
                .filter(|&id| id <= LARGEST),
        );
    }
    ids.sort_unstable();
    Ok(ids)
}

struct Walked {
    at: u64,
    end: u64,
    rows: u64,
}

/// The records of a segment. Their checksums are looked at when they are delivered, but for the segment that the process
/// died on: there a power cut may have left a length without its content.
fn walk(path: &Path, died_on: bool, stats: &mut Stats) -> io::Result<Vec<Walked>> {
    let file = open_own(&reading(), path)?;
    let length = file.metadata()?.len();
    let mut patience = Patience::of(length);
    let (mut records, mut payload) = (Vec::<Walked>::new(), Vec::new());
    let mut at = 0;
    while at < length {
        let header = if died_on {
            scan::record_at(&file, at, length, &mut payload)?
        } else {
            scan::header_at(&file, at, length)?
        };
        match header {
            Some(header) => {
                let end = at + header.record();
                let rows = header.rows.into();
                records.push(Walked { at, end, rows });
                at = end;
            }
            None => {
                let next = scan::next_record(&file, at + 1, length, &mut payload, &mut patience)?;
                if next == length {
                    stats.spool_bytes_cut += length - at;
                    // On a disk that cannot be written it is merely not read.
                    let _ = open_own(OpenOptions::new().write(true), path)
                        .and_then(|file| file.set_len(at));
                } else {
                    stats.spool_stretches_corrupt += 1;
                    stats.spool_bytes_corrupt += next - at;
                }
                at = next;
            }
        }
    }
    Ok(records)
}

/// When a file was last written, in this process's time. A clock that was set back makes it young.
fn came(path: &Path) -> Instant {
    let now = Instant::now();
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    age.and_then(|age| now.checked_sub(age)).unwrap_or(now)
}
