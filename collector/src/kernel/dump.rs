//! A netlink SOCK_DIAG dump of TCP sockets: the kernel fills one fixed buffer again and again, and each socket is handed
//! on from there. A poll is never held in memory.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::host;
use super::inet_diag::{AF_INET, AF_INET6, SocketView};
use super::netlink::{self, Body, NLM_F_DUMP, NLM_F_REQUEST, SOCK_DIAG_BY_FAMILY};
use crate::stats::Stats;

/// The kernel never fills a dump datagram beyond this, bytes: a larger buffer gains nothing (NLMSG_GOODSIZE is below it,
/// and netlink_dump allocates at most 32 KiB).
const BUFFER: usize = 32 * 1024;

/// The attributes to ask for: all whose bit exists (INET_DIAG_INFO and later), but not the older INET_DIAG_MEMINFO, which
/// SKMEMINFO contains. Numbers above 8 have no bit; the kernel adds them where they exist.
const EXTENSIONS: u8 = 0xfe;

const IPPROTO_TCP: u8 = 6;

/// The address families of a poll, in the order in which they are dumped.
pub const FAMILIES: [u8; 2] = [AF_INET, AF_INET6];

/// Why a dump ended early. Rows handed on before it stand.
#[derive(Debug, thiserror::Error)]
pub enum DumpError<E> {
    /// A system call failed.
    #[error("cannot {what} the kernel's netlink socket: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused the request or broke off.
    #[error("the kernel refused the dump of {family} TCP sockets: {source}{}", hint(.source))]
    Refused {
        /// IPv4 or IPv6.
        family: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Whoever takes the rows failed.
    #[error(transparent)]
    Consumer(E),
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => " (load the module tcp_diag: modprobe tcp_diag)",
        _ => "",
    }
}

/// A netlink socket and its buffer, used again for every dump.
pub struct Dumper {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    sequence: u32,
}

impl Dumper {
    /// Opens the socket in the network namespace of the calling thread. Needs no privilege.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER].into(),
            sequence: 0,
        })
    }

    /// Dumps the sockets of one family whose state's bit is in `states`, calling `each` for every one, with the time at
    /// which the kernel read it (microseconds since the epoch).
    pub fn dump<E>(
        &mut self,
        family: u8,
        states: u32,
        stats: &mut Stats,
        mut each: impl FnMut(i64, &SocketView<'_>, &mut Stats) -> Result<(), E>,
    ) -> Result<(), DumpError<E>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, states, self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request, SendFlags::empty(), &kernel).map_err(|errno| {
            DumpError::Socket {
                what: "write to",
                source: errno.into(),
            }
        })?;
        let refused = |errno| DumpError::Refused {
            family: name(family),
            source: io::Error::from_raw_os_error(errno),
        };
        loop {
            let filled = self.receive(stats).map_err(|source| DumpError::Socket {
                what: "read from",
                source,
            })?;
            let now = host::now_unix_us();
            for message in netlink::messages(&self.buffer[..filled]) {
                let Ok(message) = message else {
                    stats.messages_malformed += 1;
                    continue;
                };
                if message.sequence != self.sequence {
                    stats.messages_other += 1;
                    continue;
                }
                if message.interrupted {
                    stats.dump_messages_interrupted += 1;
                }
                match message.body {
                    Body::Socket(payload) => match SocketView::parse(payload) {
                        Some(view) => each(now, &view, stats).map_err(DumpError::Consumer)?,
                        None => stats.messages_malformed += 1,
                    },
                    Body::Done(0) => return Ok(()),
                    Body::Done(errno) | Body::Error(errno) if errno != 0 => {
                        return Err(refused(errno));
                    }
                    _ => stats.messages_other += 1,
                }
            }
        }
    }

    /// Receives one datagram into the buffer and returns how much of the buffer it fills.
    fn receive(&mut self, stats: &mut Stats) -> io::Result<usize> {
        let (filled, whole) =
            rustix::io::retry_on_intr(|| recv(&self.socket, &mut *self.buffer, RecvFlags::TRUNC))?;
        stats.datagrams += 1;
        stats.bytes_read += whole as u64;
        if whole > filled {
            stats.datagrams_truncated += 1;
        }
        Ok(filled)
    }
}

/// The family's name.
fn name(family: u8) -> &'static str {
    if family == AF_INET { "IPv4" } else { "IPv6" }
}

/// struct nlmsghdr and struct inet_diag_req_v2 with an empty socket id: every socket of the family in `states`.
fn request(family: u8, states: u32, sequence: u32) -> [u8; 72] {
    let mut bytes = [0; 72];
    bytes[0..4].copy_from_slice(&72_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16] = family;
    bytes[17] = IPPROTO_TCP;
    bytes[18] = EXTENSIONS;
    bytes[20..24].copy_from_slice(&states.to_ne_bytes());
    bytes
}
