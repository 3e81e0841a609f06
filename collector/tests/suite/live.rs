//! The live kernel, as any user: sockets of this test, over loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use crate::common::{collector, json_lines, program};
use rustix::net::sockopt::{socket_cookie, tcp_congestion};
use serde_json::Value;

/// Two connected sockets over which `sent` bytes have gone from the first to the second and been read.
fn connection(listen: &str, connect: &str, sent: usize) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((listen, 0)).unwrap();
    let mut client = TcpStream::connect((connect, listener.local_addr().unwrap().port())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&vec![1; sent]).unwrap();
    server.read_exact(&mut vec![0; sent]).unwrap();
    // The echo's acknowledgement brings the acknowledgement of the bytes above.
    server.write_all(&[1]).unwrap();
    client.read_exact(&mut [0]).unwrap();
    (client, server)
}

/// Sockets of this namespace only: what other namespaces of the machine hold is not these tests' business.
const OWN: &[&str] = &["once", "--netns", "own"];

fn once(arguments: &[&str]) -> Vec<Value> {
    let output = collector(&[OWN, &["--format", "json"], arguments].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    json_lines(&output)
}

fn find(samples: &[Value], socket: impl AsFd) -> &Value {
    let cookie = socket_cookie(socket).unwrap();
    let mut found = samples.iter().filter(|sample| sample["cookie"] == cookie);
    let sample = found
        .next()
        .unwrap_or_else(|| panic!("no sample has the cookie {cookie}"));
    assert!(
        found.next().is_none(),
        "two samples have the cookie {cookie}"
    );
    sample
}

fn number(sample: &Value, field: &str) -> u64 {
    sample[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} is {}", sample[field]))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn connections_of_every_family_are_read_with_their_own_values() {
    let cases = [
        (
            "127.0.0.1",
            "127.0.0.1",
            [(2, "127.0.0.1"), (2, "127.0.0.1")],
        ),
        ("::1", "::1", [(10, "::1"), (10, "::1")]),
        // A listener for both families: its own socket is an IPv6 one with mapped addresses.
        (
            "::",
            "127.0.0.1",
            [(2, "127.0.0.1"), (10, "::ffff:127.0.0.1")],
        ),
    ];
    let connections: Vec<_> = cases
        .iter()
        .map(|(listen, connect, _)| connection(listen, connect, 12_345))
        .collect();
    let samples = once(&["--host", "h-1", "--pop", "ams"]);
    for ((client, server), (_, _, ends)) in connections.iter().zip(cases) {
        for ((socket, peer), (family, address)) in
            [(client, server), (server, client)].into_iter().zip(ends)
        {
            let sample = find(&samples, socket);
            assert_eq!(number(sample, "family"), family);
            assert_eq!(
                (&sample["src_ip"], &sample["dst_ip"]),
                (&address.into(), &address.into())
            );
            assert_eq!(
                number(sample, "src_port"),
                u64::from(socket.local_addr().unwrap().port())
            );
            assert_eq!(
                number(sample, "dst_port"),
                u64::from(peer.local_addr().unwrap().port())
            );
            assert_eq!(sample["state"], "TCP_STATE_ESTABLISHED");
            assert_eq!(sample["kind"], "SAMPLE_KIND_POLL");
            assert_eq!(
                (&sample["host"], &sample["pop"]),
                (&"h-1".into(), &"ams".into())
            );
            assert_eq!(
                sample["congestion_algorithm"],
                tcp_congestion(socket).unwrap()
            );
            assert_eq!(
                number(sample, "uid"),
                u64::from(rustix::process::geteuid().as_raw())
            );
            let inode = rustix::fs::fstat(socket).unwrap().st_ino;
            assert_eq!(number(sample, "inode"), inode);
            assert!(
                number(sample, "snd_cwnd") > 0
                    && number(sample, "rtt") > 0
                    && number(sample, "snd_mss") > 500
            );
            assert!(number(sample, "tcp_info_length") >= 224 && number(sample, "skmem_rcvbuf") > 0);
        }
        let (sent, received) = (find(&samples, client), find(&samples, server));
        // The SYN counts as one byte.
        assert_eq!(number(sent, "bytes_acked"), 12_345 + 1);
        assert_eq!(
            (
                number(sent, "bytes_sent"),
                number(received, "bytes_received")
            ),
            (12_345, 12_345)
        );
        assert_eq!(number(sent, "bytes_received"), 1);
    }
}

#[test]
fn a_sample_has_its_host_and_time() {
    let (client, _server) = connection("127.0.0.1", "127.0.0.1", 1);
    let now = || i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    let before = now();
    let (first, second) = (once(&[]), once(&[]));
    let after = now();
    let (first, second) = (find(&first, &client), find(&second, &client));
    let time = |sample: &Value| sample["time_unix_us"].as_i64().unwrap();
    assert!(before <= time(first) && time(first) <= time(second) && time(second) <= after);
    assert!(number(first, "poll_sequence") < number(second, "poll_sequence"));
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(first["boot_id"], boot_id.trim());
    let netns = std::fs::read_link("/proc/self/ns/net")
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap();
    assert_eq!(format!("net:[{}]", number(first, "netns")), netns);
    let hostname = rustix::system::uname()
        .nodename()
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        (&first["host"], &first["pop"]),
        (&hostname.into(), &"".into())
    );
}

#[test]
fn a_listener_is_read_and_a_closed_connection_only_on_demand() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = u64::from(listener.local_addr().unwrap().port());
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    // The side that closes first stays in TIME_WAIT, without a tcp_info.
    drop(client);
    (&server).read_to_end(&mut Vec::new()).unwrap();
    drop(server);
    let of_port = |samples: &[Value], state: &str| {
        let ends = |sample: &&Value| {
            [&sample["src_port"], &sample["dst_port"]]
                .iter()
                .any(|value| **value == port)
        };
        samples
            .iter()
            .filter(ends)
            .filter(|sample| sample["state"] == state)
            .cloned()
            .collect::<Vec<_>>()
    };
    let usual = once(&[]);
    assert!(
        number(find(&usual, &listener), "wqueue") > 0,
        "the accept queue's limit"
    );
    assert_eq!(find(&usual, &listener)["state"], "TCP_STATE_LISTEN");
    assert_eq!(of_port(&usual, "TCP_STATE_TIME_WAIT"), Vec::<Value>::new());
    let all = once(&["--states", "all"]);
    let waiting = of_port(&all, "TCP_STATE_TIME_WAIT");
    assert_eq!(waiting.len(), 1);
    assert!(waiting[0].get("tcp_info_length").is_none());
    assert_eq!(
        of_port(&once(&["--states", "time-wait"]), "TCP_STATE_LISTEN"),
        Vec::<Value>::new()
    );
}

#[test]
fn the_table_is_aligned_and_has_no_colours_in_a_pipe() {
    let (client, server) = connection("::1", "::1", 1_000_000);
    let output = collector(OWN);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'));
    assert!(text.starts_with("STATE"));
    let [local, peer] =
        [&client, &server].map(|socket| format!("[::1]:{}", socket.local_addr().unwrap().port()));
    let lines: Vec<_> = text.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.split_whitespace().nth(1) == Some(&*local))
        .unwrap();
    let row = lines[at];
    // Columns that widen on the way have their heading anew.
    let header = lines[..at]
        .iter()
        .rfind(|line| line.starts_with("STATE"))
        .unwrap();
    assert!(header.ends_with("SEND-Q"), "{header}");
    assert_eq!(row.find(&local), header.find("LOCAL"));
    assert_eq!(row.find(&peer), header.find("PEER"));
    assert!(
        row.starts_with("ESTABLISHED") && row.contains("1.0MB"),
        "{row}"
    );
    assert_eq!(
        row.len(),
        header.len(),
        "the last column ends where its heading does"
    );
}

#[test]
fn the_spool_format_is_read_by_cat() {
    let (client, _server) = connection("127.0.0.1", "127.0.0.1", 1);
    let output = collector(&[OWN, &["--format", "spool"]].concat());
    assert!(output.status.success());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("once.spool");
    std::fs::write(&path, output.stdout).unwrap();
    let printed = collector(&["cat", path.to_str().unwrap()]);
    assert!(printed.status.success());
    assert_eq!(
        find(&json_lines(&printed), &client)["state"],
        "TCP_STATE_ESTABLISHED"
    );
}

#[test]
fn more_sockets_than_a_batch_holds_are_all_read_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ends: Vec<_> = (0..300)
        .map(|_| {
            (
                TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
                listener.accept().unwrap().0,
            )
        })
        .collect();
    let more: Vec<_> = (0..300)
        .map(|_| {
            (
                TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
                listener.accept().unwrap().0,
            )
        })
        .collect();
    let output = collector(&[OWN, &["--format", "json", "--stats"]].concat());
    let samples = json_lines(&output);
    for (client, server) in ends.iter().chain(&more) {
        find(&samples, client);
        find(&samples, server);
    }
    let stats: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(number(&stats, "rows"), samples.len() as u64);
    assert!(number(&stats, "messages_written") >= 2);
    for counter in [
        "messages_malformed",
        "attributes_malformed",
        "attributes_skipped",
        "datagrams_truncated",
    ] {
        assert_eq!(number(&stats, counter), 0, "{counter}");
    }
}

#[test]
fn a_reader_that_goes_away_is_not_a_failure() {
    let mut child = program()
        .args(OWN)
        .args(["--format", "json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), &output.stderr[..]),
        (Some(0), &b""[..])
    );
}
