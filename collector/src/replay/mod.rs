//! Replays a netlink capture as if the kernel were saying it now.

mod dumps;
pub(crate) mod pcap;

use std::io::{self, Read};

use crate::kernel::inet_diag::SocketView;
use crate::kernel::netlink::{self, Body, HEADER};
use crate::sample::batch::Batch;
use crate::sample::encode::{AccEcn, Encoder, Identity};
use crate::sample::proto::SampleKind;
use crate::sinks::{Sink, SinkError, pass_on};
use crate::stats::Stats;
use dumps::Dumps;
use pcap::{COOKED_HEADER, PcapError, PcapReader};

/// Why a replay ended early. Samples before it have been passed on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is not a capture of netlink.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The receiver of the rows failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// The netlink family of SOCK_DIAG; other families of a capture (rtnetlink) are not ours.
const NETLINK_SOCK_DIAG: u16 = 4;

/// Passes a sample of every TCP socket in the capture to `sink`. A dump's number within the file, from 1, is its samples'
/// poll sequence. `problem` gets each part that cannot be read: its offset in the file and what is wrong; the
/// rest is replayed. Returns how many there were.
pub fn replay(
    capture: impl Read,
    identity: &Identity,
    accecn: AccEcn,
    sink: &mut dyn Sink,
    stats: &mut Stats,
    mut problem: impl FnMut(u64, &str),
) -> Result<u64, ReplayError> {
    let mut state = Replay {
        identity,
        accecn,
        batch: Batch::default(),
        dumps: Dumps::default(),
        problems: 0,
    };
    let result = (|| {
        let mut reader = PcapReader::new(capture)?;
        while let Some(packet) = reader.next_packet()? {
            state.packet(&packet, sink, stats, &mut problem)?;
        }
        Ok(())
    })();
    if !matches!(result, Err(ReplayError::Sink(_))) {
        pass_on(&mut state.batch, sink, stats).and_then(|()| sink.finish(stats))?;
    }
    result.map(|()| state.problems)
}

struct Replay<'a> {
    identity: &'a Identity,
    accecn: AccEcn,
    batch: Batch,
    dumps: Dumps,
    problems: u64,
}

impl Replay<'_> {
    #[expect(
        clippy::too_many_lines,
        reason = "one match over all that a message can be"
    )]
    fn packet(
        &mut self,
        packet: &pcap::Packet<'_>,
        sink: &mut dyn Sink,
        stats: &mut Stats,
        problem: &mut impl FnMut(u64, &str),
    ) -> Result<(), SinkError> {
        let mut report = |offset, what: &str| {
            self.problems += 1;
            problem(offset, what);
        };
        let Some((cooked, datagram)) = packet.bytes.split_first_chunk::<COOKED_HEADER>() else {
            report(
                packet.offset,
                "the packet is shorter than its netlink header",
            );
            return Ok(());
        };
        if u16::from_be_bytes([cooked[14], cooked[15]]) != NETLINK_SOCK_DIAG {
            stats.messages_other += 1;
            return Ok(());
        }
        stats.datagrams += 1;
        stats.bytes_read += datagram.len() as u64;
        if packet.truncated {
            stats.datagrams_truncated += 1;
            report(
                packet.offset,
                "the packet was cut when it was captured: its last sockets are missing",
            );
        }
        let start = packet.offset + (pcap::PACKET_HEADER + COOKED_HEADER) as u64;
        let encoder_of = |dump| {
            let mut encoder = Encoder::new(self.identity, dump, SampleKind::Poll, self.accecn);
            encoder.stamp(packet.time_unix_us);
            encoder
        };
        let mut encoding = None;
        let mut messages = netlink::messages(datagram);
        while let Some(message) = messages.next() {
            let message = match message {
                Ok(message) => message,
                Err(malformed) => {
                    stats.messages_malformed += 1;
                    report(
                        start + malformed.offset as u64,
                        "the netlink message's length does not fit its packet",
                    );
                    continue;
                }
            };
            stats.dump_messages_interrupted += u64::from(message.interrupted);
            match message.body {
                Body::Request(payload) => self.dumps.request(message.sequence, payload),
                Body::TcpRequest(payload) => self.dumps.tcp_request(message.sequence, payload),
                Body::Socket(payload) => {
                    let Some(dump) = self.dumps.number(message, messages.clone()) else {
                        stats.messages_other += 1;
                        continue;
                    };
                    if let Some(view) = SocketView::parse(payload) {
                        let (of, encoder) =
                            encoding.get_or_insert_with(|| (dump, encoder_of(dump)));
                        if *of != dump {
                            (*of, *encoder) = (dump, encoder_of(dump));
                        }
                        self.batch.push(|slot| encoder.encode(&view, slot, stats));
                        stats.rows += 1;
                        if self.batch.is_full() {
                            pass_on(&mut self.batch, sink, stats)?;
                        }
                    } else {
                        stats.messages_malformed += 1;
                        let at = payload.as_ptr() as usize - datagram.as_ptr() as usize - HEADER;
                        report(
                            start + at as u64,
                            "the message describes no IPv4 or IPv6 socket",
                        );
                    }
                }
                Body::Done(_) => self.dumps.done(message),
                Body::Error(_) | Body::Other => stats.messages_other += 1,
            }
        }
        Ok(())
    }
}

impl From<io::Error> for ReplayError {
    fn from(source: io::Error) -> Self {
        Self::Sink(SinkError::Output(source))
    }
}
