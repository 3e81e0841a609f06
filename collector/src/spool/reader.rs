//! Reads a spool file record by record; what is not a valid record is reported and stepped over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::record::{self, HEADER, Header};
use super::scan::Patience;
use super::{SpoolError, failed, open_file, open_own, reading, scan};
use crate::sample::proto::Envelope;

/// Content of one position of the file.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    /// A valid record.
    Record {
        /// The offset behind it.
        end: u64,
        /// Its rows.
        envelope: Envelope,
    },
    /// Bytes up to the next valid record or the file's end that are not a record.
    Corrupt {
        /// Where they begin.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// Fault of the first of them.
        reason: String,
    },
}

const TOO_MANY: &str =
    "there are more false headers than a damaged file has: what follows is not searched";

/// Reads one file, in memory that the limits of a record bound.
pub(crate) struct SpoolReader {
    file: File,
    path: PathBuf,
    length: u64,
    at: u64,
    waiting: Option<Item>,
    patience: Patience,
}

impl SpoolReader {
    /// Opens the file. It is read as far as it reaches now.
    pub(crate) fn open(path: &Path) -> Result<Self, SpoolError> {
        Self::of(open_file(&reading(), path), path)
    }

    /// Opens a file in a directory of our own, where links are not ours.
    pub(super) fn open_own(path: &Path) -> Result<Self, SpoolError> {
        Self::of(open_own(&reading(), path), path)
    }

    fn of(file: io::Result<File>, path: &Path) -> Result<Self, SpoolError> {
        let file = file.map_err(failed("read it", path))?;
        let length = file.metadata().map_err(failed("read it", path))?.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            length,
            at: 0,
            waiting: None,
            patience: Patience::of(length),
        })
    }

    /// The next record or the next stretch of corrupt bytes; None at the file's end.
    pub(crate) fn next_item(&mut self) -> Result<Option<Item>, SpoolError> {
        if let Some(item) = self.waiting.take() {
            return Ok(Some(item));
        }
        self.read().map_err(failed("read it", &self.path))
    }

    fn read(&mut self) -> io::Result<Option<Item>> {
        let mut corrupt = None;
        while self.at < self.length {
            match self.record()? {
                Ok((end, envelope)) => {
                    let start = std::mem::replace(&mut self.at, end);
                    let item = Item::Record { end, envelope };
                    let Some((offset, reason)) = corrupt else {
                        return Ok(Some(item));
                    };
                    self.waiting = Some(item);
                    return Ok(Some(Item::Corrupt {
                        offset,
                        bytes: start - offset,
                        reason,
                    }));
                }
                Err(reason) => {
                    corrupt.get_or_insert((self.at, reason));
                    self.at = if self.patience.is_lost() {
                        self.length
                    } else {
                        scan::next_marker(&self.file, self.at + 1, self.length)?
                    };
                }
            }
        }
        Ok(corrupt.map(|(offset, reason)| Item::Corrupt {
            offset,
            bytes: self.length - offset,
            reason,
        }))
    }

    /// The record at the current offset, and the offset behind it; or what is wrong there.
    fn record(&mut self) -> io::Result<Result<(u64, Envelope), String>> {
        let rest = self.length - self.at;
        let mut bytes = [0; HEADER];
        if rest < HEADER as u64 {
            return Ok(Err(format!(
                "only {rest} bytes are left, a record's header has {HEADER}"
            )));
        }
        self.file.read_exact_at(&mut bytes, self.at)?;
        let Some(header) = Header::parse(&bytes) else {
            return Ok(Err("there is no record's header".to_owned()));
        };
        if rest < (HEADER + header.payload) as u64 {
            let left = rest - HEADER as u64;
            return Ok(Err(format!(
                "the record is cut: {left} of its payload's {} bytes are left",
                header.payload
            )));
        }
        if !self.patience.spend(header.payload) {
            return Ok(Err(TOO_MANY.to_owned()));
        }
        let mut payload = vec![0; header.payload];
        self.file
            .read_exact_at(&mut payload, self.at + HEADER as u64)?;
        if !header.matches(&bytes, &payload) {
            return Ok(Err("the record's checksum is wrong".to_owned()));
        }
        let end = self.at + (HEADER + header.payload) as u64;
        Ok(record::envelope(&header, &payload)
            .map(|envelope| (end, envelope))
            .map_err(|error| error.to_string()))
    }
}
