//! A conversation with the kernel about routes and rules (NETLINK_ROUTE). Every call fails when it breaks down.

use std::io;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};

use super::family::Family;
use super::netlink::{
    HEADER, Message, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG, attributes, i32_at, message,
    messages, number, u16_at,
};
use super::route::RTMSG;
use crate::error::Error;
use crate::text::reason;

/// No answer after this long: something is wrong with the kernel.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes. Also when every message fails, the answers fit into a receive buffer: 200 of at most 1 KiB of kernel memory.
const SENT_AT_ONCE: usize = 8 * 1024;
/// Where the host's own default is small.
const RECEIVE_BUFFER: usize = 1024 * 1024;
/// The largest that the kernel fills in a dump.
const DATAGRAM: usize = 64 * 1024;

/// A message that the kernel refused: its place among those that were sent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) position: usize,
    pub(crate) reason: String,
}

pub(crate) struct Rtnetlink {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Rtnetlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        // Errors are shorter and clearer with them, and there is room for more; an old kernel does without.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
        Ok(Self {
            socket,
            buffer: vec![0; DATAGRAM],
        })
    }

    /// One datagram from the kernel; what other processes send is passed over.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((length, _, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if from.is_some_and(|from| from.pid() == 0) {
                        return Ok(length);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn transmit(&self, data: &[u8]) -> io::Result<()> {
        rustix::io::retry_on_intr(|| {
            sendto(
                &self.socket,
                data,
                SendFlags::empty(),
                &SocketAddrNetlink::new(0, 0),
            )
        })?;
        Ok(())
    }

    /// In order, many at once; the first that the kernel refused, or None.
    ///
    /// The sequence number of a message is its position. What was sent together with a refused one is still done, and with
    /// `through` what comes after it too. `check` is called before each part and ends it by failing.
    pub(crate) fn send<E: From<io::Error>>(
        &mut self,
        all: &mut [Vec<u8>],
        mut check: impl FnMut() -> Result<(), E>,
        through: bool,
    ) -> Result<Option<Refusal>, E> {
        let (mut begin, mut first) = (0, None);
        while begin < all.len() {
            let (mut end, mut size) = (begin, 0);
            while end < all.len() && (end == begin || size + all[end].len() <= SENT_AT_ONCE) {
                size += all[end].len();
                end += 1;
            }
            // Successful messages get no answer, but for the last.
            let last = &mut all[end - 1];
            let flags = u16_at(last, 6).unwrap_or(0) | NLM_F_ACK;
            last[6..8].copy_from_slice(&flags.to_ne_bytes());
            check()?;
            self.transmit(&all[begin..end].concat())?;
            // Always: what stays unread is taken for the answer to what is sent next.
            let refused = self.answer(end - 1)?;
            first = first.or(refused);
            if first.is_some() && !through {
                break;
            }
            begin = end;
        }
        Ok(first)
    }

    fn answer(&mut self, last: usize) -> io::Result<Option<Refusal>> {
        let mut refused = None;
        loop {
            let length = self.receive()?;
            for found in messages(&self.buffer[..length]).filter(|found| found.kind == NLMSG_ERROR)
            {
                let position = found.sequence as usize;
                let error = i32_at(found.body, 0).unwrap_or(0);
                if error != 0 && refused.is_none() {
                    refused = Some(Refusal {
                        position,
                        reason: refusal(-error, &found),
                    });
                }
                if position == last {
                    return Ok(refused);
                }
            }
        }
    }

    /// The body that answers one question.
    pub(crate) fn ask(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.transmit(&message(kind, NLM_F_REQUEST, 0, body))?;
        loop {
            let length = self.receive()?;
            if let Some(found) = messages(&self.buffer[..length]).next() {
                return match found.kind {
                    NLMSG_ERROR => Err(io::Error::from_raw_os_error(
                        -i32_at(found.body, 0).unwrap_or(0),
                    )),
                    _ => Ok(found.body.to_vec()),
                };
            }
        }
    }

    /// The bodies that a dump of one address family gives, one after the other, and whether it is of one moment.
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        family: Family,
        table: u8,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        let mut body = [0; RTMSG];
        (body[0], body[4]) = (family.number(), table);
        self.transmit(&message(kind, NLM_F_REQUEST | NLM_F_DUMP, 0, &body))?;
        let mut whole = true;
        loop {
            let length = self.receive()?;
            for found in messages(&self.buffer[..length]) {
                whole &= found.flags & NLM_F_DUMP_INTR == 0;
                if found.kind == NLMSG_ERROR || found.kind == NLMSG_DONE {
                    return match i32_at(found.body, 0).unwrap_or(0) {
                        0 => Ok(whole),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    };
                }
                // A kernel without one address family answers for all others.
                if found.body.first() == Some(&family.number()) {
                    each(found.body);
                }
            }
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::failed(format!(
            "netlink: {}; run `status`, then again",
            reason(&error)
        ))
    }
}

/// The kernel's own words where it has some, else the error's name.
fn refusal(error: i32, found: &Message<'_>) -> String {
    let name = reason(&io::Error::from_raw_os_error(error));
    let worded = NLM_F_CAPPED | NLM_F_ACK_TLVS;
    if found.flags & worded != worded {
        return name;
    }
    let rest = found.body.get(4 + HEADER..).unwrap_or_default();
    let text = attributes(rest)
        .flatten()
        .find(|(kind, _)| number(*kind) == NLMSGERR_ATTR_MSG);
    match text {
        Some((_, text)) => format!(
            "{name} ({})",
            String::from_utf8_lossy(text).trim_end_matches('\0')
        ),
        None => name,
    }
}
