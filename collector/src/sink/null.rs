//! Takes every message and keeps none: what reading and encoding cost by themselves.

use super::{Sink, SinkError};
use crate::batch::Message;
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
