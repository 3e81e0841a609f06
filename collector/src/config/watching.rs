//! Options for whoever watches the collector.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use crate::options::key;
use crate::options::units::parse_listen;

/// Options for watching the collector.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watching")]
pub(crate) struct Watching {
    /// Answer /metrics (Prometheus) and /healthz over HTTP: a port on the loopback address, or ADDRESS:PORT; port 0 takes a
    /// free one [default: do not]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen,
          add = key("http.listen"))]
    pub http_listen: Option<SocketAddr>,
    /// The form of messages on standard error; `auto` is plain on a terminal, logfmt elsewhere
    #[arg(long, value_enum, default_value = "auto",
          add = key("log.format"))]
    pub log_format: LogFormat,
    /// The least that a message must matter
    #[arg(long, value_enum, default_value = "info",
          add = key("log.level"))]
    pub log_level: LogLevel,
}

/// Importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// The collector ends for it
    Error,
    /// Something is lost, late or refused
    Warn,
    /// Facts that an operator wants to know of a healthy collector
    Info,
}

/// The form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain on a terminal, else logfmt
    Auto,
    /// The message alone
    Plain,
    /// ts=... level=... msg="..."
    Logfmt,
    /// One JSON object a line
    Json,
}
