//! A netlink SOCK_DIAG dump of TCP sockets: the kernel fills one fixed buffer again and again, and each socket is handed
//! on from there. A poll is never held in memory.

use std::io;
use std::ops::ControlFlow;
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
        loop {
            let filled = self.receive(stats).map_err(|source| DumpError::Socket {
                what: "read from",
                source,
            })?;
            let now = host::now_unix_us();
            let mut stamped = |view: &SocketView<'_>, stats: &mut Stats| each(now, view, stats);
            if take(
                &self.buffer[..filled],
                (family, self.sequence),
                stats,
                &mut stamped,
            )?
            .is_break()
            {
                return Ok(());
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

/// Hands on the sockets of one datagram; breaks when the dump numbered `sequence` is complete.
fn take<E>(
    datagram: &[u8],
    (family, sequence): (u8, u32),
    stats: &mut Stats,
    each: &mut impl FnMut(&SocketView<'_>, &mut Stats) -> Result<(), E>,
) -> Result<ControlFlow<()>, DumpError<E>> {
    let refused = |errno| DumpError::Refused {
        family: name(family),
        source: io::Error::from_raw_os_error(errno),
    };
    for message in netlink::messages(datagram) {
        let Ok(message) = message else {
            stats.messages_malformed += 1;
            continue;
        };
        if message.sequence != sequence {
            stats.messages_other += 1;
            continue;
        }
        if message.interrupted {
            stats.dump_messages_interrupted += 1;
        }
        match message.body {
            Body::Socket(payload) => match SocketView::parse(payload) {
                Some(view) => each(&view, stats).map_err(DumpError::Consumer)?,
                None => stats.messages_malformed += 1,
            },
            Body::Done(0) => return Ok(ControlFlow::Break(())),
            Body::Done(errno) | Body::Error(errno) if errno != 0 => return Err(refused(errno)),
            _ => stats.messages_other += 1,
        }
    }
    Ok(ControlFlow::Continue(()))
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

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u32 = 7;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(16 + payload.len())
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn socket() -> Vec<u8> {
        let mut payload = vec![0; 72];
        payload[0] = AF_INET;
        message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &payload)
    }

    fn done(errno: i32) -> Vec<u8> {
        message(3, 2, SEQUENCE, &errno.to_ne_bytes())
    }

    type Taken = (Result<ControlFlow<()>, DumpError<&'static str>>, Stats);

    fn taken(datagram: &[u8]) -> Taken {
        let mut stats = Stats::default();
        let result = take(
            datagram,
            (AF_INET, SEQUENCE),
            &mut stats,
            &mut |_, stats| {
                stats.rows += 1;
                Ok(())
            },
        );
        (result, stats)
    }

    #[test]
    fn a_dump_goes_on_until_it_is_done() {
        let (result, stats) = taken(&[socket(), socket()].concat());
        assert!(matches!(result, Ok(ControlFlow::Continue(()))));
        assert_eq!(
            stats,
            Stats {
                rows: 2,
                ..Stats::default()
            }
        );
        let (result, stats) = taken(&[socket(), done(0)].concat());
        assert!(matches!(result, Ok(ControlFlow::Break(()))));
        assert_eq!(
            stats,
            Stats {
                rows: 1,
                ..Stats::default()
            }
        );
    }

    #[test]
    fn an_error_says_what_the_kernel_refused_and_keeps_the_rows_before_it() {
        let error = message(2, 0, SEQUENCE, &(-2_i32).to_ne_bytes());
        let (result, stats) = taken(&[socket(), error].concat());
        assert_eq!(stats.rows, 1);
        assert_eq!(
            result.unwrap_err().to_string(),
            "the kernel refused the dump of IPv4 TCP sockets: No such file or directory (os error 2) \
             (load the module tcp_diag: modprobe tcp_diag)"
        );
        let (result, _) = taken(&done(-12));
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("Cannot allocate memory")
        );
    }

    #[test]
    fn a_disturbed_dump_is_counted() {
        let mut disturbed = socket();
        disturbed[6] |= 0x10;
        assert_eq!(
            taken(&disturbed).1,
            Stats {
                rows: 1,
                dump_messages_interrupted: 1,
                ..Stats::default()
            }
        );
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_costs_nothing_before_it() {
        let cut = &socket()[..40];
        let (result, stats) = taken(&[&socket()[..], cut].concat());
        assert!(matches!(result, Ok(ControlFlow::Continue(()))));
        assert_eq!(
            stats,
            Stats {
                rows: 1,
                messages_malformed: 1,
                ..Stats::default()
            }
        );

        let other_family = message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &[1; 72]);
        let short = message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &[AF_INET; 71]);
        let (_, stats) = taken(&[other_family, short, socket()].concat());
        assert_eq!(
            stats,
            Stats {
                rows: 1,
                messages_malformed: 2,
                ..Stats::default()
            }
        );
    }

    #[test]
    fn the_answers_to_another_request_are_left_out() {
        let stale = message(3, 2, SEQUENCE - 1, &[0; 4]);
        let (result, stats) = taken(&[stale, socket()].concat());
        assert!(matches!(result, Ok(ControlFlow::Continue(()))));
        assert_eq!(
            stats,
            Stats {
                rows: 1,
                messages_other: 1,
                ..Stats::default()
            }
        );
    }

    #[test]
    fn whoever_takes_the_rows_can_end_the_dump() {
        let mut stats = Stats::default();
        let result = take(&socket(), (AF_INET, SEQUENCE), &mut stats, &mut |_, _| {
            Err("full")
        });
        assert!(matches!(result, Err(DumpError::Consumer("full"))));
    }
}
