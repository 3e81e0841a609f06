//! Options of the queue that holds what remote sinks have not taken yet.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::options::units::{parse_age, parse_bytes};
use crate::options::{Reload, key};
use crate::spool::queue::Limits;

/// The queue that holds what remote sinks have not taken yet.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Queue of what remote sinks have not taken yet")]
pub(crate) struct QueueOptions {
    /// Directory of the queue; made if it is missing
    #[arg(long, value_name = "DIR", default_value = "/var/lib/springtide/queue", add = key("queue.dir"))]
    pub queue_dir: PathBuf,
    /// Most bytes that wait on disk: over that the oldest are dropped and counted
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_queue_bytes,
          add = key("queue.bytes").on_reload(Reload::Queue))]
    pub queue_bytes: u64,
    /// Longest time that samples wait: after that they are dropped and counted (1ms to 2160h)
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_age,
          add = key("queue.age").on_reload(Reload::Queue))]
    pub queue_age: Duration,
}

impl QueueOptions {
    /// Limits of the queue.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            bytes: self.queue_bytes,
            age: self.queue_age,
        }
    }
}

/// Below this, one large message would not fit.
const SMALLEST_QUEUE: u64 = 1 << 20;

fn parse_queue_bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < SMALLEST_QUEUE => Err(format!(
            "'{text}' is too small for a queue: give 1MiB or more"
        )),
        bytes => Ok(bytes),
    }
}
