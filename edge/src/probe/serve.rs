//! The small server of the three objects. One thread; connections, times and answers in a second are bounded, so that
//! whoever reaches it costs the edge little: 64 connections, half a minute each, 50 answers (5 MB) in a second.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use super::objects::{SIZES, WINDOW, end_of_head, requested};
use crate::error::{Error, Result};
use crate::text::reason;

const CONNECTIONS: usize = 64;
/// Connections of one address, or of 64 bits of IPv6. An edge has one at a time, and those that it gave up.
const CONNECTIONS_OF_ONE: usize = 4;
const ANSWERS_PER_S: u32 = 50;
const MOST_HEAD_BYTES: usize = 1024;
/// From the handshake to the whole request, which a probe sends at once; and to the end, where others wait for room.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// A connection's longest life: more than a client waits by default.
const LIFE: Duration = Duration::from_secs(30);

/// Serves until the process ends.
pub(super) fn run(addresses: &[SocketAddr]) -> Result<String> {
    let listeners = addresses.iter().map(|address| {
        let made = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        made.map_err(|error| {
            let fix = "give an address of this host and a port that is free";
            Error::failed(format!("--serve {address}: {}; {fix}", reason(&error)))
        })
    });
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    let ended: io::Result<Infallible> = Server::new(listeners).run();
    let Err(error) = ended;
    Err(Error::failed(format!(
        "probe: cannot wait for connections: {}; start it again",
        reason(&error)
    )))
}

struct Server {
    listeners: Vec<TcpListener>,
    clients: Vec<Client>,
    budget: Budget,
}

impl Server {
    fn new(listeners: Vec<TcpListener>) -> Self {
        Self {
            listeners,
            clients: Vec::new(),
            budget: Budget::new(Instant::now()),
        }
    }

    fn run(mut self) -> io::Result<Infallible> {
        loop {
            let (ready, calls) = self.wait()?;
            let now = Instant::now();
            let mut ready = ready.into_iter();
            let budget = &mut self.budget;
            self.clients.retain_mut(|client| {
                let ready = ready.next().unwrap_or(false);
                !client.is_late(now) && (!ready || client.go_on(now, budget))
            });
            for (listener, called) in self.listeners.iter().zip(calls) {
                // One at a time: whoever is full closes one for it. Whoever was idle has perhaps asked meanwhile.
                if called && may_take(&self.clients, now) {
                    accept(listener, &mut self.clients, now);
                }
            }
        }
    }

    /// Clients and listeners that have something to do, or neither: somebody's time is over.
    fn wait(&self) -> io::Result<(Vec<bool>, Vec<bool>)> {
        let now = Instant::now();
        let mut waiting: Vec<PollFd<'_>> = Vec::new();
        for client in &self.clients {
            waiting.push(PollFd::new(&client.stream, client.state.waits_for()));
        }
        // With nobody who may be closed, those who call wait in the kernel's queue.
        let takes = may_take(&self.clients, now);
        if takes {
            for listener in &self.listeners {
                waiting.push(PollFd::new(listener, PollFlags::IN));
            }
        }
        // Clients are in the order in which they came: the first is the first that may be closed.
        let first = self.clients.first().filter(|_| !takes);
        let yields = first.map(|client| client.since + REQUEST_TIME);
        let ends = self.clients.iter().map(Client::ends).chain(yields);
        let left = ends.min().map(|end| end.saturating_duration_since(now));
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found: Vec<bool> = waiting
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        let calls = found.split_off(self.clients.len());
        Ok((found, calls))
    }
}

fn accept(listener: &TcpListener, clients: &mut Vec<Client>, now: Instant) {
    let (stream, peer) = match listener.accept() {
        Ok(found) => found,
        Err(error) => {
            // Out of memory or descriptors: it would be there again at once.
            if !matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted
            ) {
                sleep(Duration::from_millis(50));
            }
            return;
        }
    };
    if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
        return;
    }
    // Data not taken by its client at the close is dropped: the kernel would keep it for minutes.
    if set_socket_linger(&stream, Some(Duration::ZERO)).is_err() {
        return;
    }
    let address = network(peer.ip());
    if let Some(at) = to_close(clients, address, now) {
        clients.remove(at);
    }
    if clients.len() < CONNECTIONS {
        clients.push(Client {
            stream,
            address,
            since: now,
            state: State::Asked(Vec::new()),
        });
    }
}

/// Whether there is room, or somebody who makes room.
fn may_take(clients: &[Client], now: Instant) -> bool {
    clients.len() < CONNECTIONS || clients.iter().any(|client| client.may_go(now))
}

/// Whom its connections are counted of: whoever has an IPv6 address has 64 bits of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The connection that a new one replaces; they are in the order in which they came. An address that has enough loses
/// its oldest. With no room, the oldest that has asked for nothing goes: a probe's request is there before the
/// connection is taken. Else it is the oldest, if it reads slowly.
fn to_close(clients: &[Client], address: IpAddr, now: Instant) -> Option<usize> {
    let own = clients.iter().filter(|client| client.address == address);
    if own.count() >= CONNECTIONS_OF_ONE {
        return clients.iter().position(|client| client.address == address);
    }
    if clients.len() < CONNECTIONS {
        return None;
    }
    let idle = clients.iter().position(Client::is_idle);
    idle.or_else(|| clients.iter().position(|client| client.may_go(now)))
}

enum State {
    /// The request, as far as it has come.
    Asked(Vec<u8>),
    /// The answer, and where the rest of it begins.
    Answered(Vec<u8>, usize),
    /// Sent whole; so many bytes came after the request. The client closes first: otherwise what it still sends would be
    /// answered by a reset, which can overtake the object.
    Sent(usize),
}

impl State {
    fn waits_for(&self) -> PollFlags {
        match self {
            Self::Answered(..) => PollFlags::OUT,
            Self::Asked(_) | Self::Sent(_) => PollFlags::IN,
        }
    }
}

struct Client {
    stream: TcpStream,
    address: IpAddr,
    since: Instant,
    state: State,
}

impl Client {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Asked(_))
    }

    /// Whether it may be closed for another, where there is no room.
    fn may_go(&self, now: Instant) -> bool {
        self.is_idle() || now >= self.since + REQUEST_TIME
    }

    fn ends(&self) -> Instant {
        let time = if self.is_idle() { REQUEST_TIME } else { LIFE };
        self.since + time
    }

    fn is_late(&self, now: Instant) -> bool {
        now >= self.ends()
    }

    /// One step; false when the connection is to be closed.
    fn go_on(&mut self, now: Instant, budget: &mut Budget) -> bool {
        let done = match &self.state {
            State::Asked(_) => self.read(now, budget),
            State::Answered(..) => self.write(),
            State::Sent(_) => self.drain(),
        };
        match done {
            Ok(stays) => stays,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn read(&mut self, now: Instant, budget: &mut Budget) -> io::Result<bool> {
        let State::Asked(head) = &mut self.state else {
            return Ok(true);
        };
        let mut piece = [0; MOST_HEAD_BYTES];
        let count = self.stream.read(&mut piece)?;
        head.extend(&piece[..count]);
        let Some(end) = end_of_head(head) else {
            return Ok(count > 0 && head.len() < MOST_HEAD_BYTES);
        };
        let answer = match requested(&head[..end]) {
            None => refusal("404 Not Found"),
            Some(_) if !budget.take(now) => refusal("503 Service Unavailable"),
            Some(size) => object(size, started_with(&self.stream)),
        };
        self.state = State::Answered(answer, 0);
        self.write()
    }

    fn write(&mut self) -> io::Result<bool> {
        let State::Answered(answer, from) = &mut self.state else {
            return Ok(true);
        };
        while *from < answer.len() {
            *from += self.stream.write(&answer[*from..])?;
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.state = State::Sent(0);
        Ok(true)
    }

    fn drain(&mut self) -> io::Result<bool> {
        let State::Sent(seen) = &mut self.state else {
            return Ok(true);
        };
        let count = self.stream.read(&mut [0; MOST_HEAD_BYTES])?;
        *seen += count;
        Ok(count > 0 && *seen <= MOST_HEAD_BYTES)
    }
}

fn refusal(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Head and body together: a head alone would be a segment of its own.
fn object(size: usize, window: Option<u32>) -> Vec<u8> {
    debug_assert!(SIZES.contains(&size));
    let window = window.map_or(String::new(), |segments| {
        format!("{WINDOW}: {segments}\r\n")
    });
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n{window}\
         Connection: close\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + size, 0);
    answer
}

/// The congestion window of a connection that has sent nothing yet, segments.
fn started_with(stream: &TcpStream) -> Option<u32> {
    // SAFETY: tcp_info is plain numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    // SAFETY: `info` is as long as `length` says, and both outlive the call; the kernel writes no more than that.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (code == 0 && info.tcpi_snd_cwnd > 0).then_some(info.tcpi_snd_cwnd)
}

/// Number of objects that may still be sent in this second.
struct Budget {
    since: Instant,
    left: u32,
}

impl Budget {
    const fn new(now: Instant) -> Self {
        Self {
            since: now,
            left: ANSWERS_PER_S,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self::new(now);
        }
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Budget, network};

    #[test]
    fn whoever_has_an_address_has_64_bits_of_them() {
        let of = |address: &str| network(address.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn a_second_has_fifty_answers() {
        let begun = Instant::now();
        let mut budget = Budget::new(begun);
        let taken = |budget: &mut Budget, after_ms: u64| {
            let now = begun + Duration::from_millis(after_ms);
            (0..1000).filter(|_| budget.take(now)).count()
        };
        assert_eq!(taken(&mut budget, 0), 50);
        assert_eq!(taken(&mut budget, 999), 0);
        assert_eq!(taken(&mut budget, 1000), 50);
        assert_eq!(
            taken(&mut budget, 60_000),
            50,
            "what was left is not saved up"
        );
    }
}
