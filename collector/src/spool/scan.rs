//! Finds records in a file without decoding them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{HEADER, Header, MARKER};

/// The header at `at`, when there is one whose record ends within `length`.
pub fn header_at(file: &File, at: u64, length: u64) -> io::Result<Option<Header>> {
    if length.saturating_sub(at) < HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Header::parse(&bytes).filter(|header| header.record() <= length - at))
}

/// The record at `at` with its payload in `payload`, when there is one whose checksum is right.
pub fn record_at(
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

/// The offset of the first record at or behind `from` whose checksum is right, or `length`.
pub fn next_record(file: &File, from: u64, length: u64, payload: &mut Vec<u8>) -> io::Result<u64> {
    let mut at = next_marker(file, from, length)?;
    while at < length && record_at(file, at, length, payload)?.is_none() {
        at = next_marker(file, at + 1, length)?;
    }
    Ok(at)
}

/// The offset of the first marker at or behind `from`, or `length`.
pub fn next_marker(file: &File, from: u64, length: u64) -> io::Result<u64> {
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
