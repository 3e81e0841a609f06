//! What is read and how much of it: filters against the real kernel, samples, changes, attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{Running, collector, json_lines, program};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::net::sockopt::socket_cookie;
use serde_json::Value;
use springtide_collector::kernel::dump::{
    Attributes, BUFFER, DumpError, DumpSocket, Method, Progress, Request, Taker,
};
use springtide_collector::kernel::filter::Filter;
use springtide_collector::kernel::inet_diag::SocketView;
use springtide_collector::stats::Stats;

/// Every state of a socket that has a tcp_info.
const STATES: u32 = 0xfbe;

/// Cookies of a dump, and whether a filter evaluated here matches each.
struct Gathered<'a> {
    filter: Option<&'a Filter>,
    cookies: BTreeMap<u64, bool>,
}

impl Taker for Gathered<'_> {
    type Error = ();

    fn expect(&mut self, _: u64) {}

    fn take(&mut self, view: &SocketView<'_>, _: &mut Stats) -> Result<(), ()> {
        let matches = self.filter.is_none_or(|filter| filter.matches(view));
        self.cookies.insert(view.cookie(), matches);
        Ok(())
    }
}

fn dump(method: Method, bytecode: &[u8], filter: Option<&Filter>) -> BTreeMap<u64, bool> {
    let mut socket = DumpSocket::open().unwrap();
    let mut buffer = Box::new([0; BUFFER]);
    let mut gathered = Gathered {
        filter,
        cookies: BTreeMap::new(),
    };
    for &family in method.walks() {
        let request = Request {
            states: STATES,
            attributes: Attributes::MINIMAL,
            bytecode,
        };
        socket.ask::<()>(family, &request).unwrap();
        loop {
            let received = socket.receive(&mut buffer, &mut Stats::default(), &mut gathered);
            match received {
                Ok(Progress::More) => {}
                Ok(_) => break,
                Err(DumpError::Consumer(())) => unreachable!(),
                Err(error) => panic!("{}", error.is_unknown_request()),
            }
        }
    }
    gathered.cookies
}

/// Listeners and connections at many addresses, and what their filters may speak of.
struct World {
    _listeners: Vec<TcpListener>,
    _connections: Vec<(TcpStream, TcpStream)>,
    cookies: BTreeSet<u64>,
    ports: Vec<u16>,
}

fn world() -> World {
    let (mut listeners, mut connections, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for (listen, connect) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("127.1.2.3:0", "127.1.2.3"),
        ("127.200.0.1:0", "127.200.0.1"),
        ("[::1]:0", "::1"),
        // IPv6 sockets with mapped addresses, for connections that are IPv4 at their other end.
        ("[::]:0", "127.9.9.9"),
    ] {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        for _ in 0..4 {
            let client = TcpStream::connect((connect, port)).unwrap();
            let (server, peer) = listener.accept().unwrap();
            ports.extend([port, peer.port()]);
            connections.push((client, server));
        }
        listeners.push(listener);
    }
    let cookie = |socket: &dyn Fn() -> u64| socket();
    let mut cookies = BTreeSet::new();
    for listener in &listeners {
        cookies.insert(cookie(&|| socket_cookie(listener.as_fd()).unwrap()));
    }
    for (client, server) in &connections {
        cookies.insert(socket_cookie(client.as_fd()).unwrap());
        cookies.insert(socket_cookie(server.as_fd()).unwrap());
    }
    World {
        _listeners: listeners,
        _connections: connections,
        cookies,
        ports,
    }
}

fn expressions(ports: Vec<u16>) -> impl Strategy<Value = String> {
    let port = prop_oneof![prop::sample::select(ports), any::<u16>()];
    let prefixes = [
        "127.0.0.0/8",
        "127.0.0.1",
        "127.1.0.0/16",
        "127.128.0.0/9",
        "0.0.0.0/0",
        "10.0.0.0/8",
        "::/0",
        "::1",
        "::ffff:0:0/96",
        "::ffff:127.0.0.0/104",
        "fe80::/10",
    ];
    let leaf = prop_oneof![
        (
            prop::sample::select(vec!["sport", "dport", "port"]),
            port.clone(),
            port
        )
            .prop_map(|(what, a, b)| format!("{what} {}-{},{b}", a.min(b), a.max(b))),
        (
            prop::sample::select(vec!["src", "dst", "addr"]),
            prop::sample::select(prefixes.to_vec())
        )
            .prop_map(|(what, prefix)| format!("{what} {prefix}")),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" and "))),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join(" or "))),
            inner.prop_map(|inner| format!("not {inner}")),
        ]
    })
}

#[test]
fn the_kernel_leaves_out_just_what_the_filter_leaves_out() {
    let world = world();
    let ours = |cookies: BTreeMap<u64, bool>| -> BTreeSet<u64> {
        let matching = cookies.into_iter().filter(|&(_, matches)| matches);
        matching
            .map(|(cookie, _)| cookie)
            .filter(|cookie| world.cookies.contains(cookie))
            .collect()
    };
    assert_eq!(ours(dump(Method::OneWalk, &[], None)), world.cookies);
    let (mut none, mut some) = (0, 0);
    let mut runner = TestRunner::new(Config::with_cases(200));
    let result = runner.run(&expressions(world.ports.clone()), |text| {
        let filter: Filter = text.parse().unwrap();
        let expected = ours(dump(Method::OneWalk, &[], Some(&filter)));
        for method in [Method::OneWalk, Method::WalkPerFamily] {
            let kernel = ours(dump(method, filter.bytecode(), None));
            prop_assert_eq!(&kernel, &expected, "{} {:?}", text, method);
        }
        Ok(())
    });
    result.unwrap();
    for text in ["sport 0-65535", "not sport 0-65535", "src 127.1.2.3"] {
        let filter: Filter = text.parse().unwrap();
        match ours(dump(Method::OneWalk, filter.bytecode(), None)).len() {
            0 => none += 1,
            _ => some += 1,
        }
    }
    assert_eq!((none, some), (1, 2));
}

fn once(arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["once", "--netns", "own", "--format", "json"], arguments].concat();
    let output = collector(&arguments);
    assert!(output.status.success(), "{output:?}");
    json_lines(&output)
}

fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_filter_on_the_command_line_is_obeyed_and_its_error_told_in_a_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _pair = pair(&listener);
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    let port = address.port();
    let samples = once(&["--filter", &format!("dport {port} and src 127.0.0.0/8")]);
    assert_eq!(samples.len(), 1, "the client's end");
    assert_eq!(samples[0]["dst_port"], port);

    let output = collector(&["once", "--filter", "dport 443 or sorce 10.0.0.0/8"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("column 14: 'sorce' is not a condition"),
        "{told}"
    );
}

#[test]
fn a_sample_is_the_same_sockets_each_time_and_says_what_it_stands_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _pairs: Vec<_> = (0..300).map(|_| pair(&listener)).collect();
    let filter = format!("port {}", listener.local_addr().unwrap().port());
    let cookies = |sample: &str| -> BTreeSet<u64> {
        let samples = once(&["--filter", &filter, "--sample", sample]);
        for row in &samples {
            let weight = if sample == "1" { Value::Null } else { 4.into() };
            assert_eq!(row["sample_weight"], weight);
        }
        samples
            .iter()
            .map(|row| row["cookie"].as_u64().unwrap())
            .collect()
    };
    let sampled = cookies("4");
    assert_eq!(sampled, cookies("4"));
    assert!(sampled.is_subset(&cookies("1")));
    assert!(
        (90..220).contains(&sampled.len()),
        "{} of 601",
        sampled.len()
    );
}

#[test]
fn attributes_are_those_that_were_chosen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _pair = pair(&listener);
    let filter = format!("sport {}", listener.local_addr().unwrap().port());
    let row = |attributes: &str| {
        let rows = once(&[
            "--states",
            "established",
            "--filter",
            &filter,
            "--attributes",
            attributes,
        ]);
        assert_eq!(rows.len(), 1);
        rows.into_iter().next().unwrap()
    };
    let has = |row: &Value, field: &str| !row[field].is_null();
    let (minimal, default, all) = (row("minimal"), row("default"), row("all"));
    assert!([&minimal, &default, &all].iter().all(|row| has(row, "rto")));
    assert!(!has(&minimal, "congestion_algorithm") && !has(&minimal, "skmem_rcvbuf"));
    assert!(has(&default, "congestion_algorithm") && has(&default, "skmem_rcvbuf"));
    assert!(!has(&default, "tos") && has(&all, "tos") && has(&all, "skmem_rcvbuf"));
}

#[test]
fn an_unchanged_socket_is_left_out_until_it_changes_or_its_full_row_is_due() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut busy, mut peer) = pair(&listener);
    let (idle, _idle_peer) = pair(&listener);
    let filter = format!("dport {}", listener.local_addr().unwrap().port());
    let run = |more: &[&str], during: &mut dyn FnMut()| {
        let arguments = ["--netns", "own", "--interval", "20ms", "--filter", &filter];
        let running = Running::start(program(), &[&arguments, more].concat());
        running.wait_for_rows();
        during();
        running.end()
    };
    let cookies = [&busy, &idle].map(|socket| socket_cookie(socket.as_fd()).unwrap());
    let ended = run(&["--changes-only", "--full-interval", "1h"], &mut || {
        for number in 1..=5 {
            std::thread::sleep(Duration::from_millis(100));
            busy.write_all(&vec![0; number]).unwrap();
            peer.read_exact(&mut vec![0; number]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    });
    let [changing, still] = cookies.map(|cookie| ended.with("cookie", cookie));
    assert_eq!(still.len(), 1, "{still:?}");
    assert!((2..=11).contains(&changing.len()), "{}", changing.len());
    assert_eq!(changing.last().unwrap()["bytes_sent"], 15);
    let polls = ended.count("polls");
    let rows = (still.len() + changing.len()) as u64;
    assert_eq!(rows + ended.count("rows_unchanged"), 2 * polls);

    // Every second poll.
    let ended = run(&["--changes-only", "--full-interval", "40ms"], &mut || {
        std::thread::sleep(Duration::from_millis(400));
    });
    let (rows, polls) = (
        ended.with("cookie", cookies[1]).len() as u64,
        ended.count("polls"),
    );
    assert!(
        rows.abs_diff(polls.div_ceil(2)) <= 1,
        "{rows} rows in {polls} polls"
    );
}
