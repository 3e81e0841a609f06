//! Takes every message and keeps none: what reading and encoding cost by themselves.

use crate::sample::batch::Message;
use crate::sinks::{Sink, SinkError};
use crate::stats::Stats;

/// See the module.
pub struct NullSink;

impl Sink for NullSink {
    fn write(&mut self, _: Message<'_>, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }

    fn end_poll(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Stats) -> Result<(), SinkError> {
        Ok(())
    }
}
