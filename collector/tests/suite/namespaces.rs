//! Network namespaces: found, read, left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Running, need_root, program, wait_until};
use rustix::net::sockopt::socket_cookie;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

pub const WHY: &str = "it makes network namespaces";

/// Where the sockets of these tests are, and what keeps those of everything else on the machine out of the samples.
const ADDRESS: &str = "127.77.0.1";
pub const FILTER: [&str; 2] = ["--filter", "addr 127.77.0.1"];

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}

/// Namespaces with names, removed at the end.
pub struct Names(pub VecDeque<String>);

impl Names {
    /// Makes them, with loopback up, by one process.
    pub fn add(&mut self, names: Vec<String>) {
        let lines: String = names
            .iter()
            .map(|name| format!("netns add {name}\n"))
            .collect();
        self.0.extend(names);
        batch(&lines);
    }

    /// Removes the oldest.
    fn remove(&mut self, count: usize) {
        let names = self.0.drain(..count.min(self.0.len()));
        let lines: String = names.map(|name| format!("netns del {name}\n")).collect();
        batch(&lines);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.remove(usize::MAX);
    }
}

fn batch(lines: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines).unwrap();
    ip(&["-batch", file.path().to_str().unwrap()]);
}

pub fn path(name: &str) -> String {
    format!("/run/netns/{name}")
}

pub fn inode(path: &str) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// A listener and both ends of a connection, in another namespace.
pub struct Sockets {
    _listener: TcpListener,
    ends: [TcpStream; 2],
}

impl Sockets {
    /// Sockets stay where they were made; the thread that made them ends.
    pub fn inside(path: &str) -> Self {
        let path = path.to_owned();
        let make = move || {
            let namespace = File::open(path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            ip(&["link", "set", "lo", "up"]);
            let listener = TcpListener::bind((ADDRESS, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            Self {
                _listener: listener,
                ends: [client, server],
            }
        };
        thread::spawn(make).join().unwrap()
    }

    pub fn cookies(&self) -> [u64; 2] {
        self.ends
            .each_ref()
            .map(|end| socket_cookie(end.as_fd()).unwrap())
    }
}

/// The namespaces in which samples saw each cookie.
fn seen(samples: &[Value]) -> BTreeMap<u64, u64> {
    let number = |sample: &Value, field: &str| sample[field].as_u64().unwrap();
    samples
        .iter()
        .map(|sample| (number(sample, "cookie"), number(sample, "netns")))
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn namespaces_with_a_name_or_a_process_are_read_each_once() {
    need_root(WHY);
    let prefix = format!("st{}a", std::process::id());
    let named = format!("{prefix}1");
    let mut names = Names(VecDeque::new());
    names.add(vec![named.clone(), format!("{prefix}2")]);
    // A second name of the first.
    let second_name = path(&format!("{prefix}3"));
    File::create(&second_name).unwrap();
    let mount = Command::new("mount")
        .args(["--bind", &path(&named), &second_name])
        .status();
    assert!(mount.unwrap().success());
    names.0.push_back(format!("{prefix}3"));
    // One that only a process holds: it reports when it exists.
    let mut process = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up; echo ready; exec sleep 600",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let of_process = format!("/proc/{}/ns/net", process.id());

    let worlds = [path(&named), of_process, "/proc/self/ns/net".to_owned()]
        .map(|path| (inode(&path), Sockets::inside(&path)));
    let arguments = ["once", "--netns", "all", "--format", "json", "--stats"];
    let output = program().args(arguments).args(FILTER).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let samples = crate::common::json_lines(&output);
    for (netns, sockets) in &worlds {
        for cookie in sockets.cookies() {
            let rows: Vec<_> = samples
                .iter()
                .filter(|row| row["cookie"] == cookie)
                .collect();
            assert_eq!(rows.len(), 1, "in namespace {netns}");
            assert_eq!(rows[0]["netns"], *netns);
        }
    }
    // The named one without sockets needed no walk.
    let stats = String::from_utf8(output.stderr).unwrap();
    let stats: Value = serde_json::from_str(stats.trim_end().lines().last().unwrap()).unwrap();
    assert!(stats["walks_saved"].as_u64().unwrap() >= 1);

    let own = program()
        .args(["once", "--netns", "own", "--format", "json"])
        .args(FILTER)
        .output()
        .unwrap();
    let own = seen(&crate::common::json_lines(&own));
    assert!(
        worlds[2]
            .1
            .cookies()
            .iter()
            .all(|cookie| own.contains_key(cookie))
    );
    assert!(
        worlds[..2]
            .iter()
            .all(|(netns, _)| !own.values().any(|seen| seen == netns))
    );
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn without_the_right_to_enter_the_own_namespace_is_read_and_reported_once() {
    need_root("it gives up capabilities");
    let bare = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set", "-sys_admin", "--inh-caps", "-all", "--"])
            .arg(env!("CARGO_BIN_EXE_springtide-collector"))
            .args(arguments);
        command
    };
    let sockets = Sockets::inside("/proc/self/ns/net");
    let arguments = ["--interval", "20ms", "--netns-interval", "20ms"];
    let running = Running::start(bare(&[]), &[&arguments[..], &FILTER].concat());
    running.wait_for_rows();
    thread::sleep(Duration::from_millis(200));
    let ended = running.end();
    assert_eq!(
        ended.log.matches("CAP_SYS_ADMIN").count(),
        1,
        "{}",
        ended.log
    );
    let seen = seen(&ended.samples);
    let own = inode("/proc/self/ns/net");
    assert!(sockets.cookies().iter().all(|cookie| seen[cookie] == own));
    assert!(seen.values().all(|&netns| netns == own));

    let output = bare(&["once", "--netns", "all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("needs CAP_SYS_ADMIN") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn where_nothing_happens_walks_are_saved_until_something_does() {
    need_root(WHY);
    let name = format!("st{}i", std::process::id());
    let mut names = Names(VecDeque::new());
    names.add(vec![name.clone()]);
    let netns = inode(&path(&name));
    let idle = Sockets::inside(&path(&name));
    let arguments = [
        "--netns",
        "all",
        "--interval",
        "20ms",
        "--idle-interval",
        "24h",
    ];
    let running = Running::start(
        program(),
        &[&arguments[..], &FILTER, &["--rotate-interval", "50ms"]].concat(),
    );
    running.wait_for_rows();
    thread::sleep(Duration::from_millis(3000));
    // Sockets that come are read by the next poll, though the next walk would have been far away.
    let fresh = Sockets::inside(&path(&name));
    let [cookie, _] = fresh.cookies();
    let polls_of = |cookie: u64, samples: &[Value]| {
        let rows = samples.iter().filter(|sample| sample["cookie"] == cookie);
        rows.filter(|sample| sample["netns"] == netns && sample["kind"] == "SAMPLE_KIND_POLL")
            .count()
    };
    wait_until("a sample of the new socket", || {
        polls_of(cookie, &running.samples()) > 0
    });
    let ended = running.end();
    let walks = polls_of(idle.cookies()[0], &ended.samples) as u64;
    // 1, 2, 4, 8, 16, ... polls apart; anew from when the socket has come. How many polls there are is the machine's
    // business, how walks follow from them is ours.
    let polls = ended.count("polls");
    let at_most = 2 * (u64::from(polls.ilog2()) + 2);
    assert!(
        walks <= at_most && at_most < polls,
        "{walks} walks in {polls} polls"
    );
    assert!(ended.count("walks_saved") > 0);
}

/// At most so many other namespaces may be read now: names, and processes' namespaces.
fn others() -> usize {
    let names = fs::read_dir("/run/netns").into_iter().flatten().count();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let links = processes.filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok());
    names + links.collect::<BTreeSet<_>>().len()
}

/// Open descriptors and threads.
fn holdings(pid: u32) -> (usize, usize) {
    let count = |what| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (count("fd"), count("task"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn three_hundred_namespaces_that_come_and_go_for_a_minute_leave_nothing_behind() {
    need_root(WHY);
    const BATCH: usize = 50;
    const ALIVE: usize = 300;
    const WITH_SOCKETS: usize = 5;
    let start = Instant::now();
    let prefix = format!("st{}c", std::process::id());
    let arguments = [
        "--netns",
        "all",
        "--interval",
        "500ms",
        "--netns-interval",
        "500ms",
    ];
    let more = ["--idle-interval", "1s", "--rotate-interval", "1s"];
    let running = Running::start(program(), &[&arguments[..], &FILTER, &more].concat());
    let mut names = Names(VecDeque::new());
    // Sockets of living namespaces: which, in which, and since when.
    let mut living: VecDeque<(String, u64, Sockets)> = VecDeque::new();
    let mut expected: Vec<(u64, u64)> = Vec::new();
    let mut closed: Vec<u64> = Vec::new();
    let (mut made, mut most) = (0, (0, 0));
    while start.elapsed() < Duration::from_secs(50) || made < ALIVE + 4 * BATCH {
        let fresh: Vec<_> = (made..made + BATCH)
            .map(|number| format!("{prefix}{number}"))
            .collect();
        made += BATCH;
        names.add(fresh.clone());
        for name in &fresh[..WITH_SOCKETS] {
            let path = path(name);
            living.push_back((name.clone(), inode(&path), Sockets::inside(&path)));
        }
        if names.0.len() > ALIVE {
            // It has entered all of them, and seen the sockets of those that go: however long a busy machine takes.
            let leaving = living.iter().take(WITH_SOCKETS);
            let leaving: Vec<_> = leaving.flat_map(|(.., it)| it.cookies()).collect();
            wait_until("a look at every namespace", || {
                let now = holdings(running.pid());
                most = (most.0.max(now.0), most.1.max(now.1));
                now.0 > 2 * ALIVE && {
                    let found = seen(&running.samples());
                    leaving.iter().all(|cookie| found.contains_key(cookie))
                }
            });
            for name in names.0.iter().take(BATCH) {
                if living.front().is_some_and(|(first, ..)| first == name) {
                    let (_, netns, sockets) = living.pop_front().unwrap();
                    expected.extend(sockets.cookies().map(|cookie| (cookie, netns)));
                    closed.extend(sockets.cookies());
                }
            }
            // The sockets closed before their namespace loses its name, as a container's processes end before.
            names.remove(BATCH);
        }
        let now = holdings(running.pid());
        most = (most.0.max(now.0), most.1.max(now.1));
        thread::sleep(Duration::from_millis(400));
    }
    drop(living);
    names.remove(usize::MAX);
    assert!(most.1 <= 2, "{} threads", most.1);

    // Every descriptor of a namespace that has gone is given back: nothing else of ours could keep it alive. Other
    // namespaces of the host come and go meanwhile, each with four.
    wait_until("the namespaces' end", || {
        let held = fs::read_dir(format!("/proc/{}/fd", running.pid()))
            .unwrap()
            .count();
        held < 60 + 4 * others()
    });
    // Namespaces that it has not left were there at its last look, half a second ago at most. A lab may remove 20 meanwhile.
    let alive = others();
    let ended = running.end();
    assert!(ended.count("namespaces_entered") >= ALIVE as u64);
    let left = ended.count("namespaces_left") + alive.max(others()) as u64;
    assert!(left + 20 >= ended.count("namespaces_entered"));
    let seen = seen(&ended.samples);
    let missing: Vec<_> = expected
        .iter()
        .filter(|(cookie, netns)| seen.get(cookie) != Some(netns))
        .collect();
    assert!(
        !expected.is_empty() && missing.is_empty(),
        "{} of {}",
        missing.len(),
        expected.len()
    );
    let closes = ended.with("kind", "SAMPLE_KIND_CLOSE");
    let missing = closed
        .iter()
        .filter(|&&cookie| !closes.iter().any(|close| close["cookie"] == cookie))
        .count();
    assert_eq!(missing, 0, "of {} closed sockets", closed.len());
}
