//! Makes TCP connections over loopback and holds them, for benchmarks and tests: half of them IPv4, half IPv6, no two alike.
//!
//! `cargo run --release --example sockets -- --sockets 100000`, best in a network namespace of its own. What a connection
//! has sent and received, in how many requests, from which address and under which congestion control algorithm is drawn
//! from its number: the same in every run. Prints one line, `ready COOKIE ...`, with the kernel's cookie of every socket
//! that it holds. Then it reads lines: `churn N` opens and closes N connections a second beside those held; `churn 0` ends
//! that, and once all of them are closed prints `churned COOKIE ...` with both ends of each. Ends at the end of its input.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::net::sockopt::{set_ipv6_freebind, set_tcp_congestion, socket_cookie};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections to one listening port: fewer than there are local ports to connect from.
const PER_LISTENER: usize = 20_000;

/// Most sockets in all.
const LIMIT: usize = 1_000_000;

/// Descriptors that a process needs beside those of the sockets that it holds: for listeners and short connections.
const OTHER_DESCRIPTORS: u64 = 1_000;

/// Connections whose requests are under way at the same time: an answer comes after those of up to as many others, so
/// that round-trip times differ.
const TOGETHER: usize = 64;

/// A part of an answer, bytes: what fits into a socket's buffers, as one thread writes and reads it.
const PART: usize = 16 * 1024;

/// Makes TCP connections over loopback and holds them.
#[derive(Parser)]
struct Options {
    /// Sockets to hold, both ends of a connection counted
    #[arg(long, default_value_t = 20_000)]
    sockets: usize,
    /// Number of the first connection: what is drawn depends on it
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Connect over IPv6 from addresses of fd77::/16, for which the namespace has a route: ip -6 route add local
    /// fd77::/16 dev lo
    #[arg(long)]
    ipv6_clients: bool,
}

/// Properties and work of a connection, drawn from its number.
struct Plan {
    client: Option<IpAddr>,
    algorithm: Option<&'static str>,
    /// Bytes of each request and of its answer.
    requests: Vec<(usize, usize)>,
}

impl Plan {
    fn new(number: usize, ipv6_clients: bool) -> Self {
        let mut state = number as u64;
        let mut below = |bound: u64| {
            // splitmix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut drawn = state;
            drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (drawn ^ (drawn >> 31)) % bound
        };
        let (prefix, host) = (below(1 << 12) as u16, below(u64::MAX));
        let client = match number % 2 {
            0 => {
                let [high, low] = prefix.to_be_bytes();
                Some(Ipv4Addr::new(127, 1 + high, low, 1 + (host % 253) as u8).into())
            }
            _ if ipv6_clients => {
                let address = 0xfd77 << 112 | u128::from(prefix) << 64 | u128::from(host);
                Some(Ipv6Addr::from(address).into())
            }
            _ => None,
        };
        let algorithm = ["cubic", "bbr"].get(below(3) as usize).copied();
        // Half of a connection's answers are short.
        let largest = 1 << (10 + below(8));
        let requests = (0..=below(8))
            .map(|_| {
                let answer = largest >> (below(2) * below(6));
                (80 + below(820), answer + below(answer))
            })
            .map(|(request, answer)| (request as usize, answer as usize))
            .collect();
        Self {
            client,
            algorithm,
            requests,
        }
    }
}

/// A connection's two ends, the client's first.
struct Connection {
    plan: Plan,
    ends: [TcpStream; 2],
}

impl Connection {
    fn cookies(&self) -> io::Result<[u64; 2]> {
        let [client, server] = &self.ends;
        Ok([socket_cookie(client)?, socket_cookie(server)?])
    }

    fn request(&mut self, turn: usize, buffer: &[u8]) -> io::Result<()> {
        let (request, _) = self.plan.requests[turn];
        self.ends[0].write_all(&buffer[..request])
    }

    fn answer(&mut self, turn: usize, buffer: &mut [u8]) -> io::Result<()> {
        let (request, mut left) = self.plan.requests[turn];
        let [client, server] = &mut self.ends;
        server.read_exact(&mut buffer[..request])?;
        while left > 0 {
            let part = left.min(PART);
            server.write_all(&buffer[..part])?;
            client.read_exact(&mut buffer[..part])?;
            left -= part;
        }
        Ok(())
    }

    /// Closes with a reset, because the server leaves a byte unread: ports would be in TIME-WAIT for a minute otherwise,
    /// and run out.
    fn close(self) -> io::Result<()> {
        let [mut client, server] = self.ends;
        client.write_all(&[1])?;
        drop(server);
        Ok(())
    }
}

struct Maker {
    v4: Vec<TcpListener>,
    v6: Vec<TcpListener>,
    made: usize,
    ipv6_clients: bool,
    buffer: Vec<u8>,
}

impl Maker {
    fn new(connections: usize, first: usize, ipv6_clients: bool) -> io::Result<Self> {
        let listeners = connections.div_ceil(2 * PER_LISTENER).max(1);
        let listen = |address: &str| -> io::Result<Vec<_>> {
            (0..listeners)
                .map(|_| TcpListener::bind((address, 0)))
                .collect()
        };
        Ok(Self {
            v4: listen("127.0.0.1")?,
            v6: listen("::1")?,
            made: first,
            ipv6_clients,
            buffer: vec![1; PART],
        })
    }

    /// So many connections over which requests and answers have gone.
    fn connections(&mut self, count: usize) -> io::Result<Vec<Connection>> {
        let mut made = (0..count)
            .map(|_| self.connect())
            .collect::<io::Result<Vec<_>>>()?;
        let requests = made.iter().map(|one| one.plan.requests.len());
        let most = requests.max().unwrap_or(0);
        for turn in 0..most {
            let mut asking: Vec<_> = made
                .iter_mut()
                .filter(|one| turn < one.plan.requests.len())
                .collect();
            for connection in &mut asking {
                connection.request(turn, &self.buffer)?;
            }
            asking.sort_by_key(|one| one.plan.requests[turn]);
            for connection in asking {
                connection.answer(turn, &mut self.buffer)?;
            }
        }
        Ok(made)
    }

    fn connect(&mut self) -> io::Result<Connection> {
        let plan = Plan::new(self.made, self.ipv6_clients);
        let listeners = match self.made % 2 {
            0 => &self.v4,
            _ => &self.v6,
        };
        let listener = &listeners[self.made / 2 % listeners.len()];
        self.made += 1;
        let address = listener.local_addr()?;
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let client = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(from) = plan.client {
            if from.is_ipv6() {
                set_ipv6_freebind(&client, true)?;
            }
            bind(&client, &SocketAddr::new(from, 0))?;
        }
        connect(&client, &address)?;
        let (server, _) = listener.accept()?;
        if let Some(algorithm) = plan.algorithm {
            // One that this kernel has not, or does not allow here: the connection keeps the default.
            let _ = set_tcp_congestion(&server, algorithm);
            let _ = set_tcp_congestion(&client, algorithm);
        }
        Ok(Connection {
            plan,
            ends: [client.into(), server],
        })
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    if options.sockets > LIMIT {
        return Err(io::Error::other(format!("at most {LIMIT} sockets")));
    }
    // Both ends of a connection are in one process.
    let most = (descriptors().saturating_sub(OTHER_DESCRIPTORS) & !1).max(2);
    let own = options.sockets.min(most as usize);
    let mut helpers = helpers(&options, own, most as usize)?;
    let connections = own / 2;
    let mut maker = Maker::new(connections, options.first, options.ipv6_clients)?;
    let mut held = Vec::with_capacity(connections);
    while held.len() < connections {
        held.extend(maker.connections(TOGETHER.min(connections - held.len()))?);
    }
    let mut cookies = Vec::with_capacity(options.sockets);
    for connection in &held {
        cookies.extend(connection.cookies()?);
    }
    for helper in &mut helpers {
        cookies.extend(await_ready(helper)?);
    }
    print("ready", &cookies);
    let mut churn = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let rate = line.strip_prefix("churn ").map(str::parse::<u32>);
        match rate {
            Some(Ok(0)) => print("churned", &Churn::stop(churn.take())?),
            Some(Ok(rate)) => churn = Some(Churn::start(rate, options.ipv6_clients)),
            _ => return Err(io::Error::other(format!("unknown command: {line}"))),
        }
    }
    Churn::stop(churn)?;
    for mut helper in helpers {
        // The end of its input ends it.
        drop(helper.stdin.take());
        helper.wait()?;
    }
    Ok(())
}

/// Number of descriptors that this process may have, its limit raised as far as it may be.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let in_force = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    in_force.unwrap_or(u64::MAX)
}

fn print(word: &str, cookies: &[u64]) {
    let cookies: Vec<_> = cookies.iter().map(u64::to_string).collect();
    println!("{word} {}", cookies.join(" "));
}

/// Starts this program for the sockets that this process may not hold itself, `most` in each.
fn helpers(options: &Options, own: usize, most: usize) -> io::Result<Vec<Child>> {
    let left = options.sockets - own;
    (0..left.div_ceil(most))
        .map(|at| {
            let share = most.min(left - at * most);
            let first = options.first + (own + at * most) / 2;
            Command::new(std::env::current_exe()?)
                .args(["--sockets", &share.to_string()])
                .args(["--first", &first.to_string()])
                .args(options.ipv6_clients.then_some("--ipv6-clients"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect()
}

/// Waits until the helper's sockets stand; their cookies.
fn await_ready(helper: &mut Child) -> io::Result<Vec<u64>> {
    let mut line = String::new();
    if let Some(out) = &mut helper.stdout {
        BufReader::new(out).read_line(&mut line)?;
    }
    let words = line.strip_prefix("ready ").map(str::split_whitespace);
    words
        .and_then(|words| words.map(|word| word.parse().ok()).collect())
        .ok_or_else(|| io::Error::other("a helper has failed"))
}

/// Connections that come and go, in a thread of their own.
struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<u64>>>,
}

impl Churn {
    fn start(rate: u32, ipv6_clients: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = thread::spawn(move || churn(rate, ipv6_clients, &seen));
        Self { stop, thread }
    }

    /// Waits until all are closed; their cookies, none when there was no churn.
    fn stop(running: Option<Self>) -> io::Result<Vec<u64>> {
        let Some(Self { stop, thread }) = running else {
            return Ok(Vec::new());
        };
        stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| {
            io::Error::other("the thread that opens and closes connections has panicked")
        })?
    }
}

/// Opens and closes connections at the wanted rate; each lives for about 50 ms.
fn churn(rate: u32, ipv6_clients: bool, stop: &AtomicBool) -> io::Result<Vec<u64>> {
    let mut maker = Maker::new(1, 0, ipv6_clients)?;
    let (mut living, mut cookies) = (VecDeque::new(), Vec::new());
    let start = Instant::now();
    let mut made = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        let wanted = (start.elapsed().as_secs_f64() * f64::from(rate)) as usize;
        // After a pause not all that are missing at once: there are descriptors for some hundreds.
        for connection in maker.connections(TOGETHER.min(wanted - made))? {
            cookies.extend(connection.cookies()?);
            living.push_back((Instant::now(), connection));
            made += 1;
        }
        let old = |(since, _): &(Instant, Connection)| since.elapsed() > Duration::from_millis(50);
        while living.front().is_some_and(old) {
            if let Some((_, connection)) = living.pop_front() {
                connection.close()?;
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    for (_, connection) in living {
        connection.close()?;
    }
    Ok(cookies)
}
