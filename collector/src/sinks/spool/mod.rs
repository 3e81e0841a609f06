//! Records: into the spool's files, or one after another to an output.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::start::{Opened, Opening, SinkOptions, StartError};
use super::{Sink, SinkError};
use crate::options::key;
use crate::options::units::{parse_bytes, parse_duration};
use crate::sample::batch::Message;
use crate::spool::make_directory;
use crate::spool::record::RecordWriter;
use crate::spool::recover::recover;
use crate::spool::writer::{Rotation, SpoolWriter};
use crate::stats::Stats;

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sinks")]
pub(crate) struct SpoolOptions {
    /// Directory of spool files; made if it is missing and the one above it is there
    #[arg(long, value_name = "DIR", add = key("spool.dir"))]
    pub spool_dir: Option<PathBuf>,
    /// Complete a spool file before it grows longer than this: bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes,
          add = key("spool.rotate_bytes"))]
    pub rotate_bytes: u64,
    /// Complete a spool file after this time (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration,
          add = key("spool.rotate_interval"))]
    pub rotate_interval: Duration,
}

impl SinkOptions for SpoolOptions {
    fn flag(&self) -> &'static str {
        "--spool-dir"
    }

    fn wanted(&self) -> bool {
        self.spool_dir.is_some()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn directory(&self) -> Option<&Path> {
        self.spool_dir.as_deref()
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Opened, StartError> {
        let Some(directory) = self.directory() else {
            unreachable!("only a sink that is selected is opened")
        };
        make_directory(directory).map_err(|source| StartError::Directory {
            path: directory.display().to_string(),
            source,
        })?;
        let Opening { host, reporter, .. } = *opening;
        recover(directory, host, reporter, opening.stats)?;
        let rotation = Rotation {
            bytes: self.rotate_bytes,
            interval: self.rotate_interval,
        };
        let writer = SpoolWriter::new(directory, host, rotation)?;
        Ok(Opened::Direct("file", Box::new(writer)))
    }
}

impl Sink for SpoolWriter {
    fn write(&mut self, message: Message<'_>, stats: &mut Stats) -> Result<(), SinkError> {
        Ok(self.append(message, stats)?)
    }

    fn end_poll(&mut self, stats: &mut Stats) -> Result<(), SinkError> {
        Ok(self.rotate(stats)?)
    }

    fn finish(&mut self, stats: &mut Stats) -> Result<(), SinkError> {
        Ok(self.seal(stats)?)
    }
}

/// Writes records to an output.
pub(crate) struct RecordSink<W> {
    out: W,
    records: RecordWriter,
}

impl<W: Write> RecordSink<W> {
    /// Fails when there is no memory for the compressor.
    pub(crate) fn new(out: W) -> io::Result<Self> {
        Ok(Self {
            out,
            records: RecordWriter::new()?,
        })
    }
}

impl<W: Write> Sink for RecordSink<W> {
    fn write(&mut self, message: Message<'_>, stats: &mut Stats) -> Result<(), SinkError> {
        let record = self.records.record(message)?;
        stats.spool_bytes += record.len() as u64;
        Ok(self.out.write_all(record)?)
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(self.out.flush()?)
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(self.out.flush()?)
    }
}
