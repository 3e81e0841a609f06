//! Instants as bundles write them: `2026-01-02T03:05:00Z`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since the epoch; None for anything but what [`show`] writes: fractions and leap seconds are RFC 3339 as well.
pub fn parse(text: &str) -> Option<i64> {
    let moment = humantime::parse_rfc3339(text).ok()?;
    let seconds = i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    (show(seconds) == text).then_some(seconds)
}

/// Writes what [`parse`] reads. A time outside of the years that can be written becomes the nearest one.
pub fn show(seconds: i64) -> String {
    const LAST: u64 = 253_402_300_799; // 9999-12-31T23:59:59Z
    let since = u64::try_from(seconds).unwrap_or(0).min(LAST);
    let moment: SystemTime = UNIX_EPOCH + Duration::from_secs(since);
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// Serialization of seconds since the epoch as the text that [`show`] writes.
pub mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// # Errors
    ///
    /// A text that is no instant.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        let text = String::deserialize(from)?;
        super::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "'{text}' is not an instant like 2026-01-02T03:05:00Z"
            ))
        })
    }

    /// # Errors
    ///
    /// Those of the writer.
    pub fn serialize<S: Serializer>(seconds: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::show(*seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn only_what_is_written_is_read() {
        assert_eq!(parse("2026-01-02T03:05:00Z"), Some(1_767_323_100));
        assert_eq!(show(1_767_323_100), "2026-01-02T03:05:00Z");
        for text in [
            "2026-01-02T03:05:60Z",
            "2026-01-02T03:05:00.5Z",
            "2026-01-02T03:05:00z",
            "2026-01-02t03:05:00Z",
            "2026-01-02 03:05:00Z",
            "2026-02-30T03:05:00Z",
            "1969-12-31T23:59:59Z",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
