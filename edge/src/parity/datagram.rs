//! Datagrams of parity, and the groups of blocks that they stand for.
//!
//! A sender cuts the data of a connection, as it is sent for the first time, into blocks. Neighbours fall into different
//! groups, of [`GROUPS`], so that a burst of losses takes one of each. A group is closed when it has enough blocks, or when
//! the connection has nothing to send: its datagram has the exclusive or of their bytes, by which the other end gets back the
//! one that was lost. The last block of a group may be shorter.

use siphasher::sip::SipHasher24;
use springtide_core::layout::PARITY_GROUPS;

use super::packet::{Ends, octets};

/// Groups that are open at once: neighbours are that far apart.
pub(super) const GROUPS: usize = PARITY_GROUPS as usize;
/// Bytes before the exclusive or. Not more than UDP's header is shorter than TCP's with time stamps (RFC 7323): parity of
/// whole segments fits where they do.
pub(super) const HEADER: usize = 24;

/// Bytes of a connection from the first block of a group to its last: the other end keeps twice as many.
pub(super) const MOST_SPAN: usize = 64 * 1024;

/// Blocks of a connection and their exclusive or.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parity {
    /// Port of the end that sends.
    pub source: u16,
    /// Port of the end that gets it.
    pub destination: u16,
    /// Sequence number of the first block.
    pub first: u32,
    /// Number of blocks; between two of them stand those of the other groups.
    pub count: u8,
    /// Bytes of the last block; the others are as long as `bytes`.
    pub last: u16,
    /// Exclusive or of the blocks' hashes.
    pub check: u32,
    /// Exclusive or of the blocks; the last one has zeros behind it.
    pub bytes: Vec<u8>,
}

impl Parity {
    /// Sequence number and length of each block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, usize)> {
        let size = self.bytes.len();
        let stride = (size * GROUPS) as u32;
        (0..self.count).map(move |number| {
            let is_last = number + 1 == self.count;
            let length = if is_last { self.last.into() } else { size };
            let from = self
                .first
                .wrapping_add(u32::from(number).wrapping_mul(stride));
            (from, length)
        })
    }

    /// Says whether these are the blocks that were sent, all of them.
    pub(super) fn is_of(&self, key: &Key, blocks: &[(u32, Vec<u8>)]) -> bool {
        let hashes = blocks.iter().map(|(first, bytes)| key.check(*first, bytes));
        hashes.fold(self.check, |sum, one| sum ^ one) == 0
    }

    /// Gives the block that is missing, from the others; None where these are not what was sent.
    pub(super) fn rebuild(
        &self,
        key: &Key,
        missing: (u32, usize),
        others: &[(u32, Vec<u8>)],
    ) -> Option<Vec<u8>> {
        let mut block = self.bytes.clone();
        for (_, bytes) in others {
            mix(&mut block, bytes);
        }
        let rest = block.split_off(missing.1);
        let all = [others, &[(missing.0, block.clone())]].concat();
        let is_whole = self.is_of(key, &all) && rest.iter().all(|byte| *byte == 0);
        is_whole.then_some(block)
    }

    /// Writes the datagram.
    pub(super) fn write(&self, key: &Key, ends: Ends) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.bytes.len());
        out.extend(self.source.to_be_bytes());
        out.extend(self.destination.to_be_bytes());
        out.extend(self.first.to_be_bytes());
        out.extend([VERSION, self.count]);
        out.extend(self.last.to_be_bytes());
        out.extend(self.check.to_be_bytes());
        let tag = key.tag(ends, &out, &self.bytes);
        out.extend(tag.to_be_bytes());
        out.extend(&self.bytes);
        out
    }

    /// Reads a datagram that came between these ends; None where its key is not ours, or it makes no sense.
    pub(super) fn read(key: &Key, ends: Ends, datagram: &[u8]) -> Option<Self> {
        let (header, bytes) = datagram.split_at_checked(HEADER)?;
        let (said, tag) = header.split_at(HEADER - 8);
        if key.tag(ends, said, bytes).to_be_bytes() != tag || said[8] != VERSION {
            return None;
        }
        let short = |at: usize| u16::from_be_bytes([said[at], said[at + 1]]);
        let long =
            |at: usize| u32::from_be_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
        let found = Self {
            source: short(0),
            destination: short(2),
            first: long(4),
            count: said[9],
            last: short(10),
            check: long(12),
            bytes: bytes.to_vec(),
        };
        let is_sound = found.count > 0 && found.last > 0 && usize::from(found.last) <= bytes.len();
        is_sound.then_some(found)
    }
}

/// Number of the datagram's form.
const VERSION: u8 = 1;

/// The secret that the edges of a fleet share, in a minute: a recorded datagram counts for nothing once a connection of the
/// same ends may have its sequence numbers again. Linux's initial ones come round in 275 s (seq_scale in
/// net/core/secure_seq.c).
#[derive(Clone)]
pub(super) struct Key {
    tag: [u8; 16],
    check: [u8; 16],
    minute: i64,
}

impl Key {
    /// Takes 32 bytes that nobody else knows.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        let [tag, check] = [0, 16].map(|at| std::array::from_fn(|index| secret[at + index]));
        let minute = 0;
        Self { tag, check, minute }
    }

    /// The same at another time, in seconds since the epoch.
    pub(super) fn at(&self, unix_s: i64) -> Self {
        Self {
            minute: unix_s / 60,
            ..self.clone()
        }
    }

    /// Authenticates a datagram.
    fn tag(&self, ends: Ends, header: &[u8], bytes: &[u8]) -> u64 {
        let [from, to] = [ends.0, ends.1].map(octets);
        let parts: [&[u8]; 5] = [&self.minute.to_be_bytes(), &from, &to, header, bytes];
        SipHasher24::new_with_key(&self.tag).hash(&parts.concat())
    }

    /// Hash of a block.
    fn check(&self, first: u32, block: &[u8]) -> u32 {
        SipHasher24::new_with_key(&self.check).hash(&[&first.to_be_bytes(), block].concat()) as u32
    }
}

fn mix(into: &mut Vec<u8>, bytes: &[u8]) {
    if into.len() < bytes.len() {
        into.resize(bytes.len(), 0);
    }
    for (one, other) in into.iter_mut().zip(bytes) {
        *one ^= other;
    }
}

/// Data that a connection has sent since it last had nothing to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    every: u8,
    block_bytes: usize,
    /// Sequence number of the block that is being filled, and its bytes.
    current: (u32, Vec<u8>),
    /// Number of blocks before it.
    blocks: usize,
    open: [Parity; GROUPS],
}

impl Groups {
    /// Begins at a sequence number. `every`: blocks of a group.
    pub(super) fn new(ports: (u16, u16), first: u32, every: u8, block_bytes: usize) -> Self {
        let most = MOST_SPAN / (GROUPS * block_bytes.max(1));
        let empty = Parity {
            source: ports.0,
            destination: ports.1,
            ..Parity::default()
        };
        Self {
            every: every.clamp(1, u8::try_from(most).unwrap_or(u8::MAX).max(1)),
            block_bytes: block_bytes.max(1),
            current: (first, Vec::new()),
            blocks: 0,
            open: std::array::from_fn(|_| empty.clone()),
        }
    }

    /// Sequence number of what would follow.
    pub(super) fn end(&self) -> u32 {
        self.current.0.wrapping_add(self.current.1.len() as u32)
    }

    /// Takes the data that follows; gives the groups that it fills.
    pub(super) fn take(&mut self, key: &Key, mut data: &[u8]) -> Vec<Parity> {
        let mut full = Vec::new();
        while !data.is_empty() {
            let room = self.block_bytes - self.current.1.len();
            let (taken, rest) = data.split_at(room.min(data.len()));
            self.current.1.extend_from_slice(taken);
            data = rest;
            if self.current.1.len() == self.block_bytes {
                full.extend(self.close_block(key));
            }
        }
        full
    }

    /// Gives all that is open, and has something.
    pub(super) fn flush(mut self, key: &Key) -> Vec<Parity> {
        let mut all = Vec::new();
        if !self.current.1.is_empty() {
            all.extend(self.close_block(key));
        }
        all.extend(self.open.into_iter().filter(|one| one.count > 0));
        all
    }

    fn close_block(&mut self, key: &Key) -> Option<Parity> {
        let (first, block) = std::mem::take(&mut self.current);
        self.current.0 = first.wrapping_add(block.len() as u32);
        let group = &mut self.open[self.blocks % GROUPS];
        self.blocks += 1;
        if group.count == 0 {
            group.first = first;
        }
        group.count += 1;
        group.last = block.len() as u16;
        group.check ^= key.check(first, &block);
        mix(&mut group.bytes, &block);
        if group.count < self.every {
            return None;
        }
        let empty = Parity {
            source: group.source,
            destination: group.destination,
            ..Parity::default()
        };
        Some(std::mem::replace(group, empty))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    const ENDS: Ends = (
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    );

    fn key() -> Key {
        Key::new(std::array::from_fn(|at| at as u8))
    }

    /// All parity of a connection that sends these pieces.
    fn sent(first: u32, every: u8, block: usize, pieces: &[Vec<u8>]) -> Vec<Parity> {
        let mut groups = Groups::new((7, 8), first, every, block);
        let mut all: Vec<Parity> = pieces
            .iter()
            .flat_map(|piece| groups.take(&key(), piece))
            .collect();
        assert_eq!(
            groups.end(),
            first.wrapping_add(pieces.concat().len() as u32)
        );
        all.extend(groups.flush(&key()));
        all
    }

    proptest! {
        #[test]
        fn each_block_comes_back_from_the_others_of_its_group(
            first in any::<u32>(),
            every in 1u8..8,
            block in 1usize..40,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..90), 1..12),
        ) {
            let data = pieces.concat();
            let of = |from: u32, length: usize| {
                let at = from.wrapping_sub(first) as usize;
                data[at..at + length].to_vec()
            };
            let mut times = vec![0; data.len()];
            for one in sent(first, every, block, &pieces) {
                let read = Parity::read(&key(), ENDS, &one.write(&key(), ENDS)).unwrap();
                prop_assert_eq!(&read, &one);
                let blocks: Vec<(u32, usize)> = read.blocks().collect();
                prop_assert!(blocks.len() <= every.into());
                for lost in &blocks {
                    let others: Vec<(u32, Vec<u8>)> = blocks
                        .iter()
                        .filter(|other| *other != lost)
                        .map(|(from, length)| (*from, of(*from, *length)))
                        .collect();
                    prop_assert_eq!(read.rebuild(&key(), *lost, &others), Some(of(lost.0, lost.1)));
                    // One that is not what was sent spoils it.
                    if let Some((from, mut bytes)) = others.first().cloned() {
                        bytes[0] ^= 1;
                        let forged: Vec<_> = std::iter::once((from, bytes)).chain(others[1..].to_vec()).collect();
                        prop_assert_eq!(read.rebuild(&key(), *lost, &forged), None);
                    }
                    let at = lost.0.wrapping_sub(first) as usize;
                    times[at..at + lost.1].iter_mut().for_each(|count| *count += 1);
                }
            }
            prop_assert!(times.iter().all(|count| *count == 1));
        }

        #[test]
        fn what_is_not_from_the_fleet_is_no_parity(bytes in prop::collection::vec(any::<u8>(), 0..60), at in 0usize..60) {
            prop_assert_eq!(Parity::read(&key(), ENDS, &bytes), None);
            let mut good = sent(9, 3, 20, &[vec![5; 30]])[0].write(&key(), ENDS);
            prop_assert_eq!(Parity::read(&key(), (ENDS.0, ENDS.0), &good), None);
            prop_assert_eq!(Parity::read(&Key::new([0; 32]), ENDS, &good), None);
            prop_assert_eq!(Parity::read(&key().at(60), ENDS, &good), None);
            let at = at % good.len();
            good[at] ^= 1;
            prop_assert_eq!(Parity::read(&key(), ENDS, &good), None);
        }
    }

    #[test]
    fn neighbours_are_in_different_groups() {
        let all = sent(100, 2, 10, &[vec![1; 80]]);
        let first: Vec<_> = all
            .iter()
            .map(|one| one.blocks().map(|(from, _)| from).collect::<Vec<_>>())
            .collect();
        assert_eq!(first, [[100, 140], [110, 150], [120, 160], [130, 170]]);
    }
}
