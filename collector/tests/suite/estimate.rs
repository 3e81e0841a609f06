//! `estimate` over real connections on loopback, as any user. What its numbers are worth is measured in the lab
//! (lab/tests/test_estimate.py).

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_cookie;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Reports, need_root, program, wait_until};

/// Tells whether a process handles SIGHUP. It handles the other signals by then, too.
fn takes_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 1 == 1
}

/// Runs the command on the server's side of connections. For two seconds, one after the other begins and is answered with
/// 300 kB. None is under way when a signal ends the watch.
fn beside_answers(command: &mut Command) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let (ended, cookies) = (ends.clone(), Arc::new(Mutex::new(Vec::new())));
    let served = cookies.clone();
    let serving = thread::spawn(move || {
        for connection in listener.incoming() {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let mut connection = connection.unwrap();
            let cookie = socket_cookie(connection.as_fd()).unwrap();
            served.lock().unwrap().push(cookie);
            connection.write_all(&[7; 300_000]).unwrap();
        }
    });
    let filter = format!("sport {}", address.port());
    command.args(["--filter", &filter]);
    let (out, errors) = (Stdio::piped(), Stdio::piped());
    let child = command.stdout(out).stderr(errors).spawn().unwrap();
    wait_until("the watch", || takes_signals(child.id()));
    let (mut reports, begun) = (Reports::listen(), Instant::now());
    while begun.elapsed() < Duration::from_secs(2) {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.read_to_end(&mut Vec::new()).unwrap();
        thread::sleep(Duration::from_millis(10));
        reports.read();
    }
    reports.wait_for(&cookies.lock().unwrap());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    ends.store(true, Ordering::Relaxed);
    // The server looks after the next connection.
    drop(TcpStream::connect(address));
    serving.join().unwrap();
    output
}

const SHORT: [&str; 8] = [
    "estimate",
    "--local",
    "--for",
    "5m",
    "--interval",
    "200ms",
    "--netns",
    "own",
];

#[test]
fn it_says_of_real_connections_what_they_would_save() {
    let output = beside_answers(program().args(SHORT).args(["--json", "--stats"]));
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths = document["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 1, "{document}");
    let path = &paths[0];
    assert_eq!(path["destination"], "127.0.0.0/24");
    assert!(path["fresh_connections"].as_u64().unwrap() > 0, "{path}");
    assert_eq!(
        path["fresh_connections_from"]["100000"],
        path["fresh_connections"]
    );
    assert_eq!(path["fresh_connections_from"]["1000000"], 0);
    for size in path["sizes"].as_array().unwrap() {
        let of = |name: &str| size["saved_ms"][name].as_f64().unwrap();
        assert!(0.0 <= of("low") && of("low") <= of("estimate"), "{size}");
        assert!(of("estimate") <= of("high"), "{size}");
    }
    let stderr = String::from_utf8(output.stderr).unwrap();
    let stats: Value = serde_json::from_str(stderr.trim_end()).unwrap();
    for counter in ["polls", "rows", "close_rows"] {
        assert!(stats[counter].as_u64().unwrap() > 0, "{counter}: {stats}");
    }
}

#[test]
fn a_fleet_names_destinations_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = folder.path().join("fleet.yaml");
    fs::write(&fleet, "pops: {near: {prefixes: [127.0.0.0/8]}}\n").unwrap();
    let output = beside_answers(program().args(SHORT).arg("--fleet").arg(&fleet));
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "no progress here: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Started at the proved rate"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("near  ")),
        "{text}"
    );
}

#[test]
fn of_a_host_that_talks_to_itself_alone_it_says_how_to_include_that() {
    let output = beside_answers(program().args(SHORT.iter().filter(|one| **one != "--local")));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("no connection to another host was seen: watch"),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("itself were left out: --local includes them\n"),
        "{stderr}"
    );
}

#[test]
fn a_table_of_no_destinations_is_refused() {
    let output = program().args(SHORT).args(["--top", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("'0' for '--top <N>'"), "{stderr}");
}

#[test]
fn it_says_which_connections_it_may_not_read() {
    need_root("it gives up capabilities");
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(program().get_program())
        .args(["estimate", "--local", "--for", "5m", "--interval", "200ms"]);
    let output = beside_answers(&mut command);
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let said = "springtide-collector: only this network namespace is read";
    assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
}
