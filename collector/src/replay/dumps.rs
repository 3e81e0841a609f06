//! Finds the dump of a capture that a message belongs to, and tells whether that is of TCP sockets.
//! Programs number their requests alike (ss always takes the same number), so that dumps of
//! different protocols run into each other.

use crate::kernel::inet_diag::{AF_INET, AF_INET6, AttributeIter, SocketView, attribute};
use crate::kernel::netlink::{Body, Message, Messages};

const IPPROTO_TCP: u32 = 6;

/// Length of struct inet_diag_req_v2, bytes.
const REQUEST: usize = 56;
/// INET_DIAG_REQ_PROTOCOL: a protocol that does not fit into a byte (MPTCP's is 262).
const REQUEST_PROTOCOL: u16 = 3;
/// Bytes: struct tcp_info has never been shorter, struct mptcp_info is.
const SHORTEST_INFO: usize = 104;
/// The states of a socket without connections: with a peer, and without one.
const ESTABLISHED: u8 = 1;
const CLOSE: u8 = 7;
/// So many dumps are kept whose end was not seen.
const OPEN: usize = 64;

/// The dumps that are under way, oldest first.
#[derive(Default)]
pub(super) struct Dumps {
    open: Vec<Dump>,
    /// Number of dumps that have begun to be answered.
    numbered: u64,
}

struct Dump {
    sequence: u32,
    /// The request does not say who will be answered; the first answer does.
    port: Option<u32>,
    /// None for both IP versions.
    family: Option<u8>,
    tcp: bool,
    /// Whether struct tcp_info comes with each of its sockets.
    info: bool,
    number: Option<u64>,
    /// An end came that may be another dump's.
    ended: bool,
}

impl Dumps {
    /// Takes a SOCK_DIAG_BY_FAMILY request.
    pub(super) fn request(&mut self, sequence: u32, payload: &[u8]) {
        let byte = |at: usize| payload.get(at).copied().unwrap_or(0);
        let protocol = AttributeIter::new(payload.get(REQUEST..).unwrap_or(&[]))
            .map_while(Result::ok)
            .find(|attribute| attribute.kind == REQUEST_PROTOCOL)
            .and_then(|attribute| attribute.payload.first_chunk().copied())
            .map_or(u32::from(byte(1)), u32::from_ne_bytes);
        let tcp = matches!(byte(0), AF_INET | AF_INET6) && protocol == IPPROTO_TCP;
        self.open(sequence, Some(byte(0)), tcp, byte(2));
    }

    /// Takes a TCPDIAG_GETSOCK request.
    pub(super) fn tcp_request(&mut self, sequence: u32, payload: &[u8]) {
        let extensions = payload.get(3).copied().unwrap_or(0);
        self.open(sequence, None, true, extensions);
    }

    fn open(&mut self, sequence: u32, family: Option<u8>, tcp: bool, extensions: u8) {
        if self.open.len() == OPEN {
            self.open.remove(0);
        }
        self.open.push(Dump {
            sequence,
            port: None,
            family,
            tcp,
            info: extensions & 1 << (attribute::INFO - 1) != 0,
            number: None,
            ended: false,
        });
    }

    /// The number of the dump, from 1, to which a message about a socket belongs; None where that is not of TCP sockets. What
    /// its datagram has behind it is of the same dump.
    pub(super) fn number(&mut self, message: Message<'_>, behind: Messages<'_>) -> Option<u64> {
        let Body::Socket(payload) = message.body else {
            return None;
        };
        // Only an event has its protocol, and it belongs to no dump.
        if let Some(protocol) = SocketView::parse(payload).and_then(|view| event(&view)) {
            return (protocol == IPPROTO_TCP).then_some(self.numbered.max(1));
        }
        let family = payload.first().copied();
        let mut mine = self.answered(message);
        mine.retain(|&at| {
            self.open[at]
                .family
                .is_none_or(|asked| Some(asked) == family)
        });
        let tcp = |at: &usize| self.open[*at].tcp;
        if mine.is_empty() {
            // The capture begins behind the request.
            let tcp = looks_like_tcp(message, behind, false).unwrap_or(true);
            self.open(message.sequence, None, tcp, 0);
            mine.push(self.open.len() - 1);
        } else if mine.iter().any(tcp) && !mine.iter().all(tcp) {
            let info = mine
                .iter()
                .all(|&at| self.open[at].info || !self.open[at].tcp);
            if let Some(looks) = looks_like_tcp(message, behind, info) {
                mine.retain(|&at| self.open[at].tcp == looks);
            }
        }
        // Requests are answered in their order, where nothing else tells them apart.
        let begun = |&&at: &&usize| self.open[at].port.is_some();
        let at = *mine.iter().find(begun).or(mine.first())?;
        let number = self.begin(at, message.port);
        self.open[at].tcp.then_some(number)
    }

    /// Takes a dump's end.
    pub(super) fn done(&mut self, message: Message<'_>) {
        let mine = self.answered(message);
        let tcp = |at: &usize| self.open[*at].tcp;
        match mine.first() {
            // Without a socket, and its request was not captured.
            None => self.numbered += 1,
            Some(&first) if mine.iter().all(tcp) || !mine.iter().any(tcp) => {
                self.begin(first, message.port);
                self.open.remove(first);
            }
            // It may be another's end: they are over together.
            Some(_) => {
                let left = mine.iter().find(|&&at| !self.open[at].ended);
                if let Some(&at) = left {
                    self.open[at].ended = true;
                }
                if mine.iter().all(|&at| self.open[at].ended) {
                    for at in mine.into_iter().rev() {
                        self.begin(at, message.port);
                        self.open.remove(at);
                    }
                }
            }
        }
    }

    /// The dumps to which a message can belong.
    fn answered(&self, message: Message<'_>) -> Vec<usize> {
        let answers = |dump: &Dump| {
            dump.sequence == message.sequence && dump.port.is_none_or(|port| port == message.port)
        };
        (0..self.open.len())
            .filter(|&at| answers(&self.open[at]))
            .collect()
    }

    fn begin(&mut self, at: usize, port: u32) -> u64 {
        let dump = &mut self.open[at];
        dump.port = Some(port);
        *dump.number.get_or_insert_with(|| {
            self.numbered += 1;
            self.numbered
        })
    }
}

/// An event's protocol.
fn event(view: &SocketView<'_>) -> Option<u32> {
    view.attributes()
        .map_while(Result::ok)
        .find(|attribute| attribute.kind == attribute::PROTOCOL)
        .and_then(|attribute| Some(u32::from(*attribute.payload.first()?)))
}

/// Whether a dump is of TCP sockets, by what its messages have, from this one to the datagram's end; None if they do not
/// say. `info`: a TCP connection has its struct tcp_info in it.
fn looks_like_tcp(message: Message<'_>, behind: Messages<'_>, info: bool) -> Option<bool> {
    let same =
        |other: &Message<'_>| (other.sequence, other.port) == (message.sequence, message.port);
    std::iter::once(message)
        .chain(behind.map_while(Result::ok).take_while(same))
        .map_while(|message| match message.body {
            Body::Socket(payload) => Some(SocketView::parse(payload)),
            _ => None,
        })
        .flatten()
        .find_map(|view| is_tcp(&view, info))
}

fn is_tcp(view: &SocketView<'_>, info: bool) -> Option<bool> {
    let mut tcp = None;
    for attribute in view.attributes().map_while(Result::ok) {
        match attribute.kind {
            attribute::LOCALS | attribute::PEERS => return Some(false),
            attribute::INFO => tcp = Some(attribute.payload.len() >= SHORTEST_INFO),
            attribute::CONG => tcp = tcp.or(Some(true)),
            _ => {}
        }
    }
    // The kernel has no struct tcp_info of what is left of a connection.
    tcp.or(match view.header()[1] {
        CLOSE => Some(false),
        ESTABLISHED => info.then_some(false),
        _ => Some(true),
    })
}
