//! Netlink sockets that take only what the kernel sends, and the messages in a datagram.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, connect, recvfrom};

/// Length of struct nlmsghdr, bytes.
pub const HEADER: usize = 16;

/// nlmsg_type values.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// nlmsg_type of requests and replies about sockets.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The older nlmsg_type, for TCP sockets of both families.
pub const TCPDIAG_GETSOCK: u16 = 18;

/// nlmsg_flags: the message is a request, a dump is requested, a dump was disturbed by a change.
pub const NLM_F_REQUEST: u16 = 1;
/// Asks for all objects.
pub const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;

/// Lets the kernel refuse what other processes send to the socket alone. Who has CAP_NET_ADMIN in a network namespace, as
/// anybody has in one that they made, may send there to each socket and each group: a socket that is full of it fails.
pub fn refuse_others(socket: impl AsFd) -> Result<(), Errno> {
    connect(socket, &SocketAddrNetlink::new(0, 0))
}

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Bytes in the buffer.
    pub filled: usize,
    /// Its length, bytes.
    pub whole: usize,
    /// Nobody else can send as the kernel does: what others send to a group comes too.
    pub from_kernel: bool,
}

/// Receives one datagram.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    let (filled, whole, from) = recvfrom(socket, buffer, RecvFlags::TRUNC)?;
    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
    Ok(Received {
        filled,
        whole,
        from_kernel: from.is_some_and(|from| from.pid() == 0),
    })
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// nlmsg_seq: that of the request it answers.
    pub sequence: u32,
    /// nlmsg_pid: the port that it answers.
    pub port: u32,
    /// NLM_F_DUMP_INTR: the dump may be inconsistent.
    pub interrupted: bool,
    /// Its content.
    pub body: Body<'a>,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A reply about a socket, or a close event: its payload.
    Socket(&'a [u8]),
    /// A SOCK_DIAG_BY_FAMILY request's payload.
    Request(&'a [u8]),
    /// A TCPDIAG_GETSOCK request's payload.
    TcpRequest(&'a [u8]),
    /// The dump's end, with an errno when it failed.
    Done(i32),
    /// An error's errno; 0 is an acknowledgement.
    Error(i32),
    /// Any other message.
    Other,
}

/// A message whose length is shorter than its header or reaches past the datagram, at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedMessage {
    /// Bytes from the datagram's start.
    pub offset: usize,
}

/// The messages of `datagram`; ends after the first malformed one, since the start of the next is unknown.
pub fn messages(datagram: &[u8]) -> Messages<'_> {
    Messages { datagram, at: 0 }
}

/// See [`messages`].
#[derive(Clone)]
pub struct Messages<'a> {
    datagram: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MalformedMessage>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = self
            .datagram
            .get(offset..)
            .filter(|rest| !rest.is_empty())?;
        self.at = self.datagram.len();
        let Some((header, _)) = rest.split_first_chunk::<HEADER>() else {
            return Some(Err(MalformedMessage { offset }));
        };
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(payload) = rest.get(HEADER..len) else {
            return Some(Err(MalformedMessage { offset }));
        };
        self.at = offset + len.next_multiple_of(4);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        Some(Ok(Message {
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            port: u32::from_ne_bytes([header[12], header[13], header[14], header[15]]),
            interrupted: flags & NLM_F_DUMP_INTR != 0 && flags & NLM_F_REQUEST == 0,
            body: match kind {
                SOCK_DIAG_BY_FAMILY if flags & NLM_F_REQUEST != 0 => Body::Request(payload),
                TCPDIAG_GETSOCK if flags & NLM_F_REQUEST != 0 => Body::TcpRequest(payload),
                SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK => Body::Socket(payload),
                NLMSG_DONE => Body::Done(errno(payload)),
                NLMSG_ERROR => Body::Error(errno(payload)),
                _ => Body::Other,
            },
        }))
    }
}

/// The errno that a payload begins with, as a positive number; 0 when there is none.
fn errno(payload: &[u8]) -> i32 {
    payload
        .first_chunk::<4>()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes).saturating_abs())
}
