//! A process that rules a network namespace may send netlink messages in it to every socket and
//! group, as the kernel does.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{Reports, Running, need_root, program, wait_until};
use crate::namespaces::{FILTER, Names, Sockets, WHY, path};

/// No kernel counts so far.
const COOKIE: u64 = 0xdead_0000_beef_0000;

/// SKNLGRP_INET_TCP_DESTROY.
const GROUP: u32 = 1;

fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// struct inet_diag_msg of an IPv4 connection from 127.77.0.1 to itself, which the tests' filter takes.
fn socket(kind: u16, sequence: u32) -> Vec<u8> {
    let mut payload = vec![2, 1, 0, 0, 4, 210, 16, 225];
    for _ in 0..2 {
        payload.extend([127, 77, 0, 1]);
        payload.extend([0; 12]);
    }
    payload.extend([0; 4]);
    payload.extend(COOKIE.to_ne_bytes());
    payload.extend([0; 20]);
    message(kind, sequence, &payload)
}

/// Somebody in a namespace.
struct Forger {
    socket: OwnedFd,
    port: u32,
}

impl Forger {
    /// A forger in this thread's namespace.
    fn here() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::RAW;
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(SOCK_DIAG)).unwrap();
        bind(&socket, &SocketAddrNetlink::new(0, 0)).unwrap();
        let own = rustix::net::getsockname(&socket).unwrap();
        let port = SocketAddrNetlink::try_from(own).unwrap().pid();
        Self { socket, port }
    }

    /// The ports of all others that query sockets here.
    fn others(&self) -> Vec<u32> {
        let table = fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
        let ports = table.lines().skip(1).filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words[1] == "4").then(|| words[2].parse().unwrap())
        });
        ports
            .filter(|&port| port != 0 && port != self.port)
            .collect()
    }

    /// Whether it is taken.
    fn send(&self, bytes: &[u8], port: u32, group: u32) -> bool {
        let to = SocketAddrNetlink::new(port, group);
        sendto(&self.socket, bytes, SendFlags::empty(), &to).is_ok()
    }
}

/// Does something in another network namespace.
fn within<T: Send>(path: &str, work: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        let namespace = File::open(path).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn messages_of_other_processes_make_no_row_and_fail_no_poll() {
    need_root(WHY);
    let name = format!("st{}f", std::process::id());
    let mut names = Names(VecDeque::new());
    names.add(vec![name.clone()]);
    let path = path(&name);
    let untouched = Sockets::inside(&path);
    let last = Sockets::inside(&path);
    // The kernel's buffer holds all that is forged.
    let buffer = "8388608";
    let arguments = [
        "--netns",
        "all",
        "--interval",
        "20ms",
        "--close-buffer",
        buffer,
    ];
    let running = Running::start(program(), &[&arguments[..], &FILTER].concat());
    running.wait_for_rows();
    let forge = || {
        let forger = Forger::here();
        wait_until("the collector's two sockets", || forger.others().len() >= 2);
        let mut taken = 0;
        for _ in 0..20 {
            for port in forger.others() {
                for sequence in 0..100 {
                    for kind in [18, 20] {
                        taken += u32::from(forger.send(&socket(kind, sequence), port, 0));
                    }
                    // The answer's end.
                    taken += u32::from(forger.send(&message(3, sequence, &[0; 4]), port, 0));
                }
            }
            assert!(forger.send(&socket(20, 0), 0, GROUP));
            thread::sleep(Duration::from_millis(20));
        }
        // More than one turn of reading, and after it the kernel's answer.
        let pid = Pid::from_raw(running.pid() as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        for _ in 0..600 {
            assert!(forger.send(&socket(20, 0), 0, GROUP));
        }
        taken
    };
    let taken = within(&path, forge);
    let cookies = last.cookies();
    let mut reports = within(&path, Reports::listen);
    drop(last);
    reports.wait_for(&cookies);
    let pid = Pid::from_raw(running.pid() as i32).unwrap();
    let go_on = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        kill_process(pid, Signal::CONT)
    });
    // It gets SIGTERM before it goes on.
    let ended = running.end();
    go_on.join().unwrap().unwrap();
    assert!(ended.with("cookie", COOKIE).is_empty(), "a forged row");
    assert_eq!(ended.count("polls_failed"), 0, "{}", ended.log);
    assert_eq!(taken, 0, "messages reach the collector's sockets");
    assert_eq!(ended.count("close_overruns"), 0);
    assert_eq!(ended.count("datagrams_forged"), 620);
    let closes = ended.with("kind", "SAMPLE_KIND_CLOSE");
    for cookie in cookies {
        assert!(
            closes.iter().any(|close| close["cookie"] == cookie),
            "a close behind the forged ones is lost"
        );
    }
    assert!(!ended.with("cookie", untouched.cookies()[0]).is_empty());
}
