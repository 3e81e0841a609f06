//! The end that sends data: parity of its first transmissions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use springtide_core::layout::Sent;

use super::datagram::{Groups, HEADER, Key, Parity};
use super::packet::{self, Ends};
use crate::clock;

/// A connection that sends nothing for so long has its groups closed.
const PAUSE: Duration = Duration::from_millis(2);
/// The kernel holds no packet back for longer.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// Connections with open groups.
const MOST_OPEN: usize = 4096;
/// Packets of parity that wait to leave.
const MOST_READY: usize = 16_384;
/// Bytes of a block where the size of segments is not known: fits into any path's packets but a tunnel's of less than 1420.
const USUAL_BLOCK: usize = 1368;
/// Bytes of a block at most: of larger ones the other end would not keep a group.
const LARGEST_BLOCK: usize = 8192;
const UDP_HEADER: usize = 8;

/// Addresses and ports.
type Way = (Ends, (u16, u16));

struct Connection {
    groups: Groups,
    dscp: u8,
    /// When its last packet leaves.
    leaves: Instant,
}

/// See the module.
pub(super) struct Sender {
    key: Key,
    port: u16,
    connections: HashMap<Way, Connection>,
    /// Packets, and when they are to leave.
    ready: Vec<(Instant, IpAddr, Vec<u8>)>,
}

impl Sender {
    pub(super) fn new(key: Key, port: u16) -> Self {
        Self {
            key,
            port,
            connections: HashMap::new(),
            ready: Vec::new(),
        }
    }

    /// Takes a packet, from its IP header on. `monotonic_ns`: the clock's time `now`.
    pub(super) fn packet(&mut self, now: Instant, monotonic_ns: u64, sent: &Sent, bytes: &[u8]) {
        let Some(found) = packet::read(bytes) else {
            return;
        };
        // A byte that is marked as urgent would come back as any other, and data with a SYN at another place.
        if found.tcp.urg || found.tcp.syn {
            return;
        }
        let held = Duration::from_nanos(sent.leaves_ns.saturating_sub(monotonic_ns));
        let leaves = now + held.min(LONGEST_HOLD);
        let (tcp, first) = (&found.tcp, found.tcp.sequence_number);
        let ports = (tcp.source_port, tcp.destination_port);
        let way = (found.ends, ports);
        let fresh = || {
            let room = (sent.segment_bytes as usize + tcp.header_len())
                .saturating_sub(HEADER + UDP_HEADER);
            let block = if sent.segment_bytes > 0 {
                room
            } else {
                USUAL_BLOCK
            };
            Groups::new(ports, first, sent.every, block.min(LARGEST_BLOCK))
        };
        if !self.connections.contains_key(&way) && self.connections.len() >= MOST_OPEN {
            return;
        }
        let one = self.connections.entry(way).or_insert_with(|| Connection {
            groups: fresh(),
            dscp: sent.dscp,
            leaves,
        });
        one.leaves = leaves.max(one.leaves);
        let at = one.leaves;
        let mut full = Vec::new();
        if one.groups.end() != first {
            // Something before it was not handed over.
            full = std::mem::replace(&mut one.groups, fresh()).flush(&self.key);
        }
        full.extend(one.groups.take(&self.key, found.data));
        self.write(at, found.ends, sent.dscp, &full);
    }

    /// When there is next something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        let pauses = self.connections.values().map(|one| one.leaves + PAUSE);
        self.ready.iter().map(|(at, ..)| *at).chain(pauses).min()
    }

    /// Packets that are to leave by now, with their destinations.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(IpAddr, Vec<u8>)> {
        let over: Vec<Way> = self
            .connections
            .iter()
            .filter(|(_, one)| one.leaves + PAUSE <= now)
            .map(|(way, _)| *way)
            .collect();
        for way in over {
            if let Some(one) = self.connections.remove(&way) {
                let rest = one.groups.flush(&self.key);
                self.write(now, way.0, one.dscp, &rest);
            }
        }
        let due = self.ready.extract_if(.., |(at, ..)| *at <= now);
        due.map(|(_, to, packet)| (to, packet)).collect()
    }

    fn write(&mut self, at: Instant, ends: Ends, dscp: u8, parity: &[Parity]) {
        for one in parity {
            let key = self.key.at(clock::second().0);
            let datagram = one.write(&key, ends);
            let packet = packet::datagram(ends, self.port, dscp, &datagram);
            if self.ready.len() < MOST_READY {
                self.ready.extend(packet.map(|packet| (at, ends.1, packet)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpOptionElement};

    use super::*;

    const EVERY: u8 = 5;

    fn sender() -> Sender {
        Sender::new(Key::new([7; 32]), 9000)
    }

    /// A packet of this many bytes in segments of 1448, with time stamps.
    fn gso(first: u32, bytes: usize) -> (Sent, Vec<u8>) {
        let sent = Sent {
            segment_bytes: 1448,
            every: EVERY,
            ..Sent::default()
        };
        let stamp = [
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Timestamp(1, 2),
        ];
        let builder =
            PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).tcp(80, 5000, first, 1);
        let mut packet = Vec::new();
        let builder = builder.options(&stamp).unwrap();
        builder.write(&mut packet, &vec![9; bytes]).unwrap();
        (sent, packet)
    }

    #[test]
    fn one_of_parity_for_five_segments_and_the_rest_after_a_pause() {
        let (now, mut sender) = (Instant::now(), sender());
        let (sent, packet) = gso(1, 22 * 1448);
        sender.packet(now, 0, &sent, &packet);
        let full = sender.due(now);
        assert_eq!(full.len(), 4);
        // No larger than the segments themselves: 20 bytes of IP, 32 of TCP.
        assert!(
            full.iter()
                .all(|(_, packet)| packet.len() == 20 + 32 + 1448)
        );
        assert_eq!(sender.next(), Some(now + PAUSE));
        // Data within the pause continues the groups.
        let (sent, packet) = gso(1 + 22 * 1448, 2 * 1448);
        sender.packet(now, 0, &sent, &packet);
        assert_eq!(sender.due(now), []);
        assert_eq!(sender.due(now + PAUSE).len(), 4);
        assert_eq!((sender.next(), sender.connections.len()), (None, 0));
    }

    #[test]
    fn parity_leaves_behind_what_it_stands_for() {
        let (now, mut sender) = (Instant::now(), sender());
        let (mut sent, packet) = gso(1, 20 * 1448);
        sent.leaves_ns = 5_000_000;
        sender.packet(now, 2_000_000, &sent, &packet);
        assert_eq!(sender.due(now + Duration::from_micros(2_900)), []);
        assert_eq!(sender.due(now + Duration::from_millis(3)).len(), 4);
        // A clock that jumps holds nothing for long.
        let (mut sent, packet) = gso(1 + 20 * 1448, 20 * 1448);
        sent.leaves_ns = u64::MAX;
        sender.packet(now, 0, &sent, &packet);
        assert_eq!(sender.due(now + LONGEST_HOLD).len(), 4);
    }

    #[test]
    fn a_gap_begins_anew() {
        let (now, mut sender) = (Instant::now(), sender());
        let (sent, packet) = gso(1, 1448);
        sender.packet(now, 0, &sent, &packet);
        let (sent, packet) = gso(10 * 1448, 1448);
        sender.packet(now, 0, &sent, &packet);
        assert_eq!(sender.due(now).len(), 1);
        assert_eq!(sender.due(now + PAUSE).len(), 1);
    }
}
