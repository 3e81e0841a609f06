//! Items under way, by the time at which they are due.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A queue of items by due time; items of the same time come out as they went in.
#[derive(Debug)]
pub struct Schedule<T> {
    heap: BinaryHeap<Entry<T>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due: u64,
    order: u64,
    item: T,
}

impl<T> Schedule<T> {
    /// An empty schedule.
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// Adds an item that is due at `due`, in nanoseconds.
    pub fn push(&mut self, due: u64, item: T) {
        self.heap.push(Entry {
            due,
            order: self.pushed,
            item,
        });
        self.pushed += 1;
    }

    /// The next item whose time is `now` or earlier.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|entry| entry.item)
    }

    /// When the next item is due.
    pub fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.due)
    }
}

impl<T> Ord for Entry<T> {
    // BinaryHeap gives its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_come_out_as_a_stable_sort_by_time(dues in prop::collection::vec(0..50_u64, 0..200)) {
            let mut schedule = Schedule::new();
            for (index, due) in dues.iter().enumerate() {
                schedule.push(*due, (*due, index));
            }
            let mut expected: Vec<_> = dues.iter().copied().enumerate().map(|(index, due)| (due, index)).collect();
            expected.sort_by_key(|(due, _)| *due);
            let found: Vec<_> = std::iter::from_fn(|| schedule.pop_due(u64::MAX)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn nothing_comes_out_before_its_time(dues in prop::collection::vec(0..50_u64, 1..100), now in 0..50_u64) {
            let mut schedule = Schedule::new();
            for due in &dues {
                schedule.push(*due, *due);
            }
            let found: Vec<_> = std::iter::from_fn(|| schedule.pop_due(now)).collect();
            prop_assert_eq!(found.len(), dues.iter().filter(|due| **due <= now).count());
            prop_assert!(schedule.next_due().is_none_or(|due| due > now));
        }
    }
}
