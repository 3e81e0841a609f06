//! What several of the tests need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A capture that is part of the repository.
pub fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captures")
        .join(name)
}

/// The names of the captures.
pub const CAPTURES: [&str; 4] = [
    "linux-4.19.319.pcap",
    "linux-5.15.164.pcap",
    "linux-6.10.3.pcap",
    "linux-6.6.44-bbr.pcap",
];

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

/// Waits until `condition` holds; a bound only keeps a failure from hanging.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what} did not happen within a minute"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `run` into a spool of its own.
pub struct Running {
    child: Child,
    spool: TempDir,
}

/// What a run has left.
pub struct Ended {
    /// Every sample.
    pub samples: Vec<Value>,
    /// The counters.
    pub stats: Value,
    /// What else it said.
    pub told: String,
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
        let mut told = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut told).unwrap();
        assert!(self.child.wait().unwrap().success(), "{told}");
        let (before, stats) = told
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or(("", told.trim_end()));
        let stats = serde_json::from_str(stats).unwrap_or_else(|error| panic!("{error}: {told}"));
        let told = before.to_owned();
        let samples = self.samples();
        Ended {
            samples,
            stats,
            told,
        }
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

/// A file system of its own, which is unmounted at the end.
pub struct Mounted(tempfile::TempDir);

impl Mounted {
    /// In memory, of that size.
    pub fn tmpfs(kibibytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={kibibytes}k");
        mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], dir.path());
        Self(dir)
    }

    /// With other options from now on.
    pub fn remount(&self, how: &str) {
        mount(&["-o", &format!("remount,{how}")], self.0.path());
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn mount(arguments: &[&str], path: &Path) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts file systems and needs root: sudo make test"
    );
    let status = Command::new("mount")
        .args(arguments)
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success(), "mount {arguments:?}: {status}");
}
