//! The kernel's floor: requests every TCP socket's tcp_info, receives, discards. The least that any collector costs.
//!
//! `cargo run --release --example floor -- --polls 20`. It queries as the collector does: one walk for both address families,
//! the same states and attributes, a buffer of the same size. It reads nothing of an answer but the header of a datagram's
//! last message, which marks the end of the answer. It shares no code with the collector. Prints one line of JSON:
//! microseconds of CPU and bytes of a poll.

use std::io;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::io::retry_on_intr;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use rustix::time::{ClockId, clock_gettime};

/// The kernel never fills a dump datagram beyond this (netlink_dump).
const BUFFER: usize = 32 * 1024;

/// struct nlmsghdr, struct inet_diag_req, struct inet_diag_req_v2.
const HEADER: usize = 16;
const REQUEST: usize = 60;
const REQUEST_V2: usize = 56;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A message of type NLMSG_DONE: its header and an errno.
const DONE: usize = HEADER + 4;

/// Asks for every TCP socket, receives, discards.
#[derive(Parser)]
struct Options {
    /// Polls to do
    #[arg(long, default_value_t = 10)]
    polls: u32,
    /// Way to query the kernel: once for both families, as the collector does, or for each, as `ss`
    /// does: a tenth more
    #[arg(long, value_enum, default_value = "one-walk")]
    request: Asked,
    /// idiag_ext, the set of attributes: 2 is minimal, 78 default, 254 all
    #[arg(long, default_value_t = 78)]
    attributes: u8,
    /// States, bit N for state N: by default those that the collector reads
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
    let families: &[Option<u8>] = match options.request {
        Asked::OneWalk => &[None],
        Asked::PerFamily => &[Some(AF_INET), Some(AF_INET6)],
    };
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0_u64;
    let before = cpu();
    for poll in 1..=options.polls {
        for &family in families {
            sendto(
                &socket,
                &request(family, &options, poll),
                SendFlags::empty(),
                &SocketAddrNetlink::new(0, 0),
            )?;
            loop {
                let (filled, _) =
                    retry_on_intr(|| recv(&socket, &mut buffer[..], RecvFlags::empty()))?;
                bytes += filled as u64;
                if ends(&buffer[..filled], poll)? {
                    break;
                }
            }
        }
    }
    let used = cpu() - before;
    let polls = f64::from(options.polls.max(1));
    println!(
        "{{\"cpu_us_per_poll\":{:.1},\"bytes_per_poll\":{:.0}}}",
        used.as_secs_f64() * 1e6 / polls,
        bytes as f64 / polls
    );
    Ok(())
}

/// The request of a dump: struct inet_diag_req for both families, struct inet_diag_req_v2 for one.
fn request(family: Option<u8>, options: &Options, sequence: u32) -> Vec<u8> {
    let (kind, length) = match family {
        None => (TCPDIAG_GETSOCK, HEADER + REQUEST),
        Some(_) => (SOCK_DIAG_BY_FAMILY, HEADER + REQUEST_V2),
    };
    let mut bytes = vec![0; length];
    bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    let states = match family {
        None => {
            bytes[HEADER + 3] = options.attributes;
            HEADER + 52
        }
        Some(family) => {
            bytes[HEADER..HEADER + 3].copy_from_slice(&[family, IPPROTO_TCP, options.attributes]);
            HEADER + 4
        }
    };
    bytes[states..states + 4].copy_from_slice(&options.states.to_ne_bytes());
    bytes
}

/// Whether the datagram is the answer's last: NLMSG_DONE is at its end, alone or behind other messages.
fn ends(datagram: &[u8], sequence: u32) -> io::Result<bool> {
    let kind = |message: &[u8]| u16::from_ne_bytes([message[4], message[5]]);
    if datagram.len() < DONE || kind(datagram) == NLMSG_ERROR {
        return Err(io::Error::other("the kernel refused the dump"));
    }
    let last = &datagram[datagram.len() - DONE..];
    Ok(last[..4] == (DONE as u32).to_ne_bytes()
        && kind(last) == NLMSG_DONE
        && last[8..12] == sequence.to_ne_bytes())
}

/// CPU time of this process, user and kernel.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
