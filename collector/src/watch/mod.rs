//! For whoever watches the collector: Prometheus' [`metrics`], [`health`], and the service manager's [`notify`].
//!
//! The reader's thread tells the [`Monitor`] of every poll; the threads of [`http`] ask it.

pub mod health;
pub mod http;
pub mod metrics;
pub mod notify;
mod process;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use self::health::{Polls, Progress, Reason};
use self::http::Answer;
use self::metrics::{Durations, Snapshot};
use crate::accounting::Accounting;
use crate::run::wall_clock;
use crate::spool::queue::Gauge;
use crate::stats::Stats;

/// What is known of a running collector.
pub struct Monitor {
    accounting: Arc<Accounting>,
    queue: Option<(Gauge, u64)>,
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
    /// From now on. `queue` comes with its limit, bytes.
    pub fn new(
        accounting: Arc<Accounting>,
        queue: Option<(Gauge, u64)>,
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

    /// A poll has ended, `took` after it began; a failed one with what it said.
    pub fn polled(&self, failure: Option<String>, took: Duration, stats: &Stats) {
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
    pub fn set_interval(&self, interval: Duration) {
        self.lock().polls.interval = interval;
    }

    /// The answer to a request.
    pub fn answer(&self, path: &str) -> Option<Answer> {
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
            queue: self
                .queue
                .as_ref()
                .map(|(gauge, limit)| (gauge.held(), *limit)),
            durations: state.durations.clone(),
            last_success: state.last_success,
            interval: state.polls.interval,
            healthy,
            process: process::read(),
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
        let queue = self
            .queue
            .as_ref()
            .map(|(gauge, limit)| (gauge.held(), *limit));
        let state = self.lock();
        health::reasons(&state.polls, &state.progress, &books, queue, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
