//! Load on loopback, for a bench of the eBPF enforcement: connections that open and reset, or one stream.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::net::sockopt::set_socket_linger;

#[derive(Parser)]
struct Options {
    /// Moves itself there first.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// One connection that carries as much as it can, instead of many.
    #[arg(long)]
    stream: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if let Some(cgroup) = &options.cgroup {
        fs::write(cgroup.join("cgroup.procs"), process::id().to_string())?;
    }
    let time = Duration::from_secs_f64(options.seconds);
    println!(
        "{:.1}",
        if options.stream {
            stream(time)?
        } else {
            connections(time)?
        }
    );
    Ok(())
}

/// Connections a second, one after another.
fn connections(time: Duration) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let begin = Instant::now();
    let mut count = 0.0;
    while begin.elapsed() < time {
        let opened = TcpStream::connect(address)?;
        let (accepted, _) = listener.accept()?;
        // A reset leaves no port waiting.
        set_socket_linger(&opened, Some(Duration::ZERO))?;
        drop(opened);
        drop(accepted);
        count += 1.0;
    }
    Ok(count / begin.elapsed().as_secs_f64())
}

/// Bytes a second.
fn stream(time: Duration) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 18];
        while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    let data = vec![0; 1 << 18];
    let begin = Instant::now();
    let mut bytes = 0.0;
    while begin.elapsed() < time {
        sender.write_all(&data)?;
        bytes += data.len() as f64;
    }
    let rate = bytes / begin.elapsed().as_secs_f64();
    drop(sender);
    reader.join().map_err(|_| "the reader failed")?;
    Ok(rate)
}
