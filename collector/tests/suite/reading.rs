//! Tests of what is read and how much of it: filters against the real kernel, samples, changes,
//! attributes.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{Running, collector, json_lines, program, wait_until};
use crate::rhythm::start;
use rustix::net::sockopt::socket_cookie;
use serde_json::Value;

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
fn a_filter_on_the_command_line_applies_and_its_error_is_one_line() {
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
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("column 14: 'sorce' is not a condition"),
        "{stderr}"
    );
}

#[test]
fn a_sample_has_the_same_sockets_each_time_and_its_weight() {
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
    // A quarter of 601 is outside with odds of 1e-9.
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
    let idle: [_; 3] = std::array::from_fn(|_| pair(&listener));
    let filter = format!("dport {}", listener.local_addr().unwrap().port());
    let run = |more: &[&str], during: &mut dyn FnMut(&Running)| {
        let arguments = ["--interval", "20ms", "--filter", &filter];
        let running = start(program(), &[&arguments, more].concat());
        running.wait_for_rows();
        during(&running);
        running.end()
    };
    let cookie = |socket: &TcpStream| socket_cookie(socket.as_fd()).unwrap();
    let (busy_one, idle) = (
        cookie(&busy),
        idle.each_ref().map(|(client, _)| cookie(client)),
    );
    // The longest: a full row is due in a poll that its cookie decides, which may be one of these.
    let ended = run(
        &["--changes-only", "--full-interval", "24h"],
        &mut |running| {
            for number in 1..=5 {
                busy.write_all(&vec![0; number]).unwrap();
                peer.read_exact(&mut vec![0; number]).unwrap();
                let all = number * (number + 1) / 2;
                wait_until("a row of what was sent", || {
                    let rows = running.samples();
                    rows.iter()
                        .any(|row| row["cookie"] == busy_one && row["bytes_sent"] == all)
                });
            }
        },
    );
    let changing = ended.with("cookie", busy_one);
    let unchanged = idle.map(|cookie| ended.with("cookie", cookie).len());
    let polls = ended.count("polls");
    // A socket's full row is due once in 4,320,000 polls: for two of the three in the same hundred with odds of 2e-9.
    let again = unchanged.iter().filter(|rows| **rows != 1).count();
    assert!(
        again <= 1 && unchanged.iter().all(|rows| (1..=2).contains(rows)),
        "{unchanged:?} in {polls} polls"
    );
    assert!((2..=11).contains(&changing.len()), "{}", changing.len());
    assert_eq!(changing.last().unwrap()["bytes_sent"], 15);
    let rows = (unchanged.iter().sum::<usize>() + changing.len()) as u64;
    assert_eq!(rows + ended.count("rows_unchanged"), 4 * polls);

    // Every second poll.
    let ended = run(&["--changes-only", "--full-interval", "40ms"], &mut |_| {
        std::thread::sleep(Duration::from_millis(400));
    });
    let (rows, polls) = (
        ended.with("cookie", idle[0]).len() as u64,
        ended.count("polls"),
    );
    assert!(
        rows.abs_diff(polls.div_ceil(2)) <= 1,
        "{rows} rows in {polls} polls"
    );
}
