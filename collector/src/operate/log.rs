//! What the collector says on standard error while it runs: one line a message, in the form that its reader wants.

use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::json;

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    /// The collector ends for it
    Error,
    /// Something is lost, late or refused
    Warn,
    /// What an operator wants to know of a healthy collector
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

/// Writes messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    format: LogFormat,
    level: Level,
    journal: bool,
}

impl Log {
    /// Says what matters at least as much as `level`.
    pub(crate) fn new(format: LogFormat, level: Level) -> Self {
        let format = match format {
            LogFormat::Auto if io::stderr().is_terminal() => LogFormat::Plain,
            LogFormat::Auto => LogFormat::Logfmt,
            format => format,
        };
        Self {
            format,
            level,
            journal: goes_to_journal(),
        }
    }

    /// Says it.
    pub(crate) fn say(&self, level: Level, message: &str) {
        if level > self.level {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = line(
            self.format,
            self.journal,
            level,
            message,
            since.unwrap_or_default(),
        );
        // Standard error may be closed: then nobody listens.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// Whether standard error is the journal's, which has times and levels of its own (systemd.exec(5), JOURNAL_STREAM).
fn goes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(meta) = std::fs::metadata("/proc/self/fd/2") else {
        return false;
    };
    stream == format!("{}:{}", meta.dev(), meta.ino())
}

/// The whole line, written at once so that lines of several threads do not mix.
fn line(format: LogFormat, journal: bool, level: Level, message: &str, now: Duration) -> String {
    let message = message.replace('\n', " ");
    let (name, priority) = match level {
        Level::Error => ("error", 3),
        Level::Warn => ("warn", 4),
        Level::Info => ("info", 6),
    };
    match format {
        LogFormat::Plain => format!("springtide-collector: {message}\n"),
        LogFormat::Json => {
            let object = json!({"ts": timestamp(now), "level": name, "msg": message});
            format!("{object}\n")
        }
        LogFormat::Auto | LogFormat::Logfmt if journal => {
            format!("<{priority}>level={name} msg={}\n", quoted(&message))
        }
        LogFormat::Auto | LogFormat::Logfmt => {
            format!(
                "ts={} level={name} msg={}\n",
                timestamp(now),
                quoted(&message)
            )
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// RFC 3339 in UTC, with milliseconds. Days to a date as in Howard Hinnant's `civil_from_days`: years that begin in March
/// have their leap day last.
fn timestamp(now: Duration) -> String {
    let (days, second) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let millis = now.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_704_067_199_001, "2023-12-31T23:59:59.001Z"),
            (1_767_322_800_123, "2026-01-02T03:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn every_form_is_one_line_that_its_readers_can_read() {
        let shown = |format, journal| {
            line(
                format,
                journal,
                Level::Warn,
                "no \"answer\"\nfrom C:\\x",
                Duration::ZERO,
            )
        };
        assert_eq!(
            shown(LogFormat::Plain, true),
            "springtide-collector: no \"answer\" from C:\\x\n"
        );
        assert_eq!(
            shown(LogFormat::Logfmt, false),
            "ts=1970-01-01T00:00:00.000Z level=warn msg=\"no \\\"answer\\\" from C:\\\\x\"\n"
        );
        assert_eq!(
            shown(LogFormat::Logfmt, true),
            "<4>level=warn msg=\"no \\\"answer\\\" from C:\\\\x\"\n"
        );
        let object: serde_json::Value =
            serde_json::from_str(&shown(LogFormat::Json, true)).unwrap();
        assert_eq!(
            object,
            json!({"ts": "1970-01-01T00:00:00.000Z", "level": "warn", "msg": "no \"answer\" from C:\\x"})
        );
    }
}
