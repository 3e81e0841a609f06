//! `top` on a terminal of its own: keys go in, and what a terminal would show comes out.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{LONG, program};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

/// A terminal with `top` on it.
struct Terminal {
    child: Child,
    keys: File,
    slave: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    fn start(rows: u16, columns: u16, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = open(
            name.as_c_str(),
            OFlags::RDWR | OFlags::NOCTTY,
            Mode::empty(),
        )
        .unwrap();
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = program()
            .args(["top", "--netns", "own", "--interval", "100ms"])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            cells(rows),
            cells(columns),
            0,
        )));
        let keys = File::from(master);
        let mut output = keys.try_clone().unwrap();
        let drawn = screen.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The terminal's other end is closed: an error, as Linux has it.
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                drawn.lock().unwrap().process(&buffer[..read]);
            }
        });
        Self {
            child,
            keys,
            slave,
            screen,
            reader: Some(reader),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn shown(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as `condition` wants it.
    fn until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shown();
            if condition(&shown) {
                return shown;
            }
            assert!(begun.elapsed() < LONG, "{what} did not come:\n{shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn until_shown(&self, what: &str) -> String {
        self.until(what, |shown| shown.contains(what))
    }

    /// Waits for the end. The terminal must be as it was before.
    fn ended(mut self, code: i32) {
        let status = self.child.wait().unwrap();
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO),
            "the terminal is raw"
        );
        drop(self.slave);
        self.reader.take().unwrap().join().unwrap();
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        assert_eq!(status.code(), Some(code), "{}", screen.contents());
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "the screen is not given back"
        );
    }
}

fn cells(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

/// Connections to one port.
struct Connections {
    port: u16,
    _sockets: Vec<TcpStream>,
}

fn connections(count: usize) -> Connections {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        sockets.extend([client, server]);
    }
    Connections {
        port,
        _sockets: sockets,
    }
}

#[test]
fn keys_filter_sort_group_pause_help_and_quit() {
    let Connections { port, _sockets } = connections(3);
    let mut top = Terminal::start(24, 160, &[]);
    top.until("the first picture", |shown| {
        [
            "every 0.1 s  sort: RETR/s down",
            "STATE",
            "SEND-Q",
            "? help",
        ]
        .iter()
        .all(|text| shown.contains(text))
    });
    top.press(&format!("/{port}\r"));
    // A screen that is being drawn has only some of it.
    let filter = format!("filter: {port}");
    top.until("the connections", |shown| {
        shown.starts_with("6 connections, median RTT ")
            && shown.contains(&filter)
            && shown.contains("1-6 of 6")
            && shown.matches("ESTABLISHED").count() == 6
    });
    top.press("/no such words\r");
    top.until_shown("filter: column 1:");
    top.press("t");
    top.until_shown("sort: RTT down");
    top.press("r");
    top.until_shown("sort: RTT up");
    top.press("\x1b[C");
    top.until_shown("sort: MIN RTT down");
    top.press("g");
    top.until("one group", |shown| {
        shown.contains("127.0.0.0/24")
            && shown.contains("PEER PREFIX")
            && shown.contains("1-1 of 1")
    });
    top.press("g ");
    top.until_shown("PAUSED");
    top.press("?");
    top.until_shown("any key closes this");
    top.press("x");
    top.until("the help goes", |shown| {
        !shown.contains("any key closes this")
    });
    top.press(" +");
    top.until_shown("every 0.25 s");
    top.press("q");
    top.ended(0);
}

#[test]
fn more_than_a_page_is_scrolled_and_a_narrow_terminal_drops_columns() {
    let Connections { port, _sockets } = connections(20);
    let mut top = Terminal::start(
        14,
        60,
        &["--filter", &format!("port {port}"), "--sort", "rtt"],
    );
    let shown = top.until_shown("1-10 of 40");
    let heading = shown.lines().nth(2).unwrap();
    assert!(
        heading.contains("PEER") && heading.contains("RTT") && heading.contains("RETR/s"),
        "{shown}"
    );
    assert!(!heading.contains("MSS"), "{shown}");
    top.press("\x1b[B");
    top.until_shown("2-11 of 40");
    top.press("\x1b[6~");
    top.until_shown("12-21 of 40");
    top.press("\x1b[F");
    top.until_shown("31-40 of 40");
    top.press("\x1b[H");
    top.until_shown("1-10 of 40");

    let larger = Winsize {
        ws_row: 9,
        ws_col: 160,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    top.screen
        .lock()
        .unwrap()
        .screen_mut()
        .set_size(cells(9), cells(160));
    tcsetwinsize(&top.slave, larger).unwrap();
    // Without a controlling terminal the change comes with the next look.
    top.until_shown("1-5 of 40");
    top.until_shown("MSS");
    top.press("\x03");
    top.ended(0);
}

#[test]
fn connections_are_sorted_by_what_they_did_and_filtered_by_prefix() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut sockets = Vec::new();
    let mut ports = Vec::new();
    // Each sends ten times as much as the one before.
    for (last, bytes) in [(2, 3_000), (3, 30_000), (2, 300_000)] {
        let mut client =
            TcpStream::connect(("127.0.0.".to_owned() + &last.to_string(), port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sent = std::thread::spawn(move || {
            client.write_all(&vec![1; bytes]).unwrap();
            client
        });
        server.read_exact(&mut vec![0; bytes]).unwrap();
        let client = sent.join().unwrap();
        ports.push(client.local_addr().unwrap().port());
        sockets.extend([client, server]);
    }
    let mut top = Terminal::start(24, 160, &["--filter", &format!("dport {port}")]);
    top.until_shown("1-3 of 3");
    // Where each client stands on the screen.
    let order = |shown: &str| -> Vec<usize> {
        let lines = |port: &u16| {
            shown
                .lines()
                .position(|line| line.contains(&format!(":{port} ")))
        };
        ports.iter().filter_map(lines).collect()
    };
    for (expected, least_first) in [("sort: ACKED down", false), ("sort: ACKED up", true)] {
        top.press("a");
        top.until("the order", |shown| {
            let at = order(shown);
            shown.contains(expected)
                && at.len() == 3
                && at.is_sorted() == least_first
                && at.iter().rev().is_sorted() != least_first
        });
    }
    for (key, column) in [("x", "RETRANS"), ("t", "RTT"), ("w", "CWND"), ("d", "RATE")] {
        top.press(key);
        top.until_shown(&format!("sort: {column} down"));
    }
    // The filter typed before is there to go on with.
    top.press(&format!(
        "/{}dst 127.0.0.2/32 and dport {port}\r",
        "\x7f".repeat(40)
    ));
    let shown = top.until_shown("1-2 of 2");
    assert!(
        shown.contains("127.0.0.2:") && !shown.contains("127.0.0.3:"),
        "{shown}"
    );
    top.press("q");
    top.ended(0);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let top = Terminal::start(24, 80, &[]);
        top.until_shown("sort: RETR/s");
        kill_process(Pid::from_child(&top.child), signal).unwrap();
        top.ended(0);
    }
}

#[test]
fn without_a_terminal_one_table_is_printed() {
    let Connections { port, _sockets } = connections(2);
    let filter = format!("sport {port}");
    let top = |arguments: &[&str]| {
        let output = program()
            .args([
                "top",
                "--netns",
                "own",
                "--interval",
                "1ms",
                "--filter",
                &filter,
            ])
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let table = top(&[]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(
        lines[0].starts_with("2 connections, ") && lines[1].starts_with("STATE  "),
        "{table}"
    );
    assert!(
        lines[2].contains(&format!("127.0.0.1:{port}")) && !table.contains('\x1b'),
        "{table}"
    );

    let grouped = top(&["--group", "--once"]);
    assert!(grouped.contains("\n127.0.0.0/24      2  "), "{grouped}");

    let samples = top(&["--json"]);
    let samples: Vec<Value> = samples
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0]["state"], "ESTABLISHED");
    assert_eq!(samples[0]["local"], format!("127.0.0.1:{port}"));
    assert_eq!(samples[0]["retrans_per_s"], 0.0);
}
