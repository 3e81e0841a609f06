//! Messages that do not repeat themselves: the first complaint is written at once, its likes are counted and written at an interval
//! that grows.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

/// First and longest time for which a complaint is not repeated; each is twice the one before.
const INTERVAL: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// Kinds of complaint that are remembered. There are a few dozen; what embeds a name of its own starts over.
const KINDS: usize = 256;

/// Where messages go, shared by all threads.
pub(crate) struct Reporter {
    write: Box<Write>,
    known: Mutex<HashMap<String, Complaint>>,
}

type Write = dyn Fn(Level, &str) + Send + Sync;

/// A complaint that was written.
struct Complaint {
    text: String,
    at: Instant,
    seen: Instant,
    wait: Duration,
    unwritten: u64,
}

impl Reporter {
    /// Makes an event of each message.
    pub(crate) fn to_log() -> Self {
        Self::new(|level, text| match level {
            Level::WARN => tracing::warn!("{text}"),
            _ => tracing::info!("{text}"),
        })
    }

    /// Gives each message to `write`, one line at a time.
    pub(crate) fn new(write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self {
            write: Box::new(write),
            known: Mutex::default(),
        }
    }

    /// Complains, unless a complaint that differs in numbers only was written a short time ago.
    pub(crate) fn complain(&self, what: impl Display) {
        let text = what.to_string().replace('\n', " ");
        let now = Instant::now();
        // Written under the lock, so that lines keep their order.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = line(&mut known, &text, now) {
            (self.write)(Level::WARN, &line);
        }
    }

    /// Refuses what an operator has requested: written each time.
    pub(crate) fn refuse(&self, what: impl Display) {
        (self.write)(Level::WARN, &what.to_string());
    }

    /// Writes what an operator has requested or waits for.
    pub(crate) fn inform(&self, what: impl Display) {
        (self.write)(Level::INFO, &what.to_string());
    }

    /// Writes how often complaints were not repeated. Nothing will follow.
    pub(crate) fn finish(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unwritten: Vec<_> = known
            .drain()
            .filter(|(_, known)| known.unwritten > 0)
            .collect();
        unwritten.sort_by_key(|(_, known)| known.at);
        for (
            _,
            Complaint {
                text, unwritten, ..
            },
        ) in unwritten
        {
            (self.write)(Level::WARN, &repeated(&text, unwritten));
        }
    }
}

/// The line for `text`, if there is one.
fn line(known: &mut HashMap<String, Complaint>, text: &str, now: Instant) -> Option<String> {
    let kind = kind(text);
    if let Some(before) = known.get_mut(&kind) {
        let calm = now.duration_since(before.seen) >= INTERVAL[1];
        before.seen = now;
        if now.duration_since(before.at) < before.wait {
            before.unwritten += 1;
            text.clone_into(&mut before.text);
            return None;
        }
        // After a calm it is news.
        before.wait = if calm {
            INTERVAL[0]
        } else {
            INTERVAL[1].min(2 * before.wait)
        };
        before.at = now;
        return Some(repeated(text, std::mem::take(&mut before.unwritten)));
    }
    if known.len() >= KINDS {
        known.clear();
    }
    let first = Complaint {
        text: text.to_owned(),
        at: now,
        seen: now,
        wait: INTERVAL[0],
        unwritten: 0,
    };
    known.insert(kind, first);
    Some(text.to_owned())
}

fn repeated(text: &str, unwritten: u64) -> String {
    match unwritten {
        0 => text.to_owned(),
        _ => format!("{text} ({unwritten} more like it since the last)"),
    }
}

/// The text without its numbers.
fn kind(text: &str) -> String {
    let mut kind = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            kind.push(c);
        } else if !kind.ends_with('#') {
            kind.push('#');
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_written_and_its_likes_are_counted() {
        let (mut known, start) = (HashMap::new(), Instant::now());
        let mut at = |seconds, text| line(&mut known, text, start + Duration::from_secs(seconds));
        assert_eq!(
            at(0, "no answer after 10 ms").as_deref(),
            Some("no answer after 10 ms")
        );
        assert_eq!(at(1, "no answer after 200 ms"), None);
        assert_eq!(at(2, "no answer after 3 ms"), None);
        assert_eq!(at(3, "refused").as_deref(), Some("refused"));
        let later = at(61, "no answer after 9 ms").unwrap();
        assert_eq!(
            later,
            "no answer after 9 ms (2 more like it since the last)"
        );
    }

    #[test]
    fn repetitions_become_rarer_until_there_is_a_calm() {
        let (mut known, start) = (HashMap::new(), Instant::now());
        let mut at = |minute: u64| {
            line(
                &mut known,
                "refused",
                start + Duration::from_secs(60 * minute),
            )
            .is_some()
        };
        let written: Vec<_> = (0..600_u64).filter(|&minute| at(minute)).collect();
        assert_eq!(written[..8], [0, 1, 3, 7, 15, 31, 63, 123]);
        assert!(written[7..].windows(2).all(|pair| pair[1] - pair[0] == 60));
        assert!(at(1000), "after a calm");
        assert!(!at(1000) && at(1001), "it is news again");
    }

    #[test]
    fn what_was_not_repeated_is_written_at_the_end() {
        let lines = std::sync::Arc::new(Mutex::new(Vec::new()));
        let written = lines.clone();
        let reporter = Reporter::new(move |level, text| {
            written.lock().unwrap().push((level, text.to_owned()))
        });
        for number in 1..=3 {
            reporter.complain(format!("lost {number} rows"));
        }
        reporter.inform("done");
        reporter.complain("once");
        reporter.finish();
        let expected = [
            (Level::WARN, "lost 1 rows"),
            (Level::INFO, "done"),
            (Level::WARN, "once"),
            (Level::WARN, "lost 3 rows (2 more like it since the last)"),
        ];
        assert_eq!(
            *lines.lock().unwrap(),
            expected.map(|(level, text)| (level, text.to_owned()))
        );
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut known = HashMap::new();
        for number in 0..10_000_u32 {
            let name: String = number
                .to_string()
                .bytes()
                .map(|b| char::from(b + 49))
                .collect();
            assert!(line(&mut known, &name, Instant::now()).is_some());
        }
        assert!(known.len() <= KINDS);
    }
}
