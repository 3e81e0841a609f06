//! Helpers of several of the tests.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_springtide-collector"))
}

/// Runs the program to its end.
pub fn collector<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    program()
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// Its standard output as JSON lines.
pub fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let text = std::str::from_utf8(&output.stdout).expect("the output is text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Fails a test that cannot do without root.
pub fn need_root(why: &str) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root: {why}"
    );
}

/// A bound that only keeps a failure from hanging: what tests wait for comes within two seconds, unless the machine
/// stands still.
pub const LONG: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < LONG,
            "{what} did not happen within a minute"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The kernel's reports of closes in this thread's network namespace. They come some time after a close, on a loaded machine
/// a third of a second, and to all who listen at once.
pub struct Reports {
    socket: OwnedFd,
    seen: HashSet<u64>,
}

impl Reports {
    /// From now on.
    pub fn listen() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::RAW;
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(SOCK_DIAG)).unwrap();
        // Fails without root. Then the tests read before the usual buffer is full.
        let _ = set_socket_recv_buffer_size_force(&socket, 64 << 20);
        bind(&socket, &SocketAddrNetlink::new(0, DESTROYED)).unwrap();
        let seen = HashSet::new();
        Self { socket, seen }
    }

    /// Takes what has come.
    pub fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok((bytes, _)) = recv(&self.socket, &mut buffer, RecvFlags::empty()) {
            let cookie = buffer[..bytes].get(60..68).unwrap();
            self.seen
                .insert(u64::from_ne_bytes(cookie.try_into().unwrap()));
        }
    }

    /// Waits for those of these sockets. Time alone fails it only where a report takes a minute.
    pub fn wait_for(&mut self, cookies: &[u64]) {
        wait_until("the kernel's reports", || {
            self.read();
            cookies.iter().all(|cookie| self.seen.contains(cookie))
        });
    }
}

/// SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY.
const DESTROYED: u32 = 0b101;

/// `run` into a spool of its own.
pub struct Running {
    child: Child,
    spool: TempDir,
}

/// Results of a run.
pub struct Ended {
    /// Every sample.
    pub samples: Vec<Value>,
    /// The counters.
    pub stats: Value,
    /// The rest of its standard error.
    pub log: String,
}

impl Running {
    /// Starts it.
    pub fn start(command: Command, arguments: &[&str]) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let mut command = command;
        let child = command
            .args(["run", "--host", "edge-1", "--stats", "--spool-dir"])
            .arg(spool.path())
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, spool }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until rows have been written, which are the first poll's.
    pub fn wait_for_rows(&self) {
        wait_until("the first poll", || {
            let files = fs::read_dir(self.spool.path()).unwrap();
            files.flatten().any(|file| {
                let name = file.file_name().into_string().unwrap();
                name.contains(".spool") && file.metadata().is_ok_and(|file| file.len() > 0)
            })
        });
    }

    /// Samples so far, of completed files.
    pub fn samples(&self) -> Vec<Value> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.spool.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "spool"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Vec::new();
        }
        let output = program().arg("cat").args(files).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        json_lines(&output)
    }

    /// Ends it with SIGTERM.
    pub fn end(mut self) -> Ended {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut stderr).unwrap();
        assert!(self.child.wait().unwrap().success(), "{stderr}");
        let (before, stats) = stderr
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or(("", stderr.trim_end()));
        let stats = serde_json::from_str(stats).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        let log = before.to_owned();
        let samples = self.samples();
        Ended {
            samples,
            stats,
            log,
        }
    }
}

impl Drop for Running {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// A counter.
    pub fn count(&self, name: &str) -> u64 {
        self.stats[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} is {}", self.stats[name]))
    }

    /// Samples with this value.
    pub fn with(&self, field: &str, value: impl Into<Value>) -> Vec<&Value> {
        let value = value.into();
        self.samples
            .iter()
            .filter(|sample| sample[field] == value)
            .collect()
    }
}

/// A record of a spool file with `rows` rows, their cookies `first` and the numbers after it: written after the format's
/// description (docs/reference/spool.md), without compression.
pub fn record(first: u64, rows: u64) -> Vec<u8> {
    let mut envelope = Vec::new();
    for cookie in first..first + rows {
        let mut row = Vec::new();
        prost::encoding::uint64::encode(COOKIE, &cookie, &mut row);
        prost::encoding::bytes::encode(1, &row, &mut envelope);
    }
    let mut payload = Vec::new();
    prost::encoding::encode_varint(envelope.len() as u64, &mut payload);
    payload.extend(envelope);
    let rows = u32::try_from(rows).unwrap().to_le_bytes();
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let checked = [&[0; 4][..], &rows, &length].concat();
    let sum = crc32fast::hash(&[&checked[..], &payload].concat());
    [b"STB1", &checked[..], &sum.to_le_bytes(), &payload].concat()
}

/// The cookie's field number in the contract.
const COOKIE: u32 = 7;
