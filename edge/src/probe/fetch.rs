//! One object over one fresh connection, by a clock that nobody sets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::objects::{end_of_head, promise, request};

/// Bytes of an answer's head, at most.
const MOST_HEAD_BYTES: usize = 4096;

/// Outcome of a fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    Ok,
    /// There was no connection: refused, or no way there.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It ended early.
    Closed,
    /// The answer was not the object: another status, length or form.
    Answer,
}

impl Outcome {
    /// As the results name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Answer => "answer",
        }
    }
}

/// Times since the connection was begun, as far as it came.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) outcome: Outcome,
    /// A round trip, and whatever was lost of the handshake.
    pub(super) connect: Option<Duration>,
    pub(super) first_byte: Option<Duration>,
    pub(super) total: Option<Duration>,
    /// Window that the server says its side started with, segments.
    pub(super) window: Option<u32>,
}

/// Takes no more than the object's size and a head, and no longer than `time`, from the first SYN to the last byte.
pub(super) fn fetch(target: SocketAddr, size: usize, time: Duration) -> Fetched {
    let mut found = Fetched {
        outcome: Outcome::Ok,
        connect: None,
        first_byte: None,
        total: None,
        window: None,
    };
    if let Err(outcome) = attempt(target, size, time, &mut found) {
        found.outcome = outcome;
    }
    found
}

fn attempt(
    target: SocketAddr,
    size: usize,
    time: Duration,
    found: &mut Fetched,
) -> Result<(), Outcome> {
    let begun = Instant::now();
    let mut stream =
        TcpStream::connect_timeout(&target, time).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Outcome::Timeout,
            _ => Outcome::Unreachable,
        })?;
    found.connect = Some(begun.elapsed());
    let request = request(size, &target.to_string());
    stream
        .set_write_timeout(Some(time))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .map_err(|error| broken(&error))?;
    // The head and whatever of the body comes along with it.
    let mut head = vec![0; MOST_HEAD_BYTES];
    let mut filled = 0;
    let body = loop {
        let room = head.get_mut(filled..).unwrap_or_default();
        if room.is_empty() {
            return Err(Outcome::Answer);
        }
        filled += read(&mut stream, room, begun, time)?;
        found.first_byte.get_or_insert_with(|| begun.elapsed());
        if let Some(at) = end_of_head(&head[..filled]) {
            break at;
        }
    };
    found.window = promise(&head[..body], size).ok_or(Outcome::Answer)?.window;
    // A server that sends more than was promised is not listened to any longer.
    let mut left = size.checked_sub(filled - body).ok_or(Outcome::Answer)?;
    let mut piece = vec![0; 1 << 16];
    while left > 0 {
        let most = left.min(piece.len());
        left -= read(&mut stream, &mut piece[..most], begun, time)?;
    }
    found.total = Some(begun.elapsed());
    Ok(())
}

/// At least one byte; each wait is as long as what is left of the whole.
fn read(
    stream: &mut TcpStream,
    into: &mut [u8],
    begun: Instant,
    time: Duration,
) -> Result<usize, Outcome> {
    loop {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(Outcome::Timeout);
        }
        match stream
            .set_read_timeout(Some(left))
            .and_then(|()| stream.read(into))
        {
            Ok(0) => return Err(Outcome::Closed),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(&error)),
        }
    }
}

fn broken(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Outcome::Timeout,
        _ => Outcome::Closed,
    }
}
