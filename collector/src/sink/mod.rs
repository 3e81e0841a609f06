//! Where messages go.

#[cfg(feature = "clickhouse")]
pub mod clickhouse;
pub mod fanout;
pub mod file;
pub mod json;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod null;
pub mod options;
pub mod start;
pub mod table;

use std::io::{self, Write};

use prost::Message as _;

use crate::batch::Message;
use crate::sample::proto::Envelope;
use crate::spool::SpoolError;
use crate::stats::Stats;

/// Why a sink did not take a message.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The spool failed.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The output failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl SinkError {
    /// Whether the reader of a pipe has gone, which is how `| head` ends.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Takes messages.
pub trait Sink {
    /// Takes one message.
    fn write(&mut self, message: Message<'_>, stats: &mut Stats) -> Result<(), SinkError>;

    /// A poll has ended: what was taken should be visible to readers, as far as the sink promises that.
    fn end_poll(&mut self, stats: &mut Stats) -> Result<(), SinkError>;

    /// Nothing will follow.
    fn finish(&mut self, stats: &mut Stats) -> Result<(), SinkError>;
}

/// The rows of a message of ours.
pub(crate) fn rows(message: Message<'_>) -> io::Result<Envelope> {
    Envelope::decode_length_delimited(message.bytes).map_err(io::Error::other)
}

/// Standard output with one system call for many lines.
pub fn stdout() -> impl Write {
    io::BufWriter::with_capacity(64 * 1024, io::stdout().lock())
}
