//! Metrics of a running collector, in Prometheus' text format (version 0.0.4).

use std::time::Duration;

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

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

/// Durations of polls.
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

/// Cost of the process, from /proc/self.
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
    /// Contents of the queue, and its limit in bytes, if there is one.
    pub queue: Option<(Held, u64)>,
    /// Durations of polls.
    pub durations: Durations,
    /// When the last successful poll ended, since the epoch.
    pub last_success: Option<Duration>,
    /// Time from one poll to the next.
    pub interval: Duration,
    /// Whether /healthz would answer 200.
    pub healthy: bool,
    /// Cost of the process.
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

/// The page with everything that can be shown, for `metrics`.
pub(crate) fn sample_page() -> String {
    page(&Snapshot::sample())
}

/// The page.
pub(crate) fn page(snapshot: &Snapshot) -> String {
    let mut families = about_itself(snapshot);
    for (name, help, value) in snapshot.stats.each() {
        families.push(counter(&format!("{name}_total"), help, value as f64));
    }
    families.extend(books(&snapshot.books));
    families.extend(
        snapshot
            .queue
            .iter()
            .flat_map(|(held, limit)| queue(*held, *limit)),
    );
    families.push(durations(&snapshot.durations));
    families.extend(process(&snapshot.process));
    match TextEncoder::new().encode_to_string(&families) {
        Ok(page) => page,
        Err(error) => unreachable!("every family has a metric: {error}"),
    }
}

/// One family; its values with their labels.
fn family<'a>(
    name: &str,
    kind: MetricType,
    help: &str,
    values: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
) -> MetricFamily {
    let metrics = values.into_iter().map(|(labels, value)| {
        let mut metric = Metric::from_label(labels.into_iter().map(label).collect());
        if kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    });
    named(name, kind, help, metrics.collect())
}

fn named(name: &str, kind: MetricType, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn label((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn counter(name: &str, help: &str, value: f64) -> MetricFamily {
    let name = format!("{PREFIX}{name}");
    family(&name, MetricType::COUNTER, help, [(Vec::new(), value)])
}

fn gauge(name: &str, help: &str, value: f64) -> MetricFamily {
    let name = format!("{PREFIX}{name}");
    family(&name, MetricType::GAUGE, help, [(Vec::new(), value)])
}

fn about_itself(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    let last = snapshot.last_success.map(|last| {
        let help = "When the last successful poll ended, since the epoch.";
        gauge(
            "last_successful_poll_timestamp_seconds",
            help,
            last.as_secs_f64(),
        )
    });
    let mut families = vec![
        family(
            &format!("{PREFIX}build_info"),
            MetricType::GAUGE,
            "Always 1; the labels show what runs.",
            [(version, 1.0)],
        ),
        gauge(
            "healthy",
            "1 when /healthz answers 200.",
            f64::from(u8::from(snapshot.healthy)),
        ),
        gauge(
            "poll_interval_seconds",
            "Time from one poll to the next.",
            snapshot.interval.as_secs_f64(),
        ),
    ];
    families.extend(last);
    families
}

fn books(books: &Books) -> Vec<MetricFamily> {
    let help = "Rows read from the kernel and handed to the sinks. For each sink this and rows_recovered_total are the \
                sum of rows_delivered_total, rows_spooled and rows_dropped_total.";
    let mut families = vec![counter("rows_read_total", help, books.rows_read as f64)];
    if books.sinks.is_empty() {
        return families;
    }
    let column = |name: &str, kind, help: &str, column: fn(&Book) -> u64| {
        let value = |book: &Book| (vec![("sink", book.name)], column(book) as f64);
        let name = format!("{PREFIX}{name}");
        family(&name, kind, help, books.sinks.iter().map(value))
    };
    let help = "Rows that an earlier run left in the queue.";
    families.push(column(
        "rows_recovered_total",
        MetricType::COUNTER,
        help,
        |book| book.rows_recovered,
    ));
    let help = "Rows that the sink took.";
    families.push(column(
        "rows_delivered_total",
        MetricType::COUNTER,
        help,
        |book| book.rows_delivered,
    ));
    let help = "Rows that wait for the sink.";
    families.push(column("rows_spooled", MetricType::GAUGE, help, |book| {
        book.rows_spooled
    }));
    let dropped = books.sinks.iter().flat_map(|book| {
        Cause::ALL.map(|cause| {
            let labels = vec![("sink", book.name), ("cause", cause.name())];
            (labels, book.rows_dropped[cause as usize] as f64)
        })
    });
    families.push(family(
        &format!("{PREFIX}rows_dropped_total"),
        MetricType::COUNTER,
        "Rows that will never reach the sink, by cause.",
        dropped,
    ));
    families
}

fn queue(held: Held, limit: u64) -> [MetricFamily; 3] {
    let places = [
        (vec![("place", "disk")], held.disk_bytes as f64),
        (vec![("place", "memory")], held.memory_bytes as f64),
    ];
    [
        family(
            &format!("{PREFIX}queue_bytes"),
            MetricType::GAUGE,
            "Bytes that wait in the queue; in memory only while the disk takes nothing.",
            places,
        ),
        gauge(
            "queue_limit_bytes",
            "Most bytes that the queue may hold on disk.",
            limit as f64,
        ),
        gauge(
            "queue_oldest_age_seconds",
            "Age of the oldest record in the queue; 0 when it is empty.",
            held.oldest_ms as f64 / 1e3,
        ),
    ]
}

fn durations(durations: &Durations) -> MetricFamily {
    let mut histogram = Histogram::default();
    let buckets = durations.buckets.iter().zip(BOUNDS).map(|(&count, bound)| {
        let mut bucket = Bucket::default();
        bucket.set_cumulative_count(count);
        bucket.set_upper_bound(bound);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.sum);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    let name = format!("{PREFIX}poll_duration_seconds");
    named(
        &name,
        MetricType::HISTOGRAM,
        "How long polls took.",
        vec![metric],
    )
}

/// The names that every Prometheus client library gives these.
fn process(process: &Process) -> [MetricFamily; 4] {
    let one = |name, kind, help, value| family(name, kind, help, [(Vec::new(), value)]);
    [
        one(
            "process_cpu_seconds_total",
            MetricType::COUNTER,
            "User and system CPU time.",
            process.cpu.as_secs_f64(),
        ),
        one(
            "process_resident_memory_bytes",
            MetricType::GAUGE,
            "Resident memory.",
            process.resident_bytes as f64,
        ),
        one(
            "process_open_fds",
            MetricType::GAUGE,
            "Open file descriptors.",
            process.open_fds as f64,
        ),
        one(
            "process_start_time_seconds",
            MetricType::GAUGE,
            "Start of the process, since the epoch.",
            process.started.as_secs_f64(),
        ),
    ]
}
