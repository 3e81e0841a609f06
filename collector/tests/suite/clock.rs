//! A clock that jumps, by days, forwards and back.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Running, program, wait_until};
use crate::rhythm::{beats_are_polls_or_counted, polls, start};

/// A wall clock that can be set for one process: a library that is loaded before the C library's.
struct Clock {
    directory: TempDir,
    offset: File,
}

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void begin(void) {
    offset = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY), 0);
}
int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    if (result == 0 && id == CLOCK_REALTIME && offset)
        time->tv_sec += *offset;
    return result;
}
"#;

impl Clock {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("clock.c"), SHIM).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([path("clock.so"), path("clock.c")])
            .status()
            .unwrap();
        assert!(compiled.success());
        let offset = File::create(path("offset")).unwrap();
        let clock = Self { directory, offset };
        clock.set(0);
        clock
    }

    /// Sets it by so many seconds beside the real one.
    fn set(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    fn program(&self) -> Command {
        let path = |name: &str| -> PathBuf { self.directory.path().join(name) };
        let mut command = program();
        command
            .env("LD_PRELOAD", path("clock.so"))
            .env("CLOCK_OFFSET", path("offset"));
        command
    }
}

/// Seconds by which the last of the samples is before or after the real time.
fn beside(samples: &[Value]) -> i64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let last = polls(samples).into_values().last().unwrap_or(0);
    last / 1_000_000 - i64::try_from(real.as_secs()).unwrap()
}

const DAY: i64 = 86_400;

/// A queue that holds an hour, for a broker that is not there.
fn with_queue(clock: &Clock, queue: &Path) -> Running {
    let queue = queue.to_str().unwrap();
    let remote = ["--kafka", "127.0.0.1:1", "--queue-dir", queue];
    let more = [&remote[..], &["--queue-age", "1h", "--interval", "20ms"]].concat();
    start(clock.program(), &more)
}

#[test]
fn a_clock_that_jumps_changes_the_times_in_the_samples_and_nothing_else() {
    let _socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (clock, queue) = (Clock::new(), tempfile::tempdir().unwrap());
    let begun = Instant::now();
    let running = with_queue(&clock, queue.path());
    running.wait_for_rows();
    for days in [1, -2, 0, -1] {
        clock.set(days * DAY);
        let about = (days * DAY - DAY / 3)..(days * DAY + DAY / 3);
        wait_until("samples by the new time", || {
            about.contains(&beside(&running.samples()))
        });
    }
    let ended = running.end();
    beats_are_polls_or_counted(&ended, Duration::from_millis(20), begun.elapsed());
    assert_eq!(ended.count("polls_failed"), 0);
    let waiting = accounted(&ended.stats);
    assert_eq!(waiting, ended.count("rows_read"));

    // The files of the queue are a day younger than now.
    let again = with_queue(&clock, queue.path());
    again.wait_for_rows();
    let ended = again.end();
    assert_eq!(ended.stats["sinks"]["kafka"]["rows_recovered"], waiting);
    assert_eq!(
        accounted(&ended.stats),
        waiting + ended.count("rows_read"),
        "{}",
        ended.log
    );
}

/// Rows that wait for Kafka; none has been dropped.
fn accounted(stats: &Value) -> u64 {
    let book = &stats["sinks"]["kafka"];
    for (cause, rows) in book["rows_dropped"].as_object().unwrap() {
        assert_eq!(rows, 0, "{cause}");
    }
    book["rows_spooled"].as_u64().unwrap()
}
