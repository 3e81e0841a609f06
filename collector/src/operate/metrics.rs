//! The counters in Prometheus' text format (version 0.0.4).

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::accounting::{Book, Books, Cause};
use crate::spool::queue::Held;
use crate::stats::Stats;

/// The format's media type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const PREFIX: &str = "springtide_collector_";

/// Upper bounds of the poll duration's buckets, seconds: a poll of 1,000 sockets takes about 2 ms, of 100,000 about 0.2 s.
const BOUNDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// How long polls took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Durations {
    /// Adds one.
    pub(crate) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// What the process costs, from /proc/self.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// User and system time.
    pub cpu: Duration,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub open_fds: u64,
    /// When it was started, since the epoch.
    pub started: Duration,
}

/// All that is shown.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The reader's counters.
    pub stats: Stats,
    /// Where rows went.
    pub books: Books,
    /// What the queue holds, and its limit in bytes, if there is one.
    pub queue: Option<(Held, u64)>,
    /// How long polls took.
    pub durations: Durations,
    /// When the last successful poll ended, since the epoch.
    pub last_success: Option<Duration>,
    /// Time from one poll to the next.
    pub interval: Duration,
    /// Whether /healthz would say 200.
    pub healthy: bool,
    /// What the process costs.
    pub process: Process,
}

impl Snapshot {
    /// One in which everything that can be shown is there.
    fn sample() -> Self {
        let book = Book {
            name: "kafka",
            ..Book::default()
        };
        Self {
            stats: Stats::default(),
            books: Books {
                rows_read: 0,
                sinks: vec![book],
            },
            queue: Some((Held::default(), 0)),
            durations: Durations::default(),
            last_success: Some(Duration::ZERO),
            interval: Duration::ZERO,
            healthy: true,
            process: Process::default(),
        }
    }
}

/// The page with everything that can be shown, for documentation.
pub fn sample_page() -> String {
    page(&Snapshot::sample())
}

/// The page.
pub(crate) fn page(snapshot: &Snapshot) -> String {
    let mut page = Page(String::with_capacity(8 * 1024));
    page.about_itself(snapshot);
    for (name, help, value) in snapshot.stats.each() {
        page.one(&format!("{name}_total"), "counter", help, value);
    }
    page.books(&snapshot.books);
    if let Some((held, limit)) = snapshot.queue {
        page.queue(held, limit);
    }
    page.durations(&snapshot.durations);
    page.process(&snapshot.process);
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        let name = format!("{PREFIX}{name}");
        self.head(&name, kind, help);
        self.value(&name, &[], value);
    }

    fn about_itself(&mut self, snapshot: &Snapshot) {
        let name = format!("{PREFIX}build_info");
        self.head(&name, "gauge", "Always 1; the labels tell what runs.");
        self.value(&name, &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let healthy = u8::from(snapshot.healthy);
        self.one("healthy", "gauge", "1 when /healthz answers 200.", healthy);
        let interval = snapshot.interval.as_secs_f64();
        self.one(
            "poll_interval_seconds",
            "gauge",
            "Time from one poll to the next.",
            interval,
        );
        if let Some(last) = snapshot.last_success {
            let help = "When the last successful poll ended, since the epoch.";
            self.one(
                "last_successful_poll_timestamp_seconds",
                "gauge",
                help,
                last.as_secs_f64(),
            );
        }
    }

    fn books(&mut self, books: &Books) {
        let help = "Rows read from the kernel and handed to the sinks. For each sink this and rows_recovered_total are \
                    the sum of rows_delivered_total, rows_spooled and rows_dropped_total.";
        self.one("rows_read_total", "counter", help, books.rows_read);
        if books.sinks.is_empty() {
            return;
        }
        let help = "Rows that an earlier run left in the queue.";
        self.column(("rows_recovered_total", "counter", help), books, |book| {
            book.rows_recovered
        });
        let help = "Rows that the sink took.";
        self.column(("rows_delivered_total", "counter", help), books, |book| {
            book.rows_delivered
        });
        let help = "Rows that wait for the sink.";
        self.column(("rows_spooled", "gauge", help), books, |book| {
            book.rows_spooled
        });
        let name = format!("{PREFIX}rows_dropped_total");
        self.head(
            &name,
            "counter",
            "Rows that will never reach the sink, by cause.",
        );
        for book in &books.sinks {
            for cause in Cause::ALL {
                let dropped = book.rows_dropped[cause as usize];
                self.value(
                    &name,
                    &[("sink", book.name), ("cause", cause.name())],
                    dropped,
                );
            }
        }
    }

    fn column(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        books: &Books,
        column: impl Fn(&Book) -> u64,
    ) {
        let name = format!("{PREFIX}{name}");
        self.head(&name, kind, help);
        for book in &books.sinks {
            self.value(&name, &[("sink", book.name)], column(book));
        }
    }

    fn queue(&mut self, held: Held, limit: u64) {
        let name = format!("{PREFIX}queue_bytes");
        self.head(
            &name,
            "gauge",
            "Bytes that wait in the queue; in memory only while the disk takes nothing.",
        );
        self.value(&name, &[("place", "disk")], held.disk_bytes);
        self.value(&name, &[("place", "memory")], held.memory_bytes);
        self.one(
            "queue_limit_bytes",
            "gauge",
            "Most bytes that the queue may hold on disk.",
            limit,
        );
        let age = held.oldest_ms as f64 / 1e3;
        self.one(
            "queue_oldest_age_seconds",
            "gauge",
            "Age of the oldest record in the queue; 0 when it is empty.",
            age,
        );
    }

    fn durations(&mut self, durations: &Durations) {
        let name = format!("{PREFIX}poll_duration_seconds");
        self.head(&name, "histogram", "How long polls took.");
        let bucket = format!("{name}_bucket");
        for (count, bound) in durations.buckets.iter().zip(BOUNDS) {
            self.value(&bucket, &[("le", &bound.to_string())], count);
        }
        self.value(&bucket, &[("le", "+Inf")], durations.count);
        self.value(&format!("{name}_sum"), &[], durations.sum);
        self.value(&format!("{name}_count"), &[], durations.count);
    }

    /// The names that every Prometheus client library gives these.
    fn process(&mut self, process: &Process) {
        let metrics: [(&str, &str, &str, f64); 4] = [
            (
                "process_cpu_seconds_total",
                "counter",
                "User and system CPU time.",
                process.cpu.as_secs_f64(),
            ),
            (
                "process_resident_memory_bytes",
                "gauge",
                "Resident memory.",
                process.resident_bytes as f64,
            ),
            (
                "process_open_fds",
                "gauge",
                "Open file descriptors.",
                process.open_fds as f64,
            ),
            (
                "process_start_time_seconds",
                "gauge",
                "Start of the process, since the epoch.",
                process.started.as_secs_f64(),
            ),
        ];
        for (name, kind, help, value) in metrics {
            self.head(name, kind, help);
            self.value(name, &[], value);
        }
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
