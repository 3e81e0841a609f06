//! Times, sizes and addresses as people write them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The shortest time; all that is counted in times is counted in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// A time for an interval.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_time(text, 24)
}

/// A time for keeping something.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    parse_time(text, 90 * 24)
}

fn parse_time(text: &str, most_hours: u64) -> Result<Duration, String> {
    let longest = Duration::from_secs(most_hours * 3600);
    match humantime::parse_duration(text) {
        Ok(time) if (SHORTEST..=longest).contains(&time) => Ok(time),
        _ => Err(format!(
            "'{text}' is not a valid time: use a number with ms, s, m, h or d, from 1ms to {most_hours}h"
        )),
    }
}

/// A size in bytes, at least 1.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size::parse_size(text) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!(
            "'{text}' is not a valid size: use a number of bytes, or one with KiB, MiB or GiB, at least 1"
        )),
    }
}

/// An address to listen on; a port alone is that of the loopback address.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        format!("'{text}' is not a valid address to listen on: use a port such as 9462, 10.0.0.1:9462 or [::1]:9462")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_bounds() {
        for (text, ms) in [
            ("250ms", 250),
            ("1s", 1_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1h30m", 5_400_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "25h",
            "1µs",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            let error = parse_duration(wrong).unwrap_err();
            assert!(error.ends_with("from 1ms to 24h"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_size_is_exact_and_not_nothing() {
        for (text, bytes) in [
            ("1", 1),
            ("64MiB", 64 << 20),
            ("8KiB", 8 << 10),
            ("4GiB", 4 << 30),
            ("9007199254740993", 9_007_199_254_740_993),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "0", "MiB", "1XB", "99999999999GiB", "-1"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

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
