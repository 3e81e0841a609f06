//! One poll: every socket of both families, batch by batch, to a sink.

use std::io;

use crate::batch::Batch;
use crate::kernel::dump::{DumpError, Dumper, FAMILIES};
use crate::sample::encode::{AccEcn, Encoder, Identity};
use crate::sample::proto::SampleKind;
use crate::sink::{Sink, SinkError};
use crate::stats::Stats;

/// Polls the network namespace of the thread that made it.
pub struct Poller {
    identity: Identity,
    accecn: AccEcn,
    states: u32,
    batch: Batch,
}

impl Poller {
    /// Polls sockets whose state's bit is in `states`.
    pub fn new(identity: Identity, accecn: AccEcn, states: u32) -> Self {
        Self {
            identity,
            accecn,
            states,
            batch: Batch::default(),
        }
    }

    /// Does the poll numbered `sequence`. After an error the rows read before it have been passed on, unless the error is
    /// the sink's.
    pub fn poll(
        &mut self,
        sequence: u64,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), DumpError<SinkError>> {
        let mut encoder = Encoder::new(&self.identity, sequence, SampleKind::Poll, self.accecn);
        let result = self.dump(&mut encoder, sink, stats);
        if matches!(result, Err(DumpError::Consumer(_))) {
            self.batch.clear();
            return result;
        }
        pass_on(&mut self.batch, sink, stats)
            .and_then(|()| sink.end_poll(stats))
            .map_err(DumpError::Consumer)?;
        stats.polls += 1;
        result
    }

    fn dump(
        &mut self,
        encoder: &mut Encoder,
        sink: &mut dyn Sink,
        stats: &mut Stats,
    ) -> Result<(), DumpError<SinkError>> {
        let mut dumper = Dumper::open().map_err(|source: io::Error| DumpError::Socket {
            what: "open",
            source,
        })?;
        let batch = &mut self.batch;
        let mut stamped = None;
        for family in FAMILIES {
            dumper.dump(family, self.states, stats, |now, view, stats| {
                if stamped != Some(now) {
                    encoder.stamp(now);
                    stamped = Some(now);
                }
                batch.push(|slot| encoder.encode(view, slot, stats));
                stats.rows += 1;
                if batch.is_full() {
                    pass_on(batch, sink, stats)
                } else {
                    Ok(())
                }
            })?;
        }
        Ok(())
    }
}

/// Gives what the batch holds to the sink.
pub fn pass_on(batch: &mut Batch, sink: &mut dyn Sink, stats: &mut Stats) -> Result<(), SinkError> {
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
