//! Finds records in a file without decoding them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{HEADER, Header, MARKER, PAYLOAD_LIMIT};

/// Bytes of a file that may still be looked at again. Behind damage every header is a guess whose
/// whole payload must be read: records of ours lie side by side, so that all of them together are
/// the file, and a payload hardly ever holds a marker. Headers that claim each other's bytes would
/// take the square of the file's length.
pub(crate) struct Patience(u64);

impl Patience {
    /// For a file of `length` bytes: four times that, and eight of the largest payloads.
    pub(crate) fn of(length: u64) -> Self {
        Self(4 * length + 8 * PAYLOAD_LIMIT as u64)
    }

    /// Takes the bytes that are to be read; false when there were not so many left, and then there are none.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes as u64);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether nothing more is to be looked at.
    pub(crate) fn is_lost(&self) -> bool {
        self.0 == 0
    }
}

/// The header at `at`, when there is one whose record ends within `length`.
pub(crate) fn header_at(file: &File, at: u64, length: u64) -> io::Result<Option<Header>> {
    if length.saturating_sub(at) < HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Header::parse(&bytes).filter(|header| header.record() <= length - at))
}

/// The record at `at` with its payload in `payload`, when there is one whose checksum is right.
pub(crate) fn record_at(
    file: &File,
    at: u64,
    length: u64,
    payload: &mut Vec<u8>,
) -> io::Result<Option<Header>> {
    let Some(header) = header_at(file, at, length)? else {
        return Ok(None);
    };
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, at)?;
    payload.resize(header.payload, 0);
    file.read_exact_at(payload, at + HEADER as u64)?;
    Ok(Some(header).filter(|header| header.matches(&bytes, payload)))
}

/// The offset of the first record at or behind `from` whose checksum is right, or `length`, also when the patience is at its end.
pub(crate) fn next_record(
    file: &File,
    from: u64,
    length: u64,
    payload: &mut Vec<u8>,
    patience: &mut Patience,
) -> io::Result<u64> {
    let mut at = next_marker(file, from, length)?;
    while at < length {
        if let Some(header) = header_at(file, at, length)? {
            if !patience.spend(header.payload) {
                return Ok(length);
            }
            if record_at(file, at, length, payload)?.is_some() {
                break;
            }
        }
        at = next_marker(file, at + 1, length)?;
    }
    Ok(at)
}

/// The offset of the first marker at or behind `from`, or `length`.
pub(crate) fn next_marker(file: &File, from: u64, length: u64) -> io::Result<u64> {
    let mut window = [0; 64 * 1024];
    let mut at = from;
    while at < length {
        let want = window.len().min((length - at) as usize);
        file.read_exact_at(&mut window[..want], at)?;
        if let Some(found) = window[..want]
            .windows(MARKER.len())
            .position(|bytes| bytes == MARKER)
        {
            return Ok(at + found as u64);
        }
        if at + want as u64 == length {
            break;
        }
        at += (want - (MARKER.len() - 1)) as u64;
    }
    Ok(length)
}
