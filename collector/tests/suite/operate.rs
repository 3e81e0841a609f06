//! A collector as its operators see it: metrics, health, logs, the service manager, and a configuration that changes.
//!
//! Longer than 400 lines: one collector with its HTTP client and service manager serves all of its tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use crate::common::{LONG, Running, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A collector that runs on a configuration file.
struct Collector {
    directory: TempDir,
    child: Child,
    /// Its standard error, line by line.
    log: Receiver<String>,
}

const CONFIGURATION: &str =
    "host = 'edge-1'\ninterval = '20ms'\nnetns = 'own'\nhttp.listen = '0'\n";

impl Collector {
    fn start(configuration: &str, environment: &[(&str, &Path)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("collector.toml");
        fs::write(&file, configuration).unwrap();
        let mut child = program()
            .args(["run", "--stats", "--config"])
            .arg(&file)
            .arg("--spool-dir")
            .arg(directory.path().join("spool"))
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = lines(child.stderr.take().unwrap());
        Self {
            directory,
            child,
            log,
        }
    }

    /// Waits for a line of its log that contains `what`, and returns it.
    fn wait_for_line(&self, what: &str) -> String {
        let mut before = Vec::new();
        loop {
            match self.log.recv_timeout(LONG) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => before.push(line),
                Err(error) => panic!("'{what}' was not logged ({error}), but {before:#?}"),
            }
        }
    }

    fn address(&self) -> SocketAddr {
        let line = self.wait_for_line("http://");
        let rest = line.split("http://").nth(1).unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    fn reconfigure(&self, configuration: &str) {
        fs::write(self.directory.path().join("collector.toml"), configuration).unwrap();
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it; the counters that it printed last.
    fn stop(mut self) -> Value {
        self.signal(Signal::TERM);
        let last = self.log.iter().last().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{last}");
        serde_json::from_str(&last).unwrap_or_else(|error| panic!("{error}: {last}"))
    }
}

impl Drop for Collector {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stderr: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let _ = sender.send(line.unwrap());
        }
    });
    receiver
}

fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: edge-1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The values on the page by name and labels.
fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let (head, body) = get(address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    let values = body
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
    values.collect()
}

fn promtool() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/promtool");
    let found = [ours, PathBuf::from("/usr/bin/promtool")]
        .into_iter()
        .find(|path| path.exists());
    found.expect("promtool is missing: run tools/get-promtool (tools/setup does)")
}

#[test]
fn metrics_are_what_prometheus_wants_and_agree_with_the_counters_and_each_other() {
    let collector = Collector::start(CONFIGURATION, &[]);
    let address = collector.address();
    let polls = |page: &BTreeMap<String, f64>| page["springtide_collector_polls_total"];
    let mut page = metrics(address);
    while polls(&page) < 3.0 {
        page = metrics(address);
    }

    let mut promtool = Command::new(promtool())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let body = get(address, "/metrics").1;
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(body.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.is_empty(),
        "{printed}\n{body}"
    );

    let page = metrics(address);
    assert_eq!(page["springtide_collector_healthy"], 1.0);
    assert_eq!(page["springtide_collector_poll_interval_seconds"], 0.02);
    assert!(page["springtide_collector_poll_duration_seconds_count"] >= 3.0);
    assert!(page["process_resident_memory_bytes"] > 1e6);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        page[&format!("springtide_collector_build_info{{version=\"{version}\"}}")],
        1.0
    );
    let sink = |name: &str| page[&format!("springtide_collector_{name}{{sink=\"file\"}}")];
    let dropped: f64 = page
        .iter()
        .filter(|(name, _)| {
            name.starts_with("springtide_collector_rows_dropped_total{sink=\"file\",")
        })
        .map(|(_, value)| value)
        .sum();
    let read = page["springtide_collector_rows_read_total"];
    let accounted = sink("rows_delivered_total") + sink("rows_spooled") + dropped;
    assert_eq!(read + sink("rows_recovered_total"), accounted);

    let stats = collector.stop();
    for (counter, value) in stats.as_object().unwrap() {
        let Some(value) = value.as_u64() else {
            continue;
        };
        let shown = page[&format!("springtide_collector_{counter}_total")];
        assert!(
            shown <= value as f64,
            "{counter}: {shown} was shown, {value} at the end"
        );
    }
}

#[test]
fn health_is_reported() {
    let collector = Collector::start(CONFIGURATION, &[]);
    let address = collector.address();
    let (head, body) = get(address, "/healthz");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("application/json"),
        "{head}"
    );
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "ok");
    assert_eq!(body["reasons"].as_array().unwrap().len(), 0);
    assert!(get(address, "/").0.starts_with("HTTP/1.1 404 "));
    collector.stop();
}

#[test]
fn a_reload_changes_what_can_change_and_reports_the_rest() {
    let collector = Collector::start(CONFIGURATION, &[]);
    let address = collector.address();
    let interval = || metrics(address)["springtide_collector_poll_interval_seconds"];
    assert_eq!(interval(), 0.02);

    collector.reconfigure(&CONFIGURATION.replace("20ms", "30ms"));
    assert!(
        collector
            .wait_for_line("read again")
            .contains("in force now: interval\"")
    );
    assert_eq!(interval(), 0.03);

    collector.reconfigure(
        &(CONFIGURATION
            .replace("20ms", "30ms")
            .replace("edge-1", "edge-2")
            + "filter = 'port 1'\n[queue]\nbytes = '2MiB'"),
    );
    // The last key of the top part is before the sections.
    assert!(
        collector
            .wait_for_line("in force now")
            .contains("filter, queue.bytes\"")
    );
    assert!(
        collector
            .wait_for_line("waits for a restart")
            .contains(": host\"")
    );

    collector.reconfigure(&CONFIGURATION.replace("20ms", "30ms"));
    assert!(
        collector
            .wait_for_line("in force now")
            .contains("filter, queue.bytes\"")
    );
    collector.reconfigure(&CONFIGURATION.replace("20ms", "30ms"));
    collector.wait_for_line("nothing has changed");
    collector.stop();
}

#[test]
fn a_filter_takes_effect_at_a_reload() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let collector = Collector::start(CONFIGURATION, &[]);
    let address = collector.address();
    collector.reconfigure(&format!("filter = 'sport {port}'\n{CONFIGURATION}"));
    collector.wait_for_line("in force now: filter");
    let count = |name: &str| metrics(address)[&format!("springtide_collector_{name}_total")];
    // The poll that the reload came after may be counted as of before.
    let settled = count("polls");
    while count("polls") < settled + 1.0 {}
    let (polls, rows) = (count("polls"), count("rows"));
    while count("polls") < polls + 5.0 {}
    let page = metrics(address);
    let grown = page["springtide_collector_rows_total"] - rows;
    let more = page["springtide_collector_polls_total"] - polls;
    // The listener and the accepted socket, each poll; polls between two pages make it a little more or less.
    assert!(
        grown <= 2.0 * (more + 1.0) && grown >= 2.0 * (more - 1.0),
        "{grown} rows in {more} polls"
    );
    drop(client);
    collector.stop();
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_goes_on() {
    let collector = Collector::start(CONFIGURATION, &[]);
    let address = collector.address();
    for (bad, why) in [
        (
            "interval = '0s'\n",
            "line 1: interval: '0s' is not a valid time",
        ),
        (
            "intervall = '1s'\n",
            "line 1: unknown key 'intervall': did you mean 'interval'?",
        ),
        ("host = \n", "line 1: not valid TOML"),
        (
            "queue.dir = 'spool'\nspool.rotate_bytes = ''",
            "line 2: spool.rotate_bytes: '' is not a valid size",
        ),
    ] {
        collector.reconfigure(bad);
        let line = collector.wait_for_line("the configuration stays as it was");
        assert!(line.contains(why), "{line}");
    }
    // Every reload is reported again.
    for _ in 0..3 {
        collector.reconfigure("interval = '0s'\n");
        collector.wait_for_line("line 1: interval: '0s' is not a valid time");
    }
    fs::remove_file(collector.directory.path().join("collector.toml")).unwrap();
    collector.signal(Signal::HUP);
    assert!(
        collector
            .wait_for_line("stays as it was")
            .contains("cannot read the configuration")
    );
    let page = metrics(address);
    assert_eq!(page["springtide_collector_poll_interval_seconds"], 0.02);
    let polls = page["springtide_collector_polls_total"];
    while metrics(address)["springtide_collector_polls_total"] <= polls {}
    collector.stop();
}

#[test]
fn the_service_manager_is_notified_of_every_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut before = Vec::new();
    let mut wait_for = |what: &str| {
        let mut buffer = [0; 256];
        loop {
            let length = socket
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{what}: {error}: {before:?}"));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.starts_with(what) {
                return;
            }
            before.push(text);
        }
    };
    // A watchdog of 40 ms, and polls that are much further apart.
    let configuration = CONFIGURATION.replace("20ms", "1h");
    let environment = [
        ("NOTIFY_SOCKET", path.as_path()),
        ("WATCHDOG_USEC", Path::new("40000")),
    ];
    let collector = Collector::start(&configuration, &environment);
    wait_for("READY=1");
    for _ in 0..5 {
        wait_for("WATCHDOG=1");
    }
    collector.signal(Signal::HUP);
    wait_for("RELOADING=1\nMONOTONIC_USEC=");
    wait_for("READY=1");
    collector.signal(Signal::TERM);
    wait_for("STOPPING=1");
    collector.log.iter().for_each(drop);
}

#[test]
fn messages_come_in_the_form_that_is_wanted() {
    let json = Collector::start(&(CONFIGURATION.to_owned() + "log.format = 'json'\n"), &[]);
    let line: Value = serde_json::from_str(&json.wait_for_line("polling as")).unwrap();
    assert_eq!(line["level"], "info");
    let message = line["msg"].as_str().unwrap();
    assert_eq!(message, "polling as edge-1 every 0.02 s, to file");
    assert!(line["ts"].as_str().unwrap().ends_with('Z'));
    json.stop();

    let logfmt = Collector::start(CONFIGURATION, &[]);
    let line = logfmt.wait_for_line("polling as");
    assert!(
        line.starts_with("ts=2") && line.contains(" level=info msg=\"polling as"),
        "{line}"
    );
    logfmt.stop();

    let without_log = Collector::start(&(CONFIGURATION.to_owned() + "log.level = 'warn'\n"), &[]);
    // It logs nothing, but once its spool exists it receives signals.
    let spool = without_log.directory.path().join("spool");
    while fs::read_dir(&spool).map_or(0, Iterator::count) == 0 {}
    without_log.reconfigure("x = 1");
    let line = without_log.log.recv_timeout(LONG).unwrap();
    assert!(
        line.contains("level=warn msg=\"the configuration stays as it was"),
        "{line}"
    );
    without_log.stop();
}

#[test]
fn an_address_in_use_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let output = program()
        .args([
            "run",
            "--netns",
            "own",
            "--http-listen",
            &address,
            "--spool-dir",
        ])
        .arg(directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains(&format!(
            "--http-listen {address}: cannot listen there: Address already in use"
        )),
        "{stderr}"
    );
}

#[cfg(feature = "clickhouse")]
#[test]
fn repeated_failures_are_reported_once_and_counted() {
    // A port that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let _socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let queue = tempfile::tempdir().unwrap();
    let queue_dir = queue.path().to_str().unwrap();
    let sink = ["--clickhouse", &url, "--queue-dir", queue_dir];
    let arguments = [&sink[..], &["--netns", "own", "--interval", "20ms"]].concat();
    let running = Running::start(program(), &arguments);
    running.wait_for_rows();
    // At its end the sink tries for 4 s more, first after 0.5 s.
    let log = running.end().log;
    let refused: Vec<_> = log
        .lines()
        .filter(|line| line.contains("Connection refused"))
        .collect();
    assert_eq!(refused.len(), 2, "{log}");
    assert!(!refused[0].contains("more like it"), "{log}");
    assert!(
        refused[1].contains(" more like it since the last)"),
        "{log}"
    );
}
