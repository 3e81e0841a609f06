//! State of a running collector: the reader's thread records every poll, those of
//! [`http`](super::http) read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::health::{self, Polls, Progress, Reason};
use super::http::Answer;
use super::metrics::{self, Durations, Snapshot};
use crate::accounting::Accounting;
use crate::operate::run::wall_clock;
use crate::spool::queue::{Gauge, Held};
use crate::stats::Stats;

/// State of a running collector.
pub(crate) struct Monitor {
    accounting: Arc<Accounting>,
    queue: Option<Gauge>,
    state: Mutex<State>,
}

struct State {
    stats: Stats,
    durations: Durations,
    polls: Polls,
    last_success: Option<Duration>,
    progress: Progress,
}

impl Monitor {
    /// From now on.
    pub(crate) fn new(
        accounting: Arc<Accounting>,
        queue: Option<Gauge>,
        interval: Duration,
    ) -> Self {
        let state = State {
            stats: Stats::default(),
            durations: Durations::default(),
            polls: Polls {
                interval,
                last_success: Instant::now(),
                failure: None,
            },
            last_success: None,
            progress: Progress::default(),
        };
        Self {
            accounting,
            queue,
            state: Mutex::new(state),
        }
    }

    /// A poll has ended, `took` after it began; a failed one with its error.
    pub(crate) fn polled(&self, failure: Option<String>, took: Duration, stats: &Stats) {
        let (now, books) = (Instant::now(), self.accounting.snapshot());
        let mut state = self.lock();
        state.stats.clone_from(stats);
        state.durations.add(took);
        if failure.is_none() {
            state.polls.last_success = now;
            state.last_success = Some(wall_clock());
        }
        state.polls.failure = failure;
        state.progress.observe(&books, now);
    }

    /// Polls come at another interval now.
    pub(crate) fn set_interval(&self, interval: Duration) {
        self.lock().polls.interval = interval;
    }

    /// The answer to a request.
    pub(crate) fn answer(&self, path: &str) -> Option<Answer> {
        match path {
            "/metrics" => Some(Answer {
                status: 200,
                content_type: metrics::CONTENT_TYPE,
                body: metrics::page(&self.snapshot()),
            }),
            "/healthz" => Some(self.health()),
            _ => None,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let healthy = self.reasons().is_empty();
        let books = self.accounting.snapshot();
        let state = self.lock();
        Snapshot {
            stats: state.stats.clone(),
            books,
            queue: self.held(),
            durations: state.durations.clone(),
            last_success: state.last_success,
            interval: state.polls.interval,
            healthy,
            process: super::process::read(),
        }
    }

    fn health(&self) -> Answer {
        let reasons = self.reasons();
        let (status, word) = if reasons.is_empty() {
            (200, "ok")
        } else {
            (503, "failing")
        };
        let reasons: Vec<_> = reasons
            .iter()
            .map(|Reason { check, what }| json!({"check": check, "reason": what}))
            .collect();
        Answer {
            status,
            content_type: "application/json",
            body: format!("{}\n", json!({"status": word, "reasons": reasons})),
        }
    }

    fn reasons(&self) -> Vec<Reason> {
        let (now, books) = (Instant::now(), self.accounting.snapshot());
        let state = self.lock();
        health::reasons(&state.polls, &state.progress, &books, self.held(), now)
    }

    /// Contents of the queue, and its limit, bytes.
    fn held(&self) -> Option<(Held, u64)> {
        let gauge = self.queue.as_ref()?;
        Some((gauge.held(), gauge.limits().bytes))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_fail_for_long_make_the_collector_unhealthy_until_one_succeeds() {
        let monitor = Monitor::new(Arc::default(), None, Duration::from_secs(1));
        let health = || {
            let answer = monitor.answer("/healthz").unwrap();
            let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            (answer.status, body)
        };
        assert_eq!(health(), (200, json!({"status": "ok", "reasons": []})));

        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(100)) else {
            panic!("this machine was started less than 100 s ago");
        };
        monitor.lock().polls.last_success = long_ago;
        let refused = Some("refused".to_owned());
        monitor.polled(refused, Duration::ZERO, &Stats::default());
        let reason =
            json!({"check": "polls", "reason": "no poll has succeeded for 100 s: refused"});
        let failing = json!({"status": "failing", "reasons": [reason]});
        assert_eq!(health(), (503, failing));
        let page = monitor.answer("/metrics").unwrap().body;
        assert!(
            page.contains("\nspringtide_collector_healthy 0\n"),
            "{page}"
        );

        monitor.polled(None, Duration::ZERO, &Stats::default());
        assert_eq!(health().0, 200);
    }
}
