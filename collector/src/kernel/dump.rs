//! A netlink SOCK_DIAG dump of TCP sockets: the kernel fills one fixed buffer again and again, and each socket is handed
//! on from there. A poll is never held in memory.
//!
//! Longer than 400 lines: a third of it are tests with hostile datagrams, which need its private parts.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use super::inet_diag::{AF_INET, AF_INET6, SocketView, attribute};
use super::netlink::{self, Body, NLM_F_DUMP, NLM_F_REQUEST, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::stats::Stats;

/// The kernel never fills a dump datagram beyond this, bytes: a larger buffer gains nothing (NLMSG_GOODSIZE is below it,
/// and netlink_dump allocates at most 32 KiB).
pub const BUFFER: usize = 32 * 1024;

const IPPROTO_TCP: u8 = 6;

/// INET_DIAG_REQ_BYTECODE.
const REQUEST_BYTECODE: u16 = 1;
/// INET_DIAG_REQ_SK_BPF_STORAGES with NLA_F_NESTED, and in it SK_DIAG_BPF_STORAGE_REQ_MAP_FD.
const REQUEST_STORAGES: u16 = 2 | 1 << 15;
const STORAGE_MAP_FD: u16 = 1;

/// Attributes requested from the kernel: idiag_ext, bit N - 1 for attribute N. Those above 8 have
/// no bit; the kernel adds them where they exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions(pub u8);

const fn bit(attribute: u16) -> u8 {
    1 << (attribute - 1)
}

impl Extensions {
    /// tcp_info alone.
    pub const MINIMAL: Self = Self(bit(attribute::INFO));
    /// tcp_info, the congestion control algorithm's name, its own state (for which the kernel takes Vegas' bit, whatever
    /// the algorithm), and memory.
    pub const DEFAULT: Self = Self(
        Self::MINIMAL.0
            | bit(attribute::CONG)
            | bit(attribute::VEGASINFO)
            | bit(attribute::SKMEMINFO),
    );
    /// All whose bit exists, but not INET_DIAG_MEMINFO (1), which SKMEMINFO contains.
    pub const ALL: Self = Self(0xfe);
}

/// A request for a dump.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Sockets whose state's bit is set.
    pub states: u32,
    /// Attributes to report of each.
    pub attributes: Extensions,
    /// A filter's program; empty for every socket.
    pub bytecode: &'a [u8],
    /// A map of type BPF_MAP_TYPE_SK_STORAGE whose value is to come with each socket that has one.
    pub storage: Option<BorrowedFd<'a>>,
}

/// Way to query the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// TCPDIAG_GETSOCK, which walks the hash table once for both families.
    OneWalk,
    /// SOCK_DIAG_BY_FAMILY, one walk a family: for a kernel that does not know the other any more.
    WalkPerFamily,
}

/// The families of a walk; None for both.
pub type Family = Option<u8>;

impl Method {
    /// The walks of a whole dump.
    pub fn walks(self) -> &'static [Family] {
        match self {
            Self::OneWalk => &[None],
            Self::WalkPerFamily => &[Some(AF_INET), Some(AF_INET6)],
        }
    }
}

/// Why a dump ended early. Rows handed on before it stand.
#[derive(Debug, thiserror::Error)]
pub enum DumpError<E> {
    /// A system call failed.
    #[error("cannot {what} the kernel's netlink socket: {source}")]
    Socket {
        /// The action that failed.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused the request or broke off.
    #[error("the kernel refused the dump of {family}TCP sockets: {source}{}", hint(.source))]
    Refused {
        /// IPv4 or IPv6 and a space, or nothing for both.
        family: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The receiver of the rows failed.
    #[error(transparent)]
    Consumer(E),
}

impl<E> DumpError<E> {
    /// Whether the kernel does not know the request.
    pub fn is_unknown_request(&self) -> bool {
        use rustix::io::Errno;
        let unknown = [Errno::INVAL, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
        matches!(self, Self::Refused { source, .. } if unknown.contains(&source.raw_os_error()))
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => " (load the module tcp_diag: modprobe tcp_diag)",
        _ => "",
    }
}

/// State of a dump after a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More follows.
    More,
    /// It is complete.
    Complete,
    /// It is complete, but the kernel marked it as interrupted or a datagram was cut: sockets may be missing.
    Disturbed,
}

/// Takes the sockets of a walk.
pub trait Taker {
    /// Why it does not want more.
    type Error;

    /// The socket with this cookie will be given soon: a chance to have what is known of it at hand. All of a datagram are
    /// announced before the first is given.
    fn expect(&mut self, cookie: u64);

    /// Gives a socket.
    fn take(&mut self, view: &SocketView<'_>, stats: &mut Stats) -> Result<(), Self::Error>;
}

/// A netlink socket, used again for every dump. It stays in the network namespace in which it was opened.
pub struct DumpSocket {
    socket: OwnedFd,
    walk: Walk,
}

/// The walk that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    family: Family,
    sequence: u32,
    disturbed: bool,
}

impl DumpSocket {
    /// Opens it in the network namespace of the calling thread. Needs no privilege.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )?;
        netlink::refuse_others(&socket)?;
        Ok(Self {
            socket,
            walk: Walk::default(),
        })
    }

    /// Asks for a walk. Its answer must be received to the end before the next.
    pub fn send<E>(&mut self, family: Family, request: &Request<'_>) -> Result<(), DumpError<E>> {
        self.walk = Walk {
            family,
            sequence: self.walk.sequence.wrapping_add(1),
            disturbed: false,
        };
        let message = message(family, request, self.walk.sequence);
        match send(&self.socket, &message, SendFlags::empty()) {
            Ok(_) => Ok(()),
            Err(errno) => Err(DumpError::Socket {
                what: "write to",
                source: errno.into(),
            }),
        }
    }

    /// Receives one datagram of the walk and gives every socket in it to `taker`.
    #[inline]
    pub fn receive<T: Taker>(
        &mut self,
        buffer: &mut [u8; BUFFER],
        stats: &mut Stats,
        taker: &mut T,
    ) -> Result<Progress, DumpError<T::Error>> {
        let received =
            rustix::io::retry_on_intr(|| netlink::receive(&self.socket, &mut buffer[..])).map_err(
                |errno| DumpError::Socket {
                    what: "read from",
                    source: errno.into(),
                },
            )?;
        stats.datagrams += 1;
        stats.bytes_read += received.whole as u64;
        if !received.from_kernel {
            stats.datagrams_forged += 1;
            return Ok(Progress::More);
        }
        if received.whole > received.filled {
            stats.datagrams_truncated += 1;
            self.walk.disturbed = true;
        }
        self.walk.take(&buffer[..received.filled], stats, taker)
    }
}

impl Walk {
    /// Hands on the sockets of one datagram.
    #[inline]
    fn take<T: Taker>(
        &mut self,
        datagram: &[u8],
        stats: &mut Stats,
        taker: &mut T,
    ) -> Result<Progress, DumpError<T::Error>> {
        for message in netlink::messages(datagram).map_while(Result::ok) {
            if let Body::Socket(payload) = message.body
                && let Some(view) = SocketView::parse(payload)
            {
                taker.expect(view.cookie());
            }
        }
        for message in netlink::messages(datagram) {
            let Ok(message) = message else {
                stats.messages_malformed += 1;
                self.disturbed = true;
                continue;
            };
            if message.sequence != self.sequence {
                stats.messages_other += 1;
                continue;
            }
            if message.interrupted {
                stats.dump_messages_interrupted += 1;
                self.disturbed = true;
            }
            match message.body {
                Body::Socket(payload) => match SocketView::parse(payload) {
                    Some(view) => taker.take(&view, stats).map_err(DumpError::Consumer)?,
                    None => stats.messages_malformed += 1,
                },
                Body::Done(0) if self.disturbed => return Ok(Progress::Disturbed),
                Body::Done(0) => return Ok(Progress::Complete),
                Body::Done(errno) | Body::Error(errno) if errno != 0 => {
                    return Err(DumpError::Refused {
                        family: name(self.family),
                        source: io::Error::from_raw_os_error(errno),
                    });
                }
                _ => stats.messages_other += 1,
            }
        }
        Ok(Progress::More)
    }
}

/// The family's name.
fn name(family: Family) -> &'static str {
    match family {
        Some(AF_INET) => "IPv4 ",
        Some(_) => "IPv6 ",
        None => "",
    }
}

/// A request: struct nlmsghdr, then struct inet_diag_req_v2, or struct inet_diag_req for both families, with an empty socket id; then
/// as attributes the bytecode and the map, as far as they are wanted.
pub fn message(family: Family, request: &Request<'_>, sequence: u32) -> Vec<u8> {
    let kind = match family {
        Some(_) => SOCK_DIAG_BY_FAMILY,
        None => TCPDIAG_GETSOCK,
    };
    let mut bytes = vec![0; netlink::HEADER];
    match family {
        Some(family) => {
            bytes.extend([family, IPPROTO_TCP, request.attributes.0, 0]);
            bytes.extend(request.states.to_ne_bytes());
            bytes.extend([0; 48]);
        }
        None => {
            bytes.extend([0, 0, 0, request.attributes.0]);
            bytes.extend([0; 48]);
            bytes.extend(request.states.to_ne_bytes());
            bytes.extend([0; 4]);
        }
    }
    if !request.bytecode.is_empty() {
        // A filter's program fits, and is a multiple of four bytes: see its compiler.
        bytes.extend((request.bytecode.len() as u16 + 4).to_ne_bytes());
        bytes.extend(REQUEST_BYTECODE.to_ne_bytes());
        bytes.extend(request.bytecode);
    }
    if let Some(map) = request.storage {
        bytes.extend(12_u16.to_ne_bytes());
        bytes.extend(REQUEST_STORAGES.to_ne_bytes());
        bytes.extend(8_u16.to_ne_bytes());
        bytes.extend(STORAGE_MAP_FD.to_ne_bytes());
        bytes.extend(map.as_raw_fd().to_ne_bytes());
    }
    let length = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    fn walk() -> Walk {
        Walk {
            family: Some(AF_INET),
            sequence: SEQUENCE,
            disturbed: false,
        }
    }

    /// Counts sockets, and fails after so many.
    struct Counter(u64);

    impl Taker for Counter {
        type Error = &'static str;

        fn expect(&mut self, _: u64) {}

        fn take(&mut self, _: &SocketView<'_>, stats: &mut Stats) -> Result<(), &'static str> {
            if stats.rows == self.0 {
                return Err("full");
            }
            stats.rows += 1;
            Ok(())
        }
    }

    type Taken = (Result<Progress, DumpError<&'static str>>, Stats);

    fn taken(datagram: &[u8]) -> Taken {
        let mut stats = Stats::default();
        let result = walk().take(datagram, &mut stats, &mut Counter(u64::MAX));
        (result, stats)
    }

    #[test]
    fn a_map_is_the_requests_last_attribute_and_changes_nothing_else() {
        use std::os::fd::AsFd;
        let descriptor = std::fs::File::open("/dev/null").unwrap();
        for (family, bytecode) in [(None, &[][..]), (None, &[7; 8]), (Some(AF_INET6), &[7; 8])] {
            let request = |storage| Request {
                states: 0x7ff,
                attributes: Extensions::DEFAULT,
                bytecode,
                storage,
            };
            let without = super::message(family, &request(None), SEQUENCE);
            let with = super::message(family, &request(Some(descriptor.as_fd())), SEQUENCE);
            // As `ss --bpf-maps` of iproute2 has it: nla_len 12, INET_DIAG_REQ_SK_BPF_STORAGES and NLA_F_NESTED; in it
            // nla_len 8, SK_DIAG_BPF_STORAGE_REQ_MAP_FD and the descriptor.
            let attribute = [12_u16, 0x8002, 8, 1].map(u16::to_ne_bytes).concat();
            let expected = [
                &u32::try_from(without.len() + 12).unwrap().to_ne_bytes()[..],
                &without[4..],
                &attribute,
                &descriptor.as_raw_fd().to_ne_bytes(),
            ];
            assert_eq!(with, expected.concat());
            assert_eq!(
                without[..4],
                u32::try_from(without.len()).unwrap().to_ne_bytes()
            );
        }
    }

    #[test]
    fn a_dump_goes_on_until_it_is_done() {
        let (result, stats) = taken(&[socket(), socket()].concat());
        assert!(matches!(result, Ok(Progress::More)));
        assert_eq!(
            stats,
            Stats {
                rows: 2,
                ..Stats::default()
            }
        );
        let (result, stats) = taken(&[socket(), done(0)].concat());
        assert!(matches!(result, Ok(Progress::Complete)));
        assert_eq!(
            stats,
            Stats {
                rows: 1,
                ..Stats::default()
            }
        );
    }

    #[test]
    fn an_error_has_the_kernels_reason_and_keeps_the_rows_before_it() {
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
        assert!(matches!(result, Ok(Progress::More)));
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
        assert!(matches!(result, Ok(Progress::More)));
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
        let sockets = [socket(), socket()].concat();
        let result = walk().take(&sockets, &mut stats, &mut Counter(1));
        assert!(matches!(result, Err(DumpError::Consumer("full"))));
    }

    #[test]
    fn a_disturbed_dump_is_reported_at_its_end() {
        let mut disturbed = socket();
        disturbed[6] |= 0x10;
        let cut = socket()[..40].to_vec();
        for part in [disturbed, cut] {
            let mut walk = walk();
            let mut stats = Stats::default();
            let mut take =
                |datagram: &[u8]| walk.take(datagram, &mut stats, &mut Counter(u64::MAX));
            assert!(matches!(take(&part), Ok(Progress::More)));
            assert!(matches!(take(&done(0)), Ok(Progress::Disturbed)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_counted(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0..200_usize) {
            let _ = taken(&bytes);
            // Most arbitrary bytes are not a message at all: put them into one.
            let mut damaged = [socket(), message(SOCK_DIAG_BY_FAMILY, 2, SEQUENCE, &bytes), socket()].concat();
            let _ = taken(&damaged);
            let at = at % damaged.len();
            damaged[at] ^= bytes.first().copied().unwrap_or(1);
            let _ = taken(&damaged);
        }
    }
}
