//! Messages that a receiver will never take, kept for people.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::batch::Message;
use crate::spool::record::RecordWriter;

/// Most bytes that are kept: people look at a few.
const LIMIT: u64 = 64 << 20;

/// Writes the message as a spool file of one record.
pub(super) fn keep(directory: &Path, name: &str, message: Message<'_>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut held = 0;
    for entry in fs::read_dir(directory)? {
        held += entry?.metadata()?.len();
    }
    let mut records = RecordWriter::new()?;
    let record = records.record(message)?;
    if held + record.len() as u64 > LIMIT {
        return Err(io::Error::other(format!(
            "it holds {} MiB already",
            LIMIT >> 20
        )));
    }
    File::create(directory.join(name))?.write_all(record)
}
