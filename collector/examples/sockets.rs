//! Makes TCP connections over loopback and holds them, for benchmarks and tests: half of them IPv4, half IPv6.
//!
//! `cargo run --release --example sockets -- --sockets 100000 --churn 2000`, best in a network namespace of its own. Prints
//! `ready SOCKETS` when they stand; then, as often as it reads a line, how many connections it has opened and closed since;
//! ends at the end of its standard input.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use springtide_collector::parts::host::raise_descriptor_limit;

/// Connections to one listening port: fewer than there are local ports to connect from.
const PER_LISTENER: usize = 20_000;

/// Most sockets in all.
const LIMIT: usize = 1_000_000;

/// Descriptors that a process needs beside those of the sockets that it holds: for listeners and short connections.
const OTHER_DESCRIPTORS: u64 = 1_000;

/// Makes TCP connections over loopback and holds them.
#[derive(Parser)]
struct Options {
    /// Sockets to hold, both ends of a connection counted
    #[arg(long, default_value_t = 20_000)]
    sockets: usize,
    /// Bytes to send over each connection, in both directions
    #[arg(long, default_value_t = 2_000)]
    bytes: usize,
    /// Connections to open, use and close a second, beside those held
    #[arg(long, default_value_t = 0)]
    churn: u32,
}

struct Maker {
    v4: Vec<TcpListener>,
    v6: Vec<TcpListener>,
    made: usize,
}

impl Maker {
    fn new(connections: usize) -> io::Result<Self> {
        let listeners = connections.div_ceil(2 * PER_LISTENER).max(1);
        let listen = |address: &str| -> io::Result<Vec<_>> {
            (0..listeners)
                .map(|_| TcpListener::bind((address, 0)))
                .collect()
        };
        Ok(Self {
            v4: listen("127.0.0.1")?,
            v6: listen("::1")?,
            made: 0,
        })
    }

    /// A connection over which `bytes` have gone both ways.
    fn connection(&mut self, bytes: &mut [u8]) -> io::Result<[TcpStream; 2]> {
        let listeners = if self.made.is_multiple_of(2) {
            &self.v4
        } else {
            &self.v6
        };
        let listener = &listeners[self.made / 2 % listeners.len()];
        self.made += 1;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (mut server, _) = listener.accept()?;
        client.write_all(bytes)?;
        server.read_exact(bytes)?;
        server.write_all(bytes)?;
        client.read_exact(bytes)?;
        Ok([client, server])
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    if options.sockets > LIMIT {
        return Err(io::Error::other(format!("at most {LIMIT} sockets")));
    }
    let most = raise_descriptor_limit().unwrap_or(u64::MAX) - OTHER_DESCRIPTORS;
    let own = options.sockets.min(most as usize);
    let mut helpers = helpers(options.sockets - own, most as usize, options.bytes)?;
    let connections = own / 2;
    let mut maker = Maker::new(connections)?;
    let mut bytes = vec![1; options.bytes];
    let mut held = Vec::with_capacity(connections);
    for _ in 0..connections {
        held.push(maker.connection(&mut bytes)?);
    }
    let mut ready = held.len() * 2;
    for (helper, count) in &mut helpers {
        ready += await_ready(helper, *count)?;
    }
    println!("ready {ready}");
    let stop = Arc::new(AtomicBool::new(false));
    let churned = Arc::new(AtomicU64::new(0));
    let worker = {
        let (stop, churned) = (stop.clone(), churned.clone());
        thread::spawn(move || churn(&options, &stop, &churned))
    };
    for line in io::stdin().lock().lines() {
        line?;
        println!("churned {}", churned.load(Ordering::Relaxed));
    }
    stop.store(true, Ordering::Relaxed);
    worker.join().map_err(|_| {
        io::Error::other("the thread that opens and closes connections has panicked")
    })??;
    println!("churned {}", churned.load(Ordering::Relaxed));
    for (mut helper, _) in helpers {
        // The end of its input ends it.
        drop(helper.stdin.take());
        helper.wait()?;
    }
    Ok(())
}

/// Starts this program for the sockets that this process may not hold itself, `most` in each.
fn helpers(sockets: usize, most: usize, bytes: usize) -> io::Result<Vec<(Child, usize)>> {
    let shares = (0..sockets.div_ceil(most)).map(|at| most.min(sockets - at * most));
    shares
        .map(|share| {
            let helper = Command::new(std::env::current_exe()?)
                .args(["--sockets", &share.to_string()])
                .args(["--bytes", &bytes.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            Ok((helper, share))
        })
        .collect()
}

/// Waits until the helper's sockets stand; how many there are.
fn await_ready(helper: &mut Child, sockets: usize) -> io::Result<usize> {
    let mut line = String::new();
    if let Some(out) = &mut helper.stdout {
        BufReader::new(out).read_line(&mut line)?;
    }
    match line.starts_with("ready") {
        true => Ok(sockets / 2 * 2),
        false => Err(io::Error::other("a helper has failed")),
    }
}

/// Opens and closes connections at the wanted rate; each lives for about 50 ms.
fn churn(options: &Options, stop: &AtomicBool, churned: &AtomicU64) -> io::Result<()> {
    let mut maker = Maker::new(1)?;
    let mut bytes = vec![1; options.bytes];
    let mut living = VecDeque::new();
    let start = Instant::now();
    let mut made = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let wanted = (start.elapsed().as_secs_f64() * f64::from(options.churn)) as u64;
        while made < wanted {
            living.push_back((Instant::now(), maker.connection(&mut bytes)?));
            made += 1;
        }
        while living
            .front()
            .is_some_and(|(since, _)| since.elapsed() > Duration::from_millis(50))
        {
            close(living.pop_front().map(|(_, ends)| ends))?;
            churned.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(2));
    }
    for (_, ends) in living {
        close(Some(ends))?;
        churned.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Closes with a reset, because the server leaves a byte unread: ports would be in TIME-WAIT for a minute otherwise, and
/// run out.
fn close(ends: Option<[TcpStream; 2]>) -> io::Result<()> {
    if let Some([mut client, server]) = ends {
        client.write_all(&[1])?;
        drop(server);
    }
    Ok(())
}
