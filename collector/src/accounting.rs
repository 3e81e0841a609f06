//! Where every row went: for each sink, rows read and recovered = delivered + spooled + dropped by cause, at every moment.
//!
//! A row is *read* when its message has been made, and *spooled* from then on until its fate is known. Every change is a
//! transfer between two columns under one lock, once a message, so that no snapshot ever shows a sum that does not hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

/// Why rows did not reach a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// The queue was over its limit of bytes: the oldest went first.
    QueueBytes,
    /// The queue held them longer than its limit of age.
    QueueAge,
    /// The disk took nothing, and the memory for that case was full.
    DiskUnavailable,
    /// The receiver takes no message of that size; it is kept aside.
    TooLarge,
    /// The queue's file no longer held what was written.
    Unreadable,
}

impl Cause {
    /// Every cause, in the order of [`Book::rows_dropped`].
    pub(crate) const ALL: [Self; 5] = [
        Self::QueueBytes,
        Self::QueueAge,
        Self::DiskUnavailable,
        Self::TooLarge,
        Self::Unreadable,
    ];

    /// Its name in `--stats` and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::QueueBytes => "queue_bytes",
            Self::QueueAge => "queue_age",
            Self::DiskUnavailable => "disk_unavailable",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Names a sink of an [`Accounting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SinkId(usize);

/// Account of the rows of one sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// The sink.
    pub name: &'static str,
    /// Rows that a predecessor left in the queue for it.
    pub rows_recovered: u64,
    /// Rows that it took.
    pub rows_delivered: u64,
    /// Rows that wait for it: in the queue, or handed over and not acknowledged.
    pub rows_spooled: u64,
    /// Rows that it will never get, by [`Cause`].
    pub rows_dropped: [u64; Cause::ALL.len()],
}

impl Book {
    /// Rows dropped, whatever the cause.
    pub fn dropped(&self) -> u64 {
        self.rows_dropped.iter().sum()
    }

    /// Its columns as JSON.
    fn json(&self) -> Value {
        let dropped: Map<_, _> = Cause::ALL
            .iter()
            .map(|&cause| {
                (
                    cause.name().to_owned(),
                    self.rows_dropped[cause as usize].into(),
                )
            })
            .collect();
        json!({
            "rows_recovered": self.rows_recovered,
            "rows_delivered": self.rows_delivered,
            "rows_spooled": self.rows_spooled,
            "rows_dropped": dropped,
        })
    }
}

/// All books at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Rows read from the kernel and handed on.
    pub rows_read: u64,
    /// One for each sink.
    pub sinks: Vec<Book>,
}

impl Books {
    /// Whether every row is accounted for.
    #[cfg(test)]
    pub fn balanced(&self) -> bool {
        self.sinks.iter().all(|book| {
            self.rows_read + book.rows_recovered
                == book.rows_delivered + book.rows_spooled + book.dropped()
        })
    }

    /// The sinks by name, as JSON.
    pub fn sinks_json(&self) -> Value {
        let sinks: Map<_, _> = self
            .sinks
            .iter()
            .map(|book| (book.name.to_owned(), book.json()))
            .collect();
        sinks.into()
    }
}

/// The books, shared by whoever moves rows.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    books: Mutex<Books>,
}

impl Accounting {
    /// Opens a book. All sinks are added before the first row is read.
    pub(crate) fn add(&self, name: &'static str) -> SinkId {
        let mut books = self.lock();
        books.sinks.push(Book {
            name,
            ..Book::default()
        });
        SinkId(books.sinks.len() - 1)
    }

    /// The sinks' names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.lock().sinks.iter().map(|book| book.name).collect()
    }

    /// Rows were read: they wait for every sink.
    pub(crate) fn read(&self, rows: u64) {
        let mut books = self.lock();
        books.rows_read += rows;
        for book in &mut books.sinks {
            book.rows_spooled += rows;
        }
    }

    /// Rows of a predecessor wait for the sink.
    pub(crate) fn recovered(&self, sink: SinkId, rows: u64) {
        self.change(sink, |book| {
            book.rows_recovered += rows;
            book.rows_spooled += rows;
        });
    }

    /// The sink took rows that waited for it.
    pub(crate) fn delivered(&self, sink: SinkId, rows: u64) {
        self.change(sink, |book| {
            book.rows_spooled -= rows;
            book.rows_delivered += rows;
        });
    }

    /// Rows that waited for the sink will never reach it.
    pub(crate) fn dropped(&self, sink: SinkId, rows: u64, cause: Cause) {
        self.change(sink, |book| {
            book.rows_spooled -= rows;
            book.rows_dropped[cause as usize] += rows;
        });
    }

    /// The books as they are now.
    pub(crate) fn snapshot(&self) -> Books {
        self.lock().clone()
    }

    fn change(&self, sink: SinkId, change: impl FnOnce(&mut Book)) {
        change(&mut self.lock().sinks[sink.0]);
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transfer_keeps_the_sum() {
        let accounting = Accounting::default();
        let sinks = ["a", "b"].map(|name| accounting.add(name));
        accounting.recovered(sinks[1], 7);
        accounting.read(10);
        accounting.delivered(sinks[0], 10);
        accounting.dropped(sinks[1], 3, Cause::QueueAge);
        let books = accounting.snapshot();
        assert!(books.balanced());
        assert_eq!(
            (books.sinks[1].rows_spooled, books.sinks[1].dropped()),
            (14, 3)
        );
        let json = books.sinks_json();
        assert_eq!(json["b"]["rows_dropped"]["queue_age"], 3);
        assert_eq!(json["a"]["rows_delivered"], 10);
    }
}
