//! Records: into the spool's files, or one after another to an output.

use std::io::{self, Write};

use super::{Sink, SinkError};
use crate::sample::batch::Message;
use crate::spool::record::RecordWriter;
use crate::spool::writer::SpoolWriter;
use crate::stats::Stats;

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
pub struct RecordSink<W> {
    out: W,
    records: RecordWriter,
}

impl<W: Write> RecordSink<W> {
    /// Fails when there is no memory for the compressor.
    pub fn new(out: W) -> io::Result<Self> {
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
