//! One JSON object a line.

use std::io::{self, Write};

use crate::sample::batch::Message;
use crate::sample::json::write_json;
use crate::sample::proto::TcpSample;
use crate::sinks::{Sink, SinkError, rows};
use crate::stats::Stats;

/// Writes JSON lines to an output.
pub(crate) struct JsonSink<W> {
    out: W,
    line: String,
}

impl<W: Write> JsonSink<W> {
    /// Writes to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            line: String::new(),
        }
    }

    /// Writes one sample.
    pub(crate) fn sample(&mut self, sample: &TcpSample) -> io::Result<()> {
        self.line.clear();
        write_json(sample, &mut self.line);
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    /// Passes on what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Sink for JsonSink<W> {
    fn write(&mut self, message: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        for sample in &rows(message)?.row {
            self.sample(sample)?;
        }
        Ok(())
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(self.flush()?)
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(self.flush()?)
    }
}
