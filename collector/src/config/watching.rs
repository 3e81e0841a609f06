//! Options for whoever watches the collector.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;

use crate::operate::log::{Level, LogFormat};

/// How the collector can be watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watching")]
pub struct Watching {
    /// Answer /metrics (Prometheus) and /healthz over HTTP: a port on the loopback address, or ADDRESS:PORT; port 0 takes a
    /// free one [default: do not]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub http_listen: Option<SocketAddr>,
    /// The form of messages on standard error; `auto` is plain on a terminal, logfmt elsewhere
    #[arg(long, value_enum, default_value = "auto")]
    pub log_format: LogFormat,
    /// The least that a message must matter
    #[arg(long, value_enum, default_value = "info")]
    pub log_level: Level,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        format!("'{text}' is no address to listen on: use a port such as 9462, 10.0.0.1:9462 or [::1]:9462")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_host_only() {
        let listen = |text: &str| parse_listen(text).map(|address| address.to_string());
        assert_eq!(listen("9462").as_deref(), Ok("127.0.0.1:9462"));
        assert_eq!(listen("[::]:9462").as_deref(), Ok("[::]:9462"));
        for wrong in ["", "localhost:1", "65536", "::1:9462x", "1.2.3.4"] {
            assert!(listen(wrong).unwrap_err().contains("use a port"), "{wrong}");
        }
    }
}
