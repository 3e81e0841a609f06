//! `top` ends when its terminal goes or on request, whatever it is doing then.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, LocalModes, Winsize, tcflow, tcgetattr, tcsetwinsize};

use crate::common::{LONG, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_springtide-collector");

fn terminal() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 160,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).unwrap();
    (master.into(), slave)
}

/// A process that does not outlive a failure.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the command line on the terminal.
fn start(slave: &OwnedFd, words: &[&str], interval: &str) -> Started {
    let end = || Stdio::from(slave.try_clone().unwrap());
    let child = Command::new(words[0])
        .args(&words[1..])
        .args(["top", "--netns", "own", "--interval", interval])
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn();
    Started(child.unwrap())
}

/// Reads what is drawn until the first picture is there.
fn see(master: &mut File) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(5).any(|bytes| bytes == b"sort:") {
        let mut wanted = [PollFd::new(master, PollFlags::IN)];
        let time = Timespec::try_from(LONG).unwrap();
        assert_eq!(poll(&mut wanted, Some(&time)), Ok(1), "nothing is drawn");
        let read = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
    }
}

/// Waits for the end.
fn end(mut started: Started) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = started.0.try_wait().unwrap() {
            return status;
        }
        let spent = processor_time(started.0.id());
        assert!(
            begun.elapsed() < LONG,
            "it never ended, and took {spent} ticks of processor time"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The words of /proc/PID/stat behind the program's name, which is in brackets; the state is the first.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, words) = text.rsplit_once(") ")?;
    Some(words.split(' ').map(str::to_owned).collect())
}

/// utime and stime, ticks of 10 ms.
fn processor_time(pid: u32) -> u64 {
    let words = stat(pid).unwrap();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

#[test]
fn a_terminal_that_goes_ends_it() {
    // Without a controlling terminal there is no SIGHUP: only the terminal itself shows it.
    for words in [&[PROGRAM][..], &["setsid", "--ctty", PROGRAM]] {
        let (mut master, slave) = terminal();
        let child = start(&slave, words, "1h");
        see(&mut master);
        // Its own processor time has nothing of others' load: for an hour, until the next look, it only waits.
        let before = processor_time(child.0.id());
        std::thread::sleep(Duration::from_secs(1));
        let idle = processor_time(child.0.id()) - before;
        assert!(idle < 50, "{idle} % of a processor for nothing");
        drop(slave);
        drop(master);
        assert_eq!(end(child).code(), Some(0), "{words:?}");
    }
}

#[test]
fn a_signal_does_not_wait_for_output_that_nobody_takes() {
    for signal in [Signal::TERM, Signal::HUP] {
        let (mut master, slave) = terminal();
        let child = start(&slave, &[PROGRAM], "10ms");
        see(&mut master);
        tcflow(&slave, Action::OOff).unwrap();
        let in_write = || {
            let call = fs::read_to_string(format!("/proc/{}/syscall", child.0.id()));
            call.is_ok_and(|call| call.starts_with("1 0x1 "))
        };
        let mut since = Instant::now();
        wait_until("its output is blocked", || {
            if !in_write() {
                since = Instant::now();
            }
            since.elapsed() > Duration::from_millis(300)
        });
        kill_process(Pid::from_child(&child.0), signal).unwrap();
        assert_eq!(end(child).code(), Some(0));
        let modes = tcgetattr(&slave).unwrap().local_modes;
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO),
            "the terminal is raw"
        );
    }
}

#[test]
fn it_ends_where_it_may_no_longer_read_the_terminal() {
    // The shell that started it is killed; the one above takes the terminal back. Nobody stops or hangs up an orphan in the
    // background: each read fails at once.
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (inner, script) = (file("inner.pid"), file("inner.sh"));
    let (pid, outer) = (file("top.pid"), file("outer.sh"));
    let lines = format!(
        "set -m\necho $$ > {}\nsh -c 'echo $$ > {}; exec \"$@\"' sh \"$@\"\ntrue\n",
        inner.display(),
        pid.display()
    );
    fs::write(&script, lines).unwrap();
    let lines = format!("set -m\nsh {} \"$@\"\nexec sleep 600\n", script.display());
    fs::write(&outer, lines).unwrap();
    let (mut master, slave) = terminal();
    let outer = outer.to_str().unwrap();
    let leader = start(&slave, &["setsid", "--ctty", "sh", outer, PROGRAM], "1h");
    see(&mut master);
    let number = |path: &Path| -> u32 { fs::read_to_string(path).unwrap().trim().parse().unwrap() };
    let (inner, top) = (number(&inner), number(&pid));
    kill_process(Pid::from_raw(inner as i32).unwrap(), Signal::KILL).unwrap();
    wait_until("the outer shell has the terminal", || {
        stat(leader.0.id()).is_some_and(|words| words[5] == leader.0.id().to_string())
    });
    std::io::Write::write_all(&mut master, b"g").unwrap();
    let gone = || stat(top).is_none_or(|words| words[0] == "Z");
    let begun = Instant::now();
    while !gone() && begun.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(10));
    }
    let spent = stat(top).map_or(0, |_| processor_time(top));
    let ended = gone();
    drop(leader);
    if !ended {
        kill_process(Pid::from_raw(top as i32).unwrap(), Signal::KILL).unwrap();
    }
    assert!(
        ended,
        "it never ended, and took {spent} ticks of processor time"
    );
}
