//! Messages of the collector on standard error while it runs: events of `tracing`, one line each,
//! in the form that its reader wants.

use std::fmt;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::watching::{LogFormat, LogLevel};

/// Writes events that matter at least as much as `level` from now on.
pub(crate) fn install(format: LogFormat, level: LogLevel) {
    let format = match format {
        LogFormat::Auto if io::stderr().is_terminal() => LogFormat::Plain,
        LogFormat::Auto => LogFormat::Logfmt,
        format => format,
    };
    let lines = Lines {
        format,
        journal: goes_to_journal(),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(match level {
            LogLevel::Error => Level::ERROR,
            LogLevel::Warn => Level::WARN,
            LogLevel::Info => Level::INFO,
        })
        .with_writer(io::stderr)
        // Standard error may be closed: then nobody reads it.
        .log_internal_errors(false)
        .event_format(lines)
        .finish();
    // There is one already when a test has made it.
    let _ = tracing::subscriber::set_global_default(subscriber);
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

/// The form of a line; the subscriber writes each at once, so that lines of several threads do not mix.
struct Lines {
    format: LogFormat,
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let level = *event.metadata().level();
        writer.write_str(&self.line(level, &message.0, SystemTime::now()))
    }
}

impl Lines {
    /// The whole line.
    fn line(&self, level: Level, message: &str, now: SystemTime) -> String {
        let message = message.replace('\n', " ");
        // RFC 3339 in UTC; a clock before 1970 shows that year.
        let time = humantime::format_rfc3339_millis(now.max(SystemTime::UNIX_EPOCH));
        let (name, priority) = match level {
            Level::ERROR => ("error", 3),
            Level::WARN => ("warn", 4),
            _ => ("info", 6),
        };
        match self.format {
            LogFormat::Plain => format!("springtide-collector: {message}\n"),
            LogFormat::Json => {
                let object = json!({"ts": time.to_string(), "level": name, "msg": message});
                format!("{object}\n")
            }
            LogFormat::Auto | LogFormat::Logfmt if self.journal => {
                format!("<{priority}>level={name} msg={}\n", quoted(&message))
            }
            LogFormat::Auto | LogFormat::Logfmt => {
                format!("ts={time} level={name} msg={}\n", quoted(&message))
            }
        }
    }
}

/// An event's text.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_form_is_one_line_that_its_readers_can_read() {
        let message = "no \"answer\"\nfrom C:\\x";
        let shown = |format, journal| {
            Lines { format, journal }.line(Level::WARN, message, SystemTime::UNIX_EPOCH)
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

    #[test]
    fn times_are_those_of_date() {
        let lines = Lines {
            format: LogFormat::Logfmt,
            journal: false,
        };
        for (ms, text) in [
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_322_800_123, "2026-01-02T03:00:00.123Z"),
        ] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
            let line = lines.line(Level::INFO, "x", now);
            assert!(
                line.starts_with(&format!("ts={text} level=info ")),
                "{line}"
            );
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert!(
            lines
                .line(Level::INFO, "x", before)
                .starts_with("ts=1970-01-01T")
        );
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn events_become_lines_and_those_below_the_level_do_not() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::WARN)
            .with_writer(move || writer.clone())
            .event_format(Lines {
                format: LogFormat::Plain,
                journal: false,
            })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("{} rows {}", 3, "{lost}");
            tracing::info!("polling");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "springtide-collector: 3 rows {lost}\n");
    }
}
