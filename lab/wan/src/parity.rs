//! Parity beside a path's packets, as two boxes at its ends would send and use it (gentle aggression's corrective part): for a
//! group of packets the exclusive or of them, which brings back the one that was lost. Neighbours are in different groups, so
//! that a burst takes one of each.

use std::num::NonZeroU8;

use serde::Deserialize;

use crate::units::Milliseconds;

/// Settings of the groups of packets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parity {
    /// Packets of a group.
    pub every: NonZeroU8,
    /// Groups that are open at once: neighbours are that far apart.
    pub groups: NonZeroU8,
    /// A path that has been silent for so long closes its groups.
    #[serde(rename = "wait_ms")]
    pub wait: Milliseconds,
}

/// A group that is closed: the packet that its parity brings back (None where none or several were lost), and the
/// parity's size.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed<T> {
    pub lost: Option<T>,
    pub bytes: usize,
}

#[derive(Debug)]
struct Group<T> {
    packets: u8,
    largest: usize,
    lost: Vec<T>,
}

impl<T> Group<T> {
    fn close(&mut self) -> Closed<T> {
        let found = std::mem::replace(self, Self::new());
        let mut lost = found.lost;
        let one = if lost.len() == 1 { lost.pop() } else { None };
        Closed {
            lost: one,
            bytes: found.largest,
        }
    }

    const fn new() -> Self {
        Self {
            packets: 0,
            largest: 0,
            lost: Vec::new(),
        }
    }
}

/// The groups of one path.
#[derive(Debug)]
pub struct Groups<T> {
    parity: Parity,
    open: Vec<Group<T>>,
    packets: u64,
}

impl<T> Groups<T> {
    pub fn new(parity: Parity) -> Self {
        Self {
            parity,
            open: (0..parity.groups.get()).map(|_| Group::new()).collect(),
            packets: 0,
        }
    }

    /// Takes a packet of so many bytes, with its content where it was lost. Gives its group back where that is full.
    pub fn take(&mut self, bytes: usize, lost: Option<T>) -> Option<Closed<T>> {
        let count = self.open.len() as u64;
        let group = &mut self.open[(self.packets % count) as usize];
        self.packets += 1;
        group.packets += 1;
        group.largest = group.largest.max(bytes);
        group.lost.extend(lost);
        (group.packets == self.parity.every.get()).then(|| group.close())
    }

    /// Packets so far: as many as before means that the path was silent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// In nanoseconds.
    pub fn wait_ns(&self) -> u64 {
        self.parity.wait.ns()
    }

    /// Closes all groups that have packets.
    pub fn flush(&mut self) -> Vec<Closed<T>> {
        let begun = self.open.iter_mut().filter(|group| group.packets > 0);
        begun.map(Group::close).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(every: u8, groups: u8) -> Groups<u32> {
        Groups::new(Parity {
            every: every.try_into().unwrap(),
            groups: groups.try_into().unwrap(),
            wait: Milliseconds::new(5.0).unwrap(),
        })
    }

    #[test]
    fn one_lost_packet_of_a_group_comes_back_and_two_do_not() {
        let mut one = groups(3, 1);
        assert_eq!(one.take(100, None), None);
        assert_eq!(one.take(200, Some(7)), None);
        let closed = one.take(100, None).unwrap();
        assert_eq!((closed.lost, closed.bytes), (Some(7), 200));
        one.take(100, Some(1));
        one.take(100, Some(2));
        let closed = one.take(100, None).unwrap();
        assert_eq!((closed.lost, closed.bytes), (None, 100));
    }

    #[test]
    fn a_burst_takes_one_of_each_group() {
        let mut four = groups(4, 4);
        let closed: Vec<_> = (0..16)
            .filter_map(|number| four.take(100, (4..8).contains(&number).then_some(number)))
            .collect();
        let lost: Vec<_> = closed.into_iter().map(|one| one.lost).collect();
        assert_eq!(lost, [Some(4), Some(5), Some(6), Some(7)]);
    }

    #[test]
    fn what_is_left_is_closed_once() {
        let mut two = groups(8, 2);
        two.take(100, Some(1));
        assert_eq!(two.flush().len(), 1);
        assert_eq!(two.flush(), []);
        assert_eq!(two.packets(), 1);
    }
}
