//! Sinks that take messages in place, in the reader's thread.

use std::io::{self, Write};

use prost::Message as _;

use crate::sample::batch::{Batch, Message};
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

/// Gives what the batch holds to the sink.
pub(crate) fn pass_on(
    batch: &mut Batch,
    sink: &mut dyn Sink,
    stats: &mut Stats,
) -> Result<(), SinkError> {
    if batch.is_empty() {
        return Ok(());
    }
    let message = batch.message();
    stats.messages_written += 1;
    stats.message_bytes += message.bytes.len() as u64;
    let result = sink.write(message, stats);
    batch.clear();
    result
}

/// The rows of a message of ours.
pub(crate) fn rows(message: Message<'_>) -> io::Result<Envelope> {
    Envelope::decode_length_delimited(message.bytes).map_err(io::Error::other)
}

/// Standard output with one system call for many lines.
pub(crate) fn stdout() -> impl Write {
    io::BufWriter::with_capacity(64 * 1024, io::stdout().lock())
}
