//! The kernel's floor: asks for every TCP socket's tcp_info, receives, discards. What any collector costs at least.
//!
//! `cargo run --release --example floor -- --polls 20`. Prints one line of JSON: sockets of a poll, and microseconds of CPU
//! and bytes for each.

use std::io;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::io::retry_on_intr;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use springtide_collector::parts::dump::{Attributes, BUFFER, Method, Request, message};

/// Asks for every TCP socket, receives, discards.
#[derive(Parser)]
struct Options {
    /// Polls to do
    #[arg(long, default_value_t = 10)]
    polls: u32,
    /// How the kernel is asked: for each family, as `ss` and collectors do (SOCK_DIAG_BY_FAMILY), or once for both
    /// (TCPDIAG_GETSOCK), as ours does: a tenth less
    #[arg(long, value_enum, default_value = "per-family")]
    request: Asked,
    /// idiag_ext, the set of attributes: 2 is minimal, 78 default, 254 all
    #[arg(long, default_value_t = Attributes::DEFAULT.0)]
    attributes: u8,
    /// States, bit N for state N
    #[arg(long, default_value_t = 0xfbe)]
    states: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Asked {
    OneWalk,
    PerFamily,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let method = match options.request {
        Asked::OneWalk => Method::OneWalk,
        Asked::PerFamily => Method::WalkPerFamily,
    };
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let mut buffer = vec![0; BUFFER];
    let (mut bytes, mut sockets) = (0_u64, 0_u64);
    let before = cpu();
    for sequence in 1..=options.polls {
        for &family in method.walks() {
            let request = Request {
                states: options.states,
                attributes: Attributes(options.attributes),
                bytecode: &[],
            };
            let message = message(family, &request, sequence);
            sendto(
                &socket,
                &message,
                SendFlags::empty(),
                &SocketAddrNetlink::new(0, 0),
            )?;
            loop {
                let (filled, _) =
                    retry_on_intr(|| recv(&socket, &mut buffer[..], RecvFlags::empty()))?;
                bytes += filled as u64;
                if sequence == 1 {
                    sockets += count(&buffer[..filled]);
                }
                if is_last(&buffer[..filled], sequence) {
                    break;
                }
            }
        }
    }
    let used = cpu() - before;
    let polled = sockets * u64::from(options.polls);
    println!(
        "{{\"sockets\":{sockets},\"cpu_us_per_socket\":{:.4},\"bytes_per_socket\":{:.1}}}",
        used.as_secs_f64() * 1e6 / polled.max(1) as f64,
        bytes as f64 / polled.max(1) as f64
    );
    Ok(())
}

/// Whether the datagram is an error or ends with NLMSG_DONE and its errno, 20 bytes.
fn is_last(datagram: &[u8], sequence: u32) -> bool {
    const ERROR: [u8; 2] = [2, 0];
    const DONE: [u8; 2] = [3, 0];
    let done = datagram.last_chunk::<20>().is_some_and(|message| {
        message[..4] == [20, 0, 0, 0]
            && message[4..6] == DONE
            && message[8..12] == sequence.to_ne_bytes()
    });
    done || datagram[4..6] == ERROR
}

/// Messages in a datagram that are about a socket.
fn count(datagram: &[u8]) -> u64 {
    springtide_collector::parts::netlink::messages(datagram)
        .map_while(Result::ok)
        .filter(|message| {
            matches!(
                message.body,
                springtide_collector::parts::netlink::Body::Socket(_)
            )
        })
        .count() as u64
}

/// CPU time of this process, user and kernel.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
