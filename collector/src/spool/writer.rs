//! Writes the spool: records into a file that is completed when it is large or old enough.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::record::RecordWriter;
use super::{SpoolError, complete, failed, name};
use crate::kernel::host::now_unix_us;
use crate::sample::batch::Message;
use crate::stats::Stats;

/// When a file is completed and the next begun, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    /// A record that would make the file longer than this starts the next one, bytes.
    pub bytes: u64,
    /// A file is not kept open longer.
    pub interval: Duration,
}

/// Writes one host's spool. A file is begun with its first record, so that none is ever empty.
pub(crate) struct SpoolWriter {
    directory: PathBuf,
    host: String,
    rotation: Rotation,
    number: u64,
    records: RecordWriter,
    open: Option<OpenFile>,
}

struct OpenFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    since: Instant,
}

impl SpoolWriter {
    /// The directory must exist.
    pub(crate) fn new(
        directory: &Path,
        host: &str,
        rotation: Rotation,
    ) -> Result<Self, SpoolError> {
        let records = RecordWriter::new().map_err(failed("start compression for it", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            host: host.to_owned(),
            rotation,
            number: 0,
            records,
            open: None,
        })
    }

    /// Appends the message as one record. When that fails, the file is left as it was before.
    pub(crate) fn append(
        &mut self,
        message: Message<'_>,
        stats: &mut Stats,
    ) -> Result<(), SpoolError> {
        let record = self
            .records
            .record(message)
            .map_err(failed("compress a record for it", &self.directory))?;
        let length = record.len() as u64;
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.bytes + length > self.rotation.bytes)
        {
            seal(&mut self.open, &self.directory, stats)?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                self.number += 1;
                let name =
                    name::open_name(&self.host, now_unix_us(), std::process::id(), self.number);
                let path = self.directory.join(name);
                let file = OpenOptions::new()
                    .append(true)
                    .create_new(true)
                    .open(&path)
                    .map_err(failed("create it", &path))?;
                self.open.insert(OpenFile {
                    file,
                    path,
                    bytes: 0,
                    since: Instant::now(),
                })
            }
        };
        open.append(record)
            .map_err(failed("write to it", &open.path))?;
        stats.spool_bytes += length;
        Ok(())
    }

    /// Completes the file when it is old enough.
    pub(crate) fn rotate(&mut self, stats: &mut Stats) -> Result<(), SpoolError> {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.since.elapsed() >= self.rotation.interval)
        {
            return seal(&mut self.open, &self.directory, stats);
        }
        Ok(())
    }

    /// Completes the file, if there is one.
    pub(crate) fn seal(&mut self, stats: &mut Stats) -> Result<(), SpoolError> {
        seal(&mut self.open, &self.directory, stats)
    }
}

impl OpenFile {
    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(record) {
            // A part of a record would be a corrupt stretch for every reader; the error itself is what to report.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += record.len() as u64;
        Ok(())
    }
}

fn seal(
    open: &mut Option<OpenFile>,
    directory: &Path,
    stats: &mut Stats,
) -> Result<(), SpoolError> {
    if let Some(open) = open.take() {
        // Its first record was not written whole.
        if open.bytes == 0 {
            return fs::remove_file(&open.path).map_err(failed("remove it", &open.path));
        }
        complete(&open.file, &open.path, directory)?;
        stats.spool_files += 1;
    }
    Ok(())
}
