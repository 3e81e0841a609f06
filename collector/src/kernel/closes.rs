//! The kernel's events of closing TCP sockets: a multicast of the last tcp_info.
//!
//! The kernel sends it when it frees the socket: for a connection that goes to TIME-WAIT as it gets there. The message
//! has INET_DIAG_INFO and INET_DIAG_PROTOCOL only, and its state is CLOSE.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::inet_diag::SocketView;
use super::netlink::{self, Body};
use crate::stats::Stats;

/// SKNLGRP_INET_TCP_DESTROY (1) and SKNLGRP_INET6_TCP_DESTROY (3), as bits.
const GROUPS: u32 = 1 << 0 | 1 << 2;

/// A close event's message is about 400 bytes; this holds any tcp_info that there may be, bytes.
pub(crate) const BUFFER: usize = 8 * 1024;

/// Most datagrams of a namespace that are read before the next one's turn; each has one event.
const TURN: u32 = 256;

/// A netlink socket in the destroy groups of the network namespace in which it was opened.
pub(crate) struct CloseSocket {
    socket: OwnedFd,
}

impl CloseSocket {
    /// Opens it in the network namespace of the calling thread, with a kernel buffer of `bytes`: above
    /// net.core.rmem_max that needs CAP_NET_ADMIN, without which the buffer is as large as the limit. An event takes
    /// about 1.3 KB of it. Needs no privilege otherwise.
    pub(crate) fn open(bytes: usize) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(SOCK_DIAG),
        )?;
        // The kernel doubles what it is given, for its own overhead.
        let half = bytes.div_ceil(2);
        if sockopt::set_socket_recv_buffer_size_force(&socket, half).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, half)?;
        }
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        netlink::refuse_others(&socket)?;
        Ok(Self { socket })
    }

    /// Size of the kernel's buffer, bytes.
    pub(crate) fn buffer_bytes(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.socket)?)
    }

    /// Calls `each` for the events that wait, for a turn at most, and returns how many datagrams there were: also one that
    /// is no event may have events behind it. When the kernel's buffer was full meanwhile, that is counted: it does not report
    /// how many events it dropped.
    pub(crate) fn drain<E>(
        &self,
        buffer: &mut [u8; BUFFER],
        stats: &mut Stats,
        mut each: impl FnMut(&SocketView<'_>, &mut Stats) -> Result<(), E>,
    ) -> Result<u64, DrainError<E>> {
        let mut datagrams = 0;
        // Not every datagram is an event, and none that is not may keep us here.
        for _ in 0..TURN {
            let received = match netlink::receive(&self.socket, &mut buffer[..]) {
                Ok(received) => received,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => {
                    stats.close_overruns += 1;
                    continue;
                }
                Err(errno) => return Err(DrainError::Socket(errno.into())),
            };
            datagrams += 1;
            stats.bytes_read += received.whole as u64;
            if !received.from_kernel {
                stats.datagrams_forged += 1;
                continue;
            }
            if received.whole > received.filled {
                stats.datagrams_truncated += 1;
            }
            take(&buffer[..received.filled], stats, &mut each).map_err(DrainError::Consumer)?;
        }
        Ok(datagrams)
    }
}

impl AsFd for CloseSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Why events could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError<E> {
    /// A system call failed.
    #[error("cannot read close events from the kernel: {0}")]
    Socket(io::Error),
    /// The receiver of the rows failed.
    #[error(transparent)]
    Consumer(E),
}

/// Hands on the events of one datagram.
fn take<E>(
    datagram: &[u8],
    stats: &mut Stats,
    each: &mut impl FnMut(&SocketView<'_>, &mut Stats) -> Result<(), E>,
) -> Result<(), E> {
    for message in netlink::messages(datagram) {
        let view = match message.map(|message| message.body) {
            Ok(Body::Socket(payload)) => SocketView::parse(payload),
            Ok(_) => {
                stats.messages_other += 1;
                continue;
            }
            Err(_) => None,
        };
        match view {
            Some(view) => {
                stats.close_events += 1;
                each(&view, stats)?;
            }
            None => stats.messages_malformed += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(payload: &[u8]) -> Vec<u8> {
        let length = netlink::HEADER + payload.len();
        let mut bytes = u32::try_from(length).unwrap().to_ne_bytes().to_vec();
        bytes.extend(netlink::SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn taken(datagram: &[u8]) -> Stats {
        let mut stats = Stats::default();
        take::<()>(datagram, &mut stats, &mut |_, _| Ok(())).unwrap();
        stats
    }

    #[test]
    fn an_event_that_cannot_be_read_is_counted() {
        let whole = event(&[[2].as_slice(), &[0; 71]].concat());
        let short = event(&[2; 71]);
        let stats = taken(&[whole.clone(), short, whole].concat());
        assert_eq!(stats.close_events, 2);
        assert_eq!(stats.messages_malformed, 1);
        assert_eq!(taken(&[1, 2, 3]).messages_malformed, 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_events_or_counted(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            taken(&bytes);
            taken(&event(&bytes));
        }
    }
}
