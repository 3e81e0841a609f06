//! Whether the collector does its work: polls succeed, and each sink makes progress or the queue has room for it.

use std::time::{Duration, Instant};

use crate::accounting::{Book, Books};
use crate::spool::queue::Held;

/// Polls may fail this long before it matters, or for three intervals, whichever is longer.
const POLL_GRACE: Duration = Duration::from_secs(10);

/// A sink may take nothing this long before it matters: a broker's restart takes less.
const SINK_GRACE: Duration = Duration::from_secs(60);

/// Above this part of its limit the queue is full: whole segments, an eighth of it at most, are dropped to make room.
const FULL: f64 = 0.85;

/// Why the collector does not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// Subject of the check: `polls`, or the sink's name.
    pub check: String,
    /// The fault.
    pub what: String,
}

/// When polls last succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Polls {
    /// From one to the next.
    pub interval: Duration,
    /// The last that succeeded; before the first, the start.
    pub last_success: Instant,
    /// The error of the last one that failed since then.
    pub failure: Option<String>,
}

/// Progress of each sink, and since when it has made none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    sinks: Vec<(Book, Instant)>,
}

impl Progress {
    /// Looks at the books as they are at `now`.
    pub(crate) fn observe(&mut self, books: &Books, now: Instant) {
        self.sinks
            .resize_with(books.sinks.len(), || (Book::default(), now));
        for ((before, since), book) in self.sinks.iter_mut().zip(&books.sinks) {
            let wants_nothing = book.rows_spooled == 0 && book.dropped() == before.dropped();
            if book.rows_delivered != before.rows_delivered
                || before.name.is_empty()
                || wants_nothing
            {
                (*before, *since) = (book.clone(), now);
            }
        }
    }

    /// Sinks that have taken nothing for too long, with the time and whether they have lost rows since.
    fn stuck(
        &self,
        books: &Books,
        now: Instant,
    ) -> impl Iterator<Item = (&'static str, Duration, bool)> {
        self.sinks
            .iter()
            .zip(&books.sinks)
            .filter_map(move |((before, since), book)| {
                let idle = now.saturating_duration_since(*since);
                let moved = book.rows_delivered != before.rows_delivered;
                let lost = book.dropped() > before.dropped();
                (idle > SINK_GRACE && !moved && (lost || book.rows_spooled > 0))
                    .then_some((book.name, idle, lost))
            })
    }
}

/// All that is wrong; nothing when the collector is healthy.
pub(crate) fn reasons(
    polls: &Polls,
    progress: &Progress,
    books: &Books,
    queue: Option<(Held, u64)>,
    now: Instant,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let silent = now.saturating_duration_since(polls.last_success);
    if silent > POLL_GRACE.max(3 * polls.interval) {
        let why = polls.failure.as_ref().map(|failure| format!(": {failure}"));
        let what = format!(
            "no poll has succeeded for {} s{}",
            silent.as_secs(),
            why.unwrap_or_default()
        );
        reasons.push(Reason {
            check: "polls".to_owned(),
            what,
        });
    }
    let room = queue.is_none_or(|(held, limit)| {
        (held.disk_bytes as f64) < FULL * limit as f64 && held.memory_bytes == 0
    });
    for (name, idle, lost) in progress.stuck(books, now) {
        if lost || !room {
            let consequence = if lost {
                "rows are lost"
            } else {
                "the queue has no room"
            };
            reasons.push(Reason {
                check: name.to_owned(),
                what: format!(
                    "has taken nothing for {} s, and {consequence}",
                    idle.as_secs()
                ),
            });
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn books(delivered: u64, spooled: u64, dropped: u64) -> Books {
        let book = Book {
            name: "kafka",
            rows_delivered: delivered,
            rows_spooled: spooled,
            rows_dropped: [dropped, 0, 0, 0, 0],
            ..Book::default()
        };
        Books {
            rows_read: delivered + spooled + dropped,
            sinks: vec![book],
        }
    }

    fn held(disk_bytes: u64, memory_bytes: u64) -> Option<(Held, u64)> {
        let held = Held {
            disk_bytes,
            memory_bytes,
            oldest_ms: 0,
        };
        Some((held, 1000))
    }

    fn polls(last_success: Instant) -> Polls {
        Polls {
            interval: SECOND,
            last_success,
            failure: Some("refused".to_owned()),
        }
    }

    #[test]
    fn polls_that_fail_for_long_are_reported_with_their_error() {
        let start = Instant::now();
        let reasons = |interval, after| {
            let polls = Polls {
                interval,
                ..polls(start)
            };
            reasons(
                &polls,
                &Progress::default(),
                &Books::default(),
                None,
                start + after,
            )
        };
        assert_eq!(reasons(SECOND, 10 * SECOND), []);
        assert_eq!(
            reasons(SECOND, 11 * SECOND)[0].what,
            "no poll has succeeded for 11 s: refused"
        );
        assert_eq!(reasons(60 * SECOND, 180 * SECOND), []);
        assert_eq!(reasons(60 * SECOND, 181 * SECOND)[0].check, "polls");
    }

    /// The reasons after `later` for a sink whose books went from the first to the second right after the start.
    fn after(
        first: &Books,
        second: &Books,
        queue: Option<(Held, u64)>,
        later: Duration,
    ) -> Vec<String> {
        let start = Instant::now();
        let mut progress = Progress::default();
        progress.observe(first, start);
        progress.observe(second, start + SECOND);
        let now = start + SECOND + later;
        let reasons = reasons(&polls(now), &progress, second, queue, now);
        reasons
            .into_iter()
            .map(|reason| format!("{} {}", reason.check, reason.what))
            .collect()
    }

    #[test]
    fn a_stalled_sink_matters_when_the_queue_is_full_or_rows_are_lost() {
        let (before, waiting) = (books(5, 1, 0), books(5, 9, 0));
        let full = ["kafka has taken nothing for 62 s, and the queue has no room"];
        let lost = ["kafka has taken nothing for 62 s, and rows are lost"];
        let later = 61 * SECOND;
        assert!(
            after(&before, &waiting, held(500, 0), later).is_empty(),
            "there is room"
        );
        assert_eq!(after(&before, &waiting, held(900, 0), later), full);
        assert_eq!(
            after(&before, &waiting, held(0, 1), later),
            full,
            "the disk takes nothing"
        );
        assert_eq!(after(&before, &books(5, 1, 8), held(500, 0), later), lost);
        assert!(
            after(&before, &waiting, held(900, 0), 59 * SECOND).is_empty(),
            "not for long"
        );
        assert!(
            after(&before, &books(6, 8, 0), held(900, 0), 60 * SECOND).is_empty(),
            "it moves"
        );
        assert!(
            after(&books(5, 0, 3), &books(5, 0, 3), held(900, 0), later).is_empty(),
            "nothing to take"
        );
        assert_eq!(
            after(&books(5, 0, 3), &books(5, 0, 4), None, later),
            lost,
            "without a queue"
        );
    }
}
