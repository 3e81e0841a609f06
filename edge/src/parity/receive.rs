//! The end that gets data: blocks that were lost, from parity and from what came.
//!
//! Segments are seen before this host's TCP has judged them, so anybody may have sent them. Parity has hashes of the blocks: by
//! them data is what the other end sent, and so are the headers that it came with.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::datagram::{Key, MOST_SPAN, Parity};
use super::packet::{self, Ends, Got, Segment};
use crate::clock;

/// Parity waits so long for what it stands for: that may come by another queue or another way.
const WAIT: Duration = Duration::from_millis(2);
/// Data of a connection is kept so long after the last of it, for parity that comes late.
const KEEP: Duration = Duration::from_secs(1);
/// Bytes of data that are kept, of one connection and of all.
const MOST_OF_ONE: usize = 2 * MOST_SPAN;
const MOST_OF_ALL: usize = 32 * 1024 * 1024;
/// Datagrams that wait.
const MOST_WAITING: usize = 4096;
/// Bytes of memory that a piece takes beside its data.
const OF_A_PIECE: usize = 128;
/// Bytes of a block that nobody guesses.
const PROOF: usize = 16;

/// Addresses and ports of a connection: the end that sends comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    ends: Ends,
    ports: (u16, u16),
}

#[derive(Debug)]
struct Piece {
    first: u32,
    data: Vec<u8>,
    got: Got,
}

impl Piece {
    /// Bytes of memory.
    const fn cost(&self) -> usize {
        self.data.len() + OF_A_PIECE
    }
}

#[derive(Debug)]
struct Connection {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Data before this place was kept, and is not any more.
    dropped: Option<u32>,
    /// Place and words of the newest piece that is known to be the other end's.
    got: Option<(u32, Got)>,
    seen: Instant,
}

/// Data, and pieces that it is of: their place, what they say, and how many bytes of it are theirs.
type Read = (Vec<u8>, Vec<(u32, Got, usize)>);

impl Connection {
    /// The data at a place; None where not all of it came.
    fn read(&self, first: u32, length: usize) -> Option<Read> {
        let (mut found, mut of) = (Vec::with_capacity(length), Vec::new());
        while found.len() < length {
            let next = first.wrapping_add(found.len() as u32);
            let (piece, rest) = self.pieces.iter().find_map(|piece| {
                let rest = piece.data.get(next.wrapping_sub(piece.first) as usize..)?;
                (!rest.is_empty()).then_some((piece, rest))
            })?;
            let taken = &rest[..rest.len().min(length - found.len())];
            found.extend_from_slice(taken);
            of.push((piece.first, piece.got, taken.len()));
        }
        Some((found, of))
    }

    /// Learns from pieces that are the other end's.
    fn trust(&mut self, of: &[(u32, Got, usize)]) {
        for (first, got, bytes) in of {
            let newest = self
                .got
                .is_none_or(|(last, _)| first.wrapping_sub(last).cast_signed() >= 0);
            if *bytes >= PROOF && newest {
                self.got = Some((*first, *got));
            }
        }
    }
}

/// Fate of a datagram's blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// All came.
    Whole,
    /// The packet brings the one that did not.
    Repaired(Vec<u8>),
    /// More than one did not come, or what came is not what was sent.
    Lost,
}

/// See the module.
pub(super) struct Receiver {
    key: Key,
    connections: HashMap<Way, Connection>,
    bytes: usize,
    /// By the time until which they wait.
    waiting: VecDeque<(Instant, Way, Parity)>,
}

impl Receiver {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            connections: HashMap::new(),
            bytes: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Takes a segment that came.
    pub(super) fn segment(&mut self, now: Instant, found: &Segment<'_>) {
        if found.data.is_empty() {
            return;
        }
        let way = Way {
            ends: found.ends,
            ports: (found.tcp.source_port, found.tcp.destination_port),
        };
        let got = Got {
            acknowledged: found.tcp.acknowledgment_number,
            window: found.tcp.window_size,
        };
        self.keep(now, way, found.tcp.sequence_number, found.data, got);
    }

    /// Takes a datagram that came; whether it is the fleet's.
    pub(super) fn datagram(&mut self, now: Instant, ends: Ends, bytes: &[u8]) -> bool {
        // By clocks that differ by up to a minute.
        let wall = clock::second().0;
        let minutes = [wall, wall - 60, wall + 60];
        let read = |at| Parity::read(&self.key.at(at), ends, bytes);
        let Some(parity) = minutes.into_iter().find_map(read) else {
            return false;
        };
        let ports = (parity.source, parity.destination);
        if self.waiting.len() < MOST_WAITING {
            let way = Way { ends, ports };
            self.waiting.push_back((now + WAIT, way, parity));
        }
        true
    }

    /// When the next datagram has waited long enough.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(until, ..)| *until)
    }

    /// The fates of what datagrams stand for that have waited long enough.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Fate> {
        let count = self
            .waiting
            .iter()
            .take_while(|(until, ..)| *until <= now)
            .count();
        let due: Vec<(Instant, Way, Parity)> = self.waiting.drain(..count).collect();
        let (mut fates, mut broken) = (Vec::new(), Vec::new());
        // Groups that came whole tell the other end's headers, for the others.
        for (_, way, parity) in &due {
            match self.whole(*way, parity) {
                Some(fate) => fates.push(fate),
                None => broken.push((*way, parity)),
            }
        }
        for (way, parity) in broken {
            fates.push(self.repair(now, way, parity).unwrap_or(Fate::Lost));
        }
        fates
    }

    /// Forgets connections from which nothing came for long.
    pub(super) fn forget(&mut self, now: Instant) {
        let bytes = &mut self.bytes;
        self.connections.retain(|_, one| {
            let is_kept = now.duration_since(one.seen) < KEEP;
            if !is_kept {
                *bytes -= one.bytes;
            }
            is_kept
        });
    }

    fn keep(&mut self, now: Instant, way: Way, first: u32, data: &[u8], got: Got) {
        let one = self.connections.entry(way).or_insert_with(|| Connection {
            pieces: VecDeque::new(),
            bytes: 0,
            dropped: None,
            got: None,
            seen: now,
        });
        one.seen = now;
        let piece = Piece {
            first,
            data: data.to_vec(),
            got,
        };
        one.bytes += piece.cost();
        self.bytes += piece.cost();
        one.pieces.push_back(piece);
        while one.bytes > MOST_OF_ONE || self.bytes > MOST_OF_ALL {
            let Some(oldest) = one.pieces.pop_front() else {
                break;
            };
            one.bytes -= oldest.cost();
            self.bytes -= oldest.cost();
            let end = oldest.first.wrapping_add(oldest.data.len() as u32);
            let is_later = |known: u32| end.wrapping_sub(known).cast_signed() > 0;
            if one.dropped.is_none_or(is_later) {
                one.dropped = Some(end);
            }
        }
    }

    /// The fate of blocks that all came; None of others.
    fn whole(&mut self, way: Way, parity: &Parity) -> Option<Fate> {
        let one = self.connections.get_mut(&way)?;
        let mut blocks = Vec::new();
        let mut of = Vec::new();
        for (first, length) in parity.blocks() {
            let (data, pieces) = one.read(first, length)?;
            blocks.push((first, data));
            of.extend(pieces);
        }
        if !parity.is_of(&self.key, &blocks) {
            return Some(Fate::Lost);
        }
        one.trust(&of);
        Some(Fate::Whole)
    }

    fn repair(&mut self, now: Instant, way: Way, parity: &Parity) -> Option<Fate> {
        let one = self.connections.get_mut(&way)?;
        let mut missing = None;
        let (mut others, mut of) = (Vec::new(), Vec::new());
        for (first, length) in parity.blocks() {
            match (one.read(first, length), missing) {
                (Some((data, pieces)), _) => {
                    others.push((first, data));
                    of.extend(pieces);
                }
                (None, None) => missing = Some((first, length)),
                (None, Some(_)) => return None,
            }
        }
        let lost = missing?;
        if one
            .dropped
            .is_some_and(|end| lost.0.wrapping_sub(end).cast_signed() < 0)
        {
            return None;
        }
        let data = parity.rebuild(&self.key, lost, &others)?;
        one.trust(&of);
        let (_, got) = one.got?;
        let packet = packet::segment(way.ends, way.ports, got, lost.0, &data)?;
        // Other parity may stand for a part of it.
        self.keep(now, way, lost.0, &data, got);
        Some(Fate::Repaired(packet))
    }
}

#[cfg(test)]
mod tests {
    use etherparse::TcpHeader;

    use super::super::datagram::Groups;
    use super::*;

    const SOURCE: &str = "192.0.2.1";
    const BLOCK: usize = 100;

    fn ends() -> Ends {
        (SOURCE.parse().unwrap(), "192.0.2.2".parse().unwrap())
    }

    fn key() -> Key {
        Key::new([7; 32])
    }

    fn data() -> Vec<u8> {
        (0..4000u32)
            .map(|number| (number * 31 % 251) as u8)
            .collect()
    }

    /// All datagrams of a connection that sends this, in groups of five blocks.
    fn parity(first: u32) -> Vec<Vec<u8>> {
        let mut groups = Groups::new((80, 5000), first, 5, BLOCK);
        let mut all = groups.take(&key(), &data());
        all.extend(groups.flush(&key()));
        let now = key().at(clock::second().0);
        all.iter().map(|one| one.write(&now, ends())).collect()
    }

    fn piece(receiver: &mut Receiver, now: Instant, first: u32, at: usize, length: usize) {
        let all = data();
        let mut tcp = TcpHeader::new(80, 5000, first.wrapping_add(at as u32), 1000);
        tcp.acknowledgment_number = 42;
        let found = Segment {
            ends: ends(),
            tcp,
            data: &all[at..at + length],
        };
        receiver.segment(now, &found);
    }

    /// Fates of all parity, after those segments came of which `came` says so.
    fn fates(first: u32, length: usize, came: impl Fn(usize) -> bool) -> Vec<Fate> {
        let (now, mut receiver) = (Instant::now(), Receiver::new(key()));
        for (number, at) in (0..data().len()).step_by(length).enumerate() {
            if came(number) {
                piece(&mut receiver, now, first, at, length);
            }
        }
        for one in parity(first) {
            assert!(receiver.datagram(now, ends(), &one));
        }
        assert_eq!(receiver.due(now), []);
        let fates = receiver.due(now + WAIT);
        receiver.forget(now + WAIT + KEEP);
        assert_eq!((receiver.connections.len(), receiver.bytes), (0, 0));
        fates
    }

    /// Places and bytes that packets bring.
    fn brought(fates: &[Fate], first: u32) -> Vec<(usize, Vec<u8>)> {
        let packets = fates.iter().filter_map(|fate| match fate {
            Fate::Repaired(packet) => packet::read(packet),
            _ => None,
        });
        packets
            .map(|one| {
                assert_eq!(
                    (one.tcp.acknowledgment_number, one.tcp.window_size),
                    (42, 1000)
                );
                (
                    one.tcp.sequence_number.wrapping_sub(first) as usize,
                    one.data.to_vec(),
                )
            })
            .collect()
    }

    #[test]
    fn one_lost_segment_comes_back_also_where_blocks_begin_elsewhere_and_numbers_wrap() {
        for first in [1000, u32::MAX - 1500] {
            let found = fates(first, BLOCK, |number| number != 7);
            assert_eq!(brought(&found, first), [(700, data()[700..800].to_vec())]);
            // Segments of 250 bytes: each is in three or four blocks, of different groups.
            let found = fates(first, 250, |number| number != 5);
            let all: Vec<usize> = brought(&found, first).iter().map(|(at, _)| *at).collect();
            assert_eq!(all.len(), 3, "{all:?}");
            for (at, bytes) in brought(&found, first) {
                assert_eq!(bytes, data()[at..at + BLOCK]);
            }
        }
    }

    #[test]
    fn a_burst_of_four_comes_back_and_two_of_a_group_do_not() {
        let first = 9;
        let burst = fates(first, BLOCK, |number| !(8..12).contains(&number));
        assert_eq!(brought(&burst, first).len(), 4);
        let two = fates(first, BLOCK, |number| number != 8 && number != 12);
        assert_eq!(brought(&two, first), []);
        assert_eq!(two.iter().filter(|fate| **fate == Fate::Lost).count(), 1);
        let none = fates(first, BLOCK, |_| true);
        assert!(none.iter().all(|fate| *fate == Fate::Whole));
    }

    #[test]
    fn what_somebody_else_sends_says_nothing_of_the_other_end() {
        let (now, mut receiver) = (Instant::now(), Receiver::new(key()));
        let first = 1000;
        let forge = |receiver: &mut Receiver, at: u32, data: &[u8]| {
            let mut tcp = TcpHeader::new(80, 5000, at, 0);
            tcp.acknowledgment_number = 666;
            let ends = ends();
            let found = Segment { ends, tcp, data };
            receiver.segment(now, &found);
        };
        // Beyond all, and a byte that anybody may guess.
        forge(&mut receiver, first + 9000, &[1; 100]);
        forge(&mut receiver, first + 3999, &data()[3999..]);
        let datagrams = parity(first);
        // Parity for another host is nobody's here, nor is what comes to another address.
        assert!(!receiver.datagram(now, (ends().0, ends().0), &datagrams[0]));
        // Alone: nothing is known of the other end.
        receiver.datagram(now, ends(), &datagrams[0]);
        assert_eq!(receiver.due(now + WAIT), [Fate::Lost]);
        for at in (0..4000).step_by(BLOCK).filter(|at| *at != 700) {
            piece(&mut receiver, now, first, at, BLOCK);
        }
        for one in &datagrams {
            receiver.datagram(now, ends(), one);
        }
        let fates = receiver.due(now + WAIT);
        assert_eq!(brought(&fates, first), [(700, data()[700..800].to_vec())]);
        // In the place of what came, it only keeps parity from its work.
        forge(&mut receiver, first + 700, &[9; 50]);
        receiver.datagram(now, ends(), &datagrams[3]);
        assert_eq!(brought(&receiver.due(now + WAIT), first), []);
    }

    #[test]
    fn memory_is_bounded() {
        let (now, mut receiver) = (Instant::now(), Receiver::new(key()));
        for number in 0..2000u32 {
            let found = Segment {
                ends: ends(),
                tcp: TcpHeader::new((number % 700) as u16, 1, number * 60_000, 1),
                data: &[0; 60_000],
            };
            receiver.segment(now, &found);
            let held: usize = receiver.connections.values().map(|one| one.bytes).sum();
            assert_eq!(held, receiver.bytes);
            assert!(held <= MOST_OF_ALL);
        }
        assert!(receiver.bytes > MOST_OF_ALL - 60_000);
        receiver.forget(now + WAIT + KEEP);
        assert_eq!(receiver.bytes, 0);
    }
}
