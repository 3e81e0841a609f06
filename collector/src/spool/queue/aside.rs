//! Messages that a receiver will never take, kept for people.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::sample::batch::Message;
use crate::spool::record::RecordWriter;

/// Most bytes that are kept: people look at a few.
const LIMIT: u64 = 64 << 20;

/// Most files of one name: a message is set aside again when the cursor behind it was lost.
const NAMES: u32 = 100;

/// Writes the message as a spool file of one record, and gives its path: another name where there is one of that name, which
/// stays as it is.
pub(super) fn keep(directory: &Path, name: &str, message: Message<'_>) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let mut held = 0;
    for entry in fs::read_dir(directory)? {
        // One that has gone meanwhile holds nothing.
        held += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    let mut records = RecordWriter::new()?;
    let record = records.record(message)?;
    if held + record.len() as u64 > LIMIT {
        return Err(io::Error::other(format!(
            "it holds {} MiB already",
            LIMIT >> 20
        )));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    for number in 0..NAMES {
        let path = directory.join(match number {
            0 => format!("{name}.spool"),
            _ => format!("{name}-{number}.spool"),
        });
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return file?.write_all(record).map(|()| path),
        }
    }
    Err(io::Error::other(format!(
        "it has {NAMES} files of that name"
    )))
}
