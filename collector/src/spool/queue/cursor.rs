//! Position of a sink, kept over restarts.
//!
//! One line of constant length, written over in place: unlike a fresh file and a rename, this works
//! on a full disk, and a killed process leaves the line whole. A line that a power cut tears fails
//! its check; the sink then starts from the oldest record, and delivery is at least once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::spool::{open_own, reading};

/// A place in the queue: a segment and an offset in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The segment's number.
    pub segment: u64,
    /// Offset in the segment, bytes.
    pub offset: u64,
}

/// The file of one cursor.
pub(super) struct CursorFile {
    file: File,
}

impl CursorFile {
    /// Opens or creates it; returns the cursor's position.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<Position>)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = open_own(&options, path)?;
        let position = read(&mut file)?;
        Ok((Self { file }, position))
    }

    /// Where the cursor stands, when the file cannot be opened for writing.
    pub(super) fn peek(path: &Path) -> Option<Position> {
        read(&mut open_own(&reading(), path).ok()?).ok()?
    }

    /// Writes where the cursor stands.
    pub(super) fn set(&self, position: Position) -> io::Result<()> {
        self.file.write_all_at(line(position).as_bytes(), 0)
    }
}

fn read(file: &mut File) -> io::Result<Option<Position>> {
    let mut text = String::new();
    // A file that is not text is not a cursor either.
    match file.take(256).read_to_string(&mut text) {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error),
        _ => Ok(parse(&text)),
    }
}

fn line(position: Position) -> String {
    let text = format!("{:020} {:020}", position.segment, position.offset);
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text} {sum:08x}\n")
}

fn parse(text: &str) -> Option<Position> {
    let (numbers, _) = text.rsplit_once(' ')?;
    let (segment, offset) = numbers.split_once(' ')?;
    let position = Position {
        segment: segment.parse().ok()?,
        offset: offset.parse().ok()?,
    };
    (line(position) == text).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_and_a_damaged_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kafka.cursor");
        let position = Position {
            segment: 12,
            offset: u64::MAX,
        };
        let (cursor, none) = CursorFile::open(&path).unwrap();
        assert_eq!(none, None);
        cursor.set(Position::default()).unwrap();
        cursor.set(position).unwrap();
        assert_eq!(CursorFile::open(&path).unwrap().1, Some(position));
        assert_eq!(CursorFile::peek(&path), Some(position));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(CursorFile::open(&path).unwrap().1, None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(CursorFile::open(&path).unwrap().1, None, "cut at {at}");
        }
    }
}
