//! The last tcp_info of sockets that close.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{Ended, Reports, Running, program};
use rustix::net::sockopt::{socket_cookie, tcp_congestion};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One poll at the start, and none after it.
const ONE_POLL: [&str; 4] = ["--netns", "own", "--interval", "24h"];

struct Connection([TcpStream; 2]);

impl Connection {
    fn new(listener: &TcpListener) -> Self {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Self([client, listener.accept().unwrap().0])
    }

    fn cookies(&self) -> [u64; 2] {
        self.0
            .each_ref()
            .map(|end| socket_cookie(end.as_fd()).unwrap())
    }

    /// Closes without TIME-WAIT, so that ports do not run out: the server leaves a byte unread, which resets the connection.
    /// (SO_LINGER would too, but then the kernel wipes the socket's numbers before it frees it.)
    fn reset(self) {
        let [mut client, server] = self.0;
        client.write_all(&[1]).unwrap();
        drop(server);
    }
}

fn closes(ended: &Ended) -> BTreeMap<u64, &Value> {
    let mut closes = BTreeMap::new();
    for sample in ended.with("kind", "SAMPLE_KIND_CLOSE") {
        let cookie = sample["cookie"].as_u64().unwrap();
        assert!(
            closes.insert(cookie, sample).is_none(),
            "{cookie} has closed twice"
        );
    }
    closes
}

#[test]
fn every_connection_that_closes_leaves_its_last_tcp_info_once() {
    let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
    let early: Vec<_> = listeners.iter().map(Connection::new).collect();
    let running = Running::start(program(), &ONE_POLL);
    running.wait_for_rows();

    let early_cookies: Vec<_> = early.iter().map(Connection::cookies).collect();
    let algorithm = tcp_congestion(&early[0].0[0]).unwrap();
    early.into_iter().for_each(Connection::reset);
    // About two thousand connections, 4,000 sockets, a second: more than a collector without privileges could leave lying
    // in the kernel's smallest buffer for half of one.
    let (mut reports, mut late_cookies, start) = (Reports::listen(), Vec::new(), Instant::now());
    for number in 0..6_000_u32 {
        let connection = Connection::new(&listeners[number as usize % 2]);
        late_cookies.push(connection.cookies());
        connection.reset();
        reports.read();
        let due = Duration::from_micros(500) * number;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    let [first, second] = listeners;
    let unconnected = [first, second, TcpListener::bind("127.0.0.1:0").unwrap()];
    let cookies = unconnected
        .each_ref()
        .map(|listener| socket_cookie(listener.as_fd()).unwrap());
    drop(unconnected);
    reports.wait_for(&cookies);
    reports.wait_for(late_cookies.as_flattened());

    let ended = running.end();
    let closes = closes(&ended);
    assert_eq!(ended.count("close_overruns"), 0);
    assert!(
        ended.count("close_events_unconnected") >= 3,
        "the listeners"
    );
    let poll = ended.with("kind", "SAMPLE_KIND_POLL")[0]["poll_sequence"].clone();
    let missing = late_cookies
        .iter()
        .flatten()
        .filter(|cookie| !closes.contains_key(cookie))
        .count();
    assert_eq!(missing, 0, "of {} sockets", 2 * late_cookies.len());
    for cookie in early_cookies.iter().chain(&late_cookies).flatten() {
        let close = closes[cookie];
        assert_eq!(close["poll_sequence"], poll);
        assert_eq!(close["state"], "TCP_STATE_CLOSE");
        assert!(close["tcp_info_length"].as_u64().unwrap() >= 224);
        assert!(close["segs_in"].as_u64().unwrap() >= 1, "{close}");
    }
    // Known from a poll, or not at all.
    for cookie in early_cookies.iter().flatten() {
        assert_eq!(closes[cookie]["congestion_algorithm"], algorithm);
    }
    for cookie in late_cookies.iter().flatten() {
        assert_eq!(closes[cookie]["congestion_algorithm"], Value::Null);
    }
}

#[test]
fn filter_and_sample_hold_for_closing_sockets_too() {
    let wanted = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = Connection::new(&wanted);
    let port = wanted.local_addr().unwrap().port();
    let filter = format!("sport {port}");
    let arguments = [&ONE_POLL[..], &["--filter", &filter, "--sample", "3"]].concat();
    let mut all = Vec::new();
    let mut polled: Vec<_> = (0..200).map(|_| Connection::new(&wanted)).collect();
    polled.push(held);
    let running = Running::start(program(), &arguments);
    running.wait_for_rows();
    let mut reports = Reports::listen();
    for connection in polled {
        all.push(connection.cookies());
        connection.reset();
    }
    for _ in 0..200 {
        let connection = Connection::new(&other);
        all.push(connection.cookies());
        connection.reset();
    }
    reports.wait_for(all.as_flattened());
    let ended = running.end();
    let cookies = |kind: &str| {
        let mut cookies: Vec<_> = ended
            .with("kind", kind)
            .iter()
            .filter(|sample| sample["state"] != "TCP_STATE_LISTEN")
            .inspect(|sample| {
                assert_eq!(sample["src_port"], port);
                assert_eq!(sample["sample_weight"], 3);
            })
            .map(|sample| sample["cookie"].as_u64().unwrap())
            .collect();
        cookies.sort_unstable();
        cookies
    };
    let polls = cookies("SAMPLE_KIND_POLL");
    assert_eq!(polls, cookies("SAMPLE_KIND_CLOSE"));
    // A third of 201 is outside with odds of 2e-9.
    assert!((30..110).contains(&polls.len()), "{} of 201", polls.len());
    // The servers' ends match the filter: the second of each pair.
    assert!(
        polls
            .iter()
            .all(|cookie| all.iter().any(|pair| pair[1] == *cookie))
    );
    assert!(ended.count("close_events_filtered") >= 400);
}

#[test]
fn closes_can_be_left_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = Connection::new(&listener);
    let running = Running::start(program(), &[&ONE_POLL[..], &["--no-closes"]].concat());
    running.wait_for_rows();
    connection.reset();
    std::thread::sleep(Duration::from_millis(50));
    let ended = running.end();
    assert!(ended.with("kind", "SAMPLE_KIND_CLOSE").is_empty());
    assert_eq!(ended.count("close_events"), 0);
}

#[test]
fn events_that_the_kernel_drops_are_counted_and_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _held = Connection::new(&listener);
    // The kernel's smallest buffer: it holds one or two events.
    let arguments = [&ONE_POLL[..], &["--close-buffer", "1"]].concat();
    let running = Running::start(program(), &arguments);
    running.wait_for_rows();
    let connections: Vec<_> = (0..500).map(|_| Connection::new(&listener)).collect();
    let pid = Pid::from_raw(running.pid().cast_signed()).unwrap();
    // It reads none of them before all have come.
    kill_process(pid, Signal::STOP).unwrap();
    let cookies: Vec<_> = connections.iter().map(Connection::cookies).collect();
    let mut reports = Reports::listen();
    connections.into_iter().for_each(Connection::reset);
    reports.wait_for(cookies.as_flattened());
    kill_process(pid, Signal::CONT).unwrap();
    let ended = running.end();
    assert!(ended.count("close_overruns") > 0);
    assert!(
        ended.log.contains("close events were lost"),
        "{}",
        ended.log
    );
    assert_eq!(ended.log.matches("close events were lost").count(), 1);
}
