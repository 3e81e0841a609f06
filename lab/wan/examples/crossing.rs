//! Measures the way from one network namespace to another, whatever makes it: round trip, rate, queue and loss.
//!
//! `crossing FROM TO ADDRESS RATE_MBIT`: FROM and TO are files of namespaces, ADDRESS is that of TO as FROM reaches it. Small
//! packets are echoed; then as many go one way that none waits, of which the share that is missing is the loss; then as much as
//! is twice the rate. What arrives of that shows the rate, and by how much later it arrives than a small one, the queue.
//! Prints one line of JSON. Packets count with their IP and UDP headers.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

const HEADERS: usize = 28;
const SMALL: usize = 100;
const LARGE: usize = 1200;
const ECHOES: u32 = 40;
const LOSSES: u32 = 4000;
const OVERLOAD: Duration = Duration::from_secs(4);
const SILENCE: Duration = Duration::from_secs(3);

/// Purpose of a packet; its first byte.
const ECHO: u8 = 0;
const LOSS: u8 = 1;
const FLOOD: u8 = 2;

/// A packet that came: what for, and when it was sent and received, seconds.
struct Arrival {
    kind: u8,
    sent: f64,
    received: f64,
}

fn socket_in(namespace: &str, address: &str) -> io::Result<UdpSocket> {
    let file = File::open(namespace)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    UdpSocket::bind(address)
}

fn packet(kind: u8, start: Instant, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[0] = kind;
    packet[8..16].copy_from_slice(&start.elapsed().as_secs_f64().to_le_bytes());
    packet
}

fn sent_at(packet: &[u8]) -> f64 {
    packet
        .get(8..16)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0.0, f64::from_le_bytes)
}

/// All that comes until nothing has come for a while; echoes go back.
fn receive(socket: &UdpSocket, start: Instant) -> io::Result<Vec<Arrival>> {
    socket.set_read_timeout(Some(SILENCE))?;
    let (mut found, mut buffer) = (Vec::new(), [0; 2048]);
    while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
        let arrival = Arrival {
            kind: buffer[0],
            sent: sent_at(&buffer),
            received: start.elapsed().as_secs_f64(),
        };
        if arrival.kind == ECHO {
            socket.send_to(&buffer[..bytes], from)?;
        }
        found.push(arrival);
    }
    Ok(found)
}

fn round_trips(socket: &UdpSocket, start: Instant) -> io::Result<Vec<f64>> {
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    let (mut found, mut buffer) = (Vec::new(), [0; 2048]);
    for _ in 0..ECHOES {
        socket.send(&packet(ECHO, start, SMALL))?;
        if socket.recv(&mut buffer).is_ok() {
            found.push(start.elapsed().as_secs_f64() - sent_at(&buffer));
        }
    }
    Ok(sorted(found))
}

/// As much as the rate carries twice; what was sent, bytes per second.
fn flood(socket: &UdpSocket, start: Instant, rate: f64) -> io::Result<f64> {
    let (begin, mut bytes) = (Instant::now(), 0.0);
    while begin.elapsed() < OVERLOAD {
        while bytes < begin.elapsed().as_secs_f64() * 2.0 * rate {
            socket.send(&packet(FLOOD, start, LARGE))?;
            bytes += (LARGE + HEADERS) as f64;
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(bytes / begin.elapsed().as_secs_f64())
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(arguments: &[String]) -> io::Result<String> {
    let [from, to, address, rate] = arguments else {
        return Err(io::Error::other(
            "usage: crossing FROM TO ADDRESS RATE_MBIT",
        ));
    };
    let rate = rate.parse::<f64>().map_err(io::Error::other)? * 1e6 / 8.0;
    let start = Instant::now();
    let far = thread::spawn({
        let (to, address) = (to.clone(), format!("{address}:7000"));
        move || receive(&socket_in(&to, &address)?, start)
    });
    thread::sleep(Duration::from_millis(500));
    let near = socket_in(from, "0.0.0.0:0")?;
    near.connect(format!("{address}:7000"))?;
    let echoes = round_trips(&near, start)?;
    for _ in 0..LOSSES {
        near.send(&packet(LOSS, start, SMALL))?;
        thread::sleep(Duration::from_micros(800));
    }
    thread::sleep(Duration::from_millis(500));
    let offered = flood(&near, start, rate)?;
    let arrivals = far
        .join()
        .map_err(|_| io::Error::other("the receiver failed"))??;
    let delays = |kind: u8| {
        let of_kind = arrivals.iter().filter(move |one| one.kind == kind);
        of_kind.map(|one| one.received - one.sent)
    };
    let small = sorted(delays(LOSS).collect());
    let large: Vec<f64> = delays(FLOOD).collect();
    // The queue is full by then.
    let full: Vec<&Arrival> = arrivals
        .iter()
        .filter(|one| one.kind == FLOOD)
        .skip(large.len() / 4)
        .collect();
    let (Some(first), Some(last)) = (full.first(), full.last()) else {
        return Err(io::Error::other("nothing arrived"));
    };
    let size = (LARGE + HEADERS) as f64;
    let carried = (full.len() - 1) as f64 * size / (last.received - first.received);
    let waited = median(&sorted(large[large.len() / 4..].to_vec())) - median(&small);
    let found = json!({
        "rtt_ms": median(&echoes) * 1e3,
        "loss_percent": 100.0 * (1.0 - small.len() as f64 / f64::from(LOSSES)),
        "rate_mbit": carried * 8.0 / 1e6,
        "queue_packets": waited * carried / size,
        "offered_mbit": offered * 8.0 / 1e6,
    });
    Ok(found.to_string())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("crossing: {error}");
            ExitCode::FAILURE
        }
    }
}
