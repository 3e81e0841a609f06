//! `run`: repeated polls into a spool, through signals, kills and restarts.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use crate::common::{collector, json_lines, program, wait_until};
use rustix::net::sockopt::socket_cookie;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A connection to find in the samples.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn start(directory: &Path, arguments: &[&str]) -> Child {
    program()
        .args([
            "run",
            "--netns",
            "own",
            "--host",
            "edge-1",
            "--pop",
            "ams",
            "--interval",
            "20ms",
            "--stats",
            "--spool-dir",
        ])
        .arg(directory)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Filters for one connection: how many others the machine has depends on the other tests.
fn only(client: &TcpStream) -> String {
    format!("dport {}", client.peer_addr().unwrap().port())
}

fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    files.retain(|path: &PathBuf| path.to_str().unwrap().ends_with(suffix));
    files.sort();
    files
}

/// Waits until the open file has some records: a few polls of one connection.
fn wait_for_records(directory: &Path) {
    wait_until("a record in the open file", || {
        files(directory, ".spool.open")
            .iter()
            .any(|file| fs::metadata(file).is_ok_and(|meta| meta.len() > 3000))
    });
}

fn end(child: Child, signal: Signal) -> Output {
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap()
}

fn stats(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(text.lines().last().unwrap())
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every sample in the directory's complete files, in their order.
fn samples(directory: &Path) -> Vec<Value> {
    let files = files(directory, ".spool");
    let arguments: Vec<_> = std::iter::once("cat".into())
        .chain(files.into_iter().map(PathBuf::into_os_string))
        .collect();
    let output = collector(&arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    json_lines(&output)
}

/// The polls in which the socket was seen, in the order of the samples.
fn polls_of(samples: &[Value], socket: impl AsFd) -> Vec<u64> {
    let cookie = socket_cookie(socket).unwrap();
    samples
        .iter()
        .filter(|sample| sample["cookie"] == cookie)
        .map(|sample| sample["poll_sequence"].as_u64().unwrap())
        .collect()
}

fn rise_by_one(polls: &[u64]) -> bool {
    polls.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn a_signal_seals_the_spool_with_every_row() {
    for signal in [Signal::INT, Signal::TERM] {
        let (client, _server) = connection();
        let directory = tempfile::tempdir().unwrap();
        let spool = directory.path().join("made-on-demand");
        let child = start(&spool, &["--filter", &only(&client)]);
        wait_for_records(&spool);
        let output = end(child, signal);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(files(&spool, ".open"), Vec::<PathBuf>::new());
        let samples = samples(&spool);
        let stats = stats(&output);
        assert_eq!(stats["rows"], samples.len());
        let polls = polls_of(&samples, &client);
        assert_eq!(stats["polls"], polls.len());
        assert!(rise_by_one(&polls) && polls.len() > 1, "{polls:?}");
        assert!(
            samples
                .iter()
                .all(|sample| sample["host"] == "edge-1" && sample["pop"] == "ams")
        );
    }
}

#[test]
fn after_a_kill_the_next_run_completes_the_file_and_counts_on() {
    let (client, _server) = connection();
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path();
    let filter = only(&client);
    let child = start(spool, &["--filter", &filter]);
    wait_for_records(spool);
    end(child, Signal::KILL);
    let [left] = &files(spool, ".spool.open")[..] else {
        panic!("one file is left open")
    };
    // A crash in the middle of a write leaves this.
    let mut torn = fs::read(left).unwrap();
    torn.extend(b"STB1\x01\0\0\0torn");
    fs::write(left, torn).unwrap();

    let output = start(spool, &["--filter", &filter, "--polls", "3"])
        .wait_with_output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stats = stats(&output);
    assert_eq!(
        (&stats["spool_files_recovered"], &stats["spool_bytes_cut"]),
        (&1.into(), &12.into())
    );
    assert_eq!(files(spool, ".open"), Vec::<PathBuf>::new());
    let polls = polls_of(&samples(spool), &client);
    assert!(polls.len() >= 5, "{polls:?}");
    assert_eq!(
        polls.iter().collect::<BTreeSet<_>>().len(),
        polls.len(),
        "no number is used twice"
    );
    assert!(polls.is_sorted(), "{polls:?}");
}

#[test]
fn files_are_rotated_by_size_and_by_time() {
    let (client, _server) = connection();
    for rotation in [["--rotate-bytes", "1KiB"], ["--rotate-interval", "50ms"]] {
        let directory = tempfile::tempdir().unwrap();
        let child = start(directory.path(), &rotation);
        wait_until("a third complete file", || {
            files(directory.path(), ".spool").len() >= 3
        });
        let output = end(child, Signal::TERM);
        assert_eq!(output.status.code(), Some(0));
        let complete = files(directory.path(), ".spool");
        assert_eq!(stats(&output)["spool_files"], complete.len());
        for file in &complete {
            let name = file.file_name().unwrap().to_str().unwrap();
            let parts: Vec<_> = name
                .strip_suffix(".spool")
                .unwrap()
                .rsplitn(4, '-')
                .collect();
            assert!(parts.len() == 4 && parts[3] == "edge-1", "{name}");
            assert!(
                parts[..3]
                    .iter()
                    .all(|part| part.bytes().all(|byte| byte.is_ascii_digit())),
                "{name}"
            );
        }
        let polls = polls_of(&samples(directory.path()), &client);
        assert!(rise_by_one(&polls), "{polls:?}");
    }
}

#[test]
fn two_collectors_of_one_host_do_not_share_a_directory_and_two_hosts_do() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path(), &[]);
    wait_for_records(directory.path());
    let second = start(directory.path(), &["--polls", "1"])
        .wait_with_output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{stderr}");
    let path = directory.path().join("edge-1.state");
    assert!(
        stderr.contains(&format!(
            "{}: another collector of this host is running",
            path.display()
        )),
        "{stderr}"
    );

    let mut other = program();
    other
        .args([
            "run",
            "--host",
            "edge-2",
            "--polls",
            "1",
            "--interval",
            "1ms",
            "--spool-dir",
        ])
        .arg(directory.path());
    assert!(other.status().unwrap().success());
    assert_eq!(
        files(directory.path(), ".spool.open").len(),
        1,
        "the first one's file is open"
    );
    assert_eq!(end(first, Signal::TERM).status.code(), Some(0));
}

#[test]
fn bad_usage_is_one_line_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path().join("spool");
    let spool_dir = spool.to_str().unwrap();
    let above = spool.join("another");
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    for (arguments, message) in [
        (
            &["run"][..],
            "no sink is given: use one or more of --spool-dir",
        ),
        (
            &["run", "--spool-dir", spool_dir, "--interval", "fast"],
            "'fast' is not a valid time",
        ),
        (
            &["run", "--spool-dir", spool_dir, "--rotate-bytes", "0"],
            "'0' is not a valid size",
        ),
        (
            &["run", "--spool-dir", spool_dir, "--host", "a/b"],
            "a host's name has",
        ),
        (
            &["run", "--spool-dir", spool_dir, "--pop", "AMS"],
            "a PoP's name has",
        ),
        (
            &["run", "--spool-dir", spool_dir, "--states", "open"],
            "'open' is not a state",
        ),
        (
            &["run", "--spool-dir", file.to_str().unwrap()],
            "cannot use it as the spool: File exists",
        ),
        (
            &["run", "--spool-dir", above.to_str().unwrap()],
            "cannot use it as the spool: the directory above it is missing",
        ),
        (
            &["once", "--format", "xml"],
            "possible values: table, json, spool, null",
        ),
        (&["decode"], "<FILE>"),
        (&["fly"], "unrecognized subcommand"),
    ] {
        let output = collector(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "{message} is not in {stderr}");
    }
    assert!(!spool.exists());
}

#[test]
fn help_has_examples() {
    for command in [
        &["--help"][..],
        &["once", "--help"],
        &["run", "--help"],
        &["decode", "--help"],
        &["cat", "--help"],
    ] {
        let output = collector(command);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("Examples:\n  springtide-collector "),
            "{text}"
        );
    }
}
