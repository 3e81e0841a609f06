//! Which sinks there are, as the command line says it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::config::{parse_age, parse_bytes, parse_duration};

/// How `run` prints samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Print {
    /// Aligned columns for people
    Table,
    /// One JSON object a line
    Json,
    /// Not at all: for measuring what reading and encoding cost
    Null,
}

/// Where samples go: any of these together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sinks")]
pub struct SinkOptions {
    /// Directory of spool files; made if it is missing
    #[arg(long, value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
    /// Complete a spool file before it grows longer than this: bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = parse_bytes)]
    pub rotate_bytes: u64,
    /// Complete a spool file after this time (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub rotate_interval: Duration,
    /// Print the samples on standard output
    #[arg(long, value_enum)]
    pub print: Option<Print>,
    /// Kafka.
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    pub kafka: super::kafka::KafkaOptions,
    /// ClickHouse.
    #[cfg(feature = "clickhouse")]
    #[command(flatten)]
    pub clickhouse: super::clickhouse::ClickHouseOptions,
    /// The queue.
    #[command(flatten)]
    pub queue: QueueOptions,
}

/// The queue that holds what Kafka or ClickHouse have not taken yet.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Queue of what Kafka and ClickHouse have not taken yet")]
pub struct QueueOptions {
    /// Directory of the queue; made if it is missing
    #[arg(long, value_name = "DIR", default_value = "/var/lib/springtide/queue")]
    pub queue_dir: PathBuf,
    /// Most bytes that wait on disk: over that the oldest are dropped and counted
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_queue_bytes)]
    pub queue_bytes: u64,
    /// Longest time that samples wait: after that they are dropped and counted (1ms to 2160h)
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_age)]
    pub queue_age: Duration,
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
