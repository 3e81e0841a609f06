//! A BPF ring buffer (BPF_MAP_TYPE_RINGBUF, kernel/bpf/ringbuf.c), read without a library.
//!
//! The kernel gives three mappings in one file: a page with the reader's position, which it writes; a page with the
//! writers' position; and the data twice in a row, so that no record is cut at the end. Positions only grow. There is one
//! reader: two would take records from each other.

#![allow(
    unsafe_code,
    reason = "mapped memory that the kernel writes meanwhile has no safe access"
)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::bpf;
use super::pin::{Pinned, hinted};

/// BPF_MAP_TYPE_RINGBUF.
const RINGBUF: u32 = 27;
/// BPF_RINGBUF_BUSY_BIT and BPF_RINGBUF_DISCARD_BIT: of the word before a record, beside its length.
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
/// BPF_RINGBUF_HDR_SZ: length, and a number that only the kernel needs.
const HEADER: u64 = 8;
/// Largest that is mapped, bytes: nobody keeps more records waiting.
const LARGEST: u64 = 1 << 28;

/// The one reader's side of a ring buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    map: OwnedFd,
    /// The page with the reader's position.
    reader: Mapping,
    /// The page with the writers' position, and the data twice.
    writers: Mapping,
    page: usize,
    size: u64,
}

impl Pinned for Ring {
    const NAME: &'static str = "records";

    fn open(path: &Path) -> Result<Self, String> {
        let map = bpf::open_pinned(path, bpf::Access::Write).map_err(|error| hinted(&error))?;
        let info = bpf::map_info(&map).map_err(|error| hinted(&error))?;
        let size = u64::from(info.max_entries);
        if info.kind != RINGBUF || !size.is_power_of_two() || size > LARGEST {
            return Err(format!(
                "it is not the ring buffer that this collector knows: type {} of {size} bytes, not type {RINGBUF} of at most {LARGEST}",
                info.kind
            ));
        }
        Self::map(map, size).map_err(|error| hinted(&error))
    }
}

impl Ring {
    fn map(map: OwnedFd, size: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let whole = page + 2 * usize::try_from(size).unwrap_or(0);
        let reader = Mapping::new(map.as_fd(), page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let writers = Mapping::new(map.as_fd(), whole, ProtFlags::READ, page as u64)?;
        Ok(Self {
            map,
            reader,
            writers,
            page,
            size,
        })
    }

    /// Takes records out, at most `most` of them, and gives each to `each`; how many they were. What `each` has is not
    /// given again.
    pub(crate) fn drain<E>(
        &mut self,
        most: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut taken = 0;
        let mut at = self.position(&self.reader).load(Ordering::Acquire);
        while taken < most {
            let end = self.position(&self.writers).load(Ordering::Acquire);
            if at == end {
                break;
            }
            let word = self.word(at).load(Ordering::Acquire);
            if word & BUSY != 0 {
                break;
            }
            let length = u64::from(word & !DISCARD);
            let next = at + (length + HEADER).next_multiple_of(8);
            // The kernel never writes this. What it means nobody knows, so what stands there is given up.
            if end.wrapping_sub(at) > self.size || next > end {
                self.position(&self.reader).store(end, Ordering::Release);
                break;
            }
            let result = match word & DISCARD {
                0 => each(self.record(at, length)),
                _ => Ok(()),
            };
            at = next;
            self.position(&self.reader).store(at, Ordering::Release);
            taken += 1;
            result?;
        }
        Ok(taken)
    }

    fn position(&self, page: &Mapping) -> &AtomicU64 {
        // SAFETY: a mapping begins at a page and has at least one, which `self` keeps; the kernel reads and writes the word
        // as a whole.
        unsafe { page.start.cast().as_ref() }
    }

    /// The word before the record at a position.
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: positions are multiples of 8, so the word lies within the data's first copy; the kernel writes it as a
        // whole.
        unsafe { self.data(at).cast().as_ref() }
    }

    /// The record at a position, `length` bytes long, which is at most the data's size.
    fn record(&self, at: u64, length: u64) -> &[u8] {
        let begin = self.data(at);
        // SAFETY: it begins within the first copy of the data, and its end lies before that of the second. The kernel has
        // finished it, and writes there again only when the reader's position has passed it: after this borrow ends.
        unsafe { std::slice::from_raw_parts(begin.as_ptr().add(HEADER as usize), length as usize) }
    }

    fn data(&self, at: u64) -> NonNull<u8> {
        let offset = self.page + (at & (self.size - 1)) as usize;
        // SAFETY: a page and the data's first copy lie within the mapping.
        unsafe { self.writers.start.add(offset) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// Mapped memory, given back when it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory that nobody else in this process knows.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, length: usize, access: ProtFlags, at: u64) -> io::Result<Self> {
        // SAFETY: the kernel chooses where, so nothing is replaced.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                file,
                at,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const SIZE: u64 = 4096;

    /// A file in the place of the kernel's memory: the second copy of the data is what the test makes it.
    struct Fake {
        file: std::fs::File,
        ring: Ring,
    }

    impl Fake {
        fn new() -> Self {
            let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
            let page = rustix::param::page_size() as u64;
            ftruncate(&file, 2 * page + 2 * SIZE).unwrap();
            let ring = Ring::map(file.try_clone().unwrap(), SIZE).unwrap();
            Self {
                file: file.into(),
                ring,
            }
        }

        fn put(&self, at: u64, bytes: &[u8]) {
            let data = 2 * self.ring.page as u64;
            for copy in [0, SIZE] {
                let begin = data + at % SIZE + copy;
                let room = (data + 2 * SIZE - begin).min(bytes.len() as u64) as usize;
                self.file.write_all_at(&bytes[..room], begin).unwrap();
            }
            // Bytes past the end of the first copy are also its beginning.
            let over = (at % SIZE + bytes.len() as u64).saturating_sub(SIZE) as usize;
            self.file
                .write_all_at(&bytes[bytes.len() - over..], data)
                .unwrap();
        }

        fn written(&self, at: u64) {
            self.file
                .write_all_at(&at.to_ne_bytes(), self.ring.page as u64)
                .unwrap();
        }

        fn read(&self) -> u64 {
            self.ring
                .position(&self.ring.reader)
                .load(Ordering::Relaxed)
        }

        fn drain(&mut self, most: u64) -> Vec<Vec<u8>> {
            let mut found = Vec::new();
            let each = |record: &[u8]| {
                found.push(record.to_vec());
                Ok::<(), ()>(())
            };
            self.ring.drain(most, each).unwrap();
            found
        }
    }

    fn record(flags: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32 | flags).to_ne_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn records_are_given_once_and_in_order_and_across_the_end() {
        let mut fake = Fake::new();
        let (mut at, mut wanted) = (0, Vec::new());
        for number in 0..200_u8 {
            let payload = vec![number; usize::from(number)];
            let discarded = number % 7 == 3;
            let bytes = record(if discarded { DISCARD } else { 0 }, &payload);
            fake.put(at, &bytes);
            at += bytes.len() as u64;
            fake.written(at);
            if !discarded {
                wanted.push(payload);
            }
            if number % 5 == 0 {
                assert_eq!(fake.drain(u64::MAX), std::mem::take(&mut wanted));
                assert_eq!(fake.read(), at);
            }
        }
        assert!(at > 2 * SIZE);
    }

    #[test]
    fn one_that_is_being_written_waits_and_a_turn_ends() {
        let mut fake = Fake::new();
        let (first, second) = (record(0, b"first"), record(BUSY, b"second"));
        fake.put(0, &first);
        fake.put(first.len() as u64, &second);
        fake.written((first.len() + second.len()) as u64);
        assert_eq!(fake.drain(u64::MAX), [b"first".to_vec()]);
        assert_eq!(fake.drain(u64::MAX), Vec::<Vec<u8>>::new());
        fake.put(first.len() as u64, &record(0, b"second"));
        assert_eq!(fake.drain(0), Vec::<Vec<u8>>::new());
        assert_eq!(fake.drain(1), [b"second".to_vec()]);
    }

    #[test]
    fn one_whose_consumer_failed_is_not_given_again() {
        let mut fake = Fake::new();
        let bytes = record(0, b"only");
        fake.put(0, &bytes);
        fake.written(bytes.len() as u64);
        assert_eq!(fake.ring.drain(9, |_| Err("full")), Err("full"));
        assert_eq!(fake.read(), bytes.len() as u64);
    }

    proptest! {
        /// Whatever stands there, it ends, within the memory, and nothing is read twice.
        #[test]
        fn hostile_bytes_end(bytes in proptest::collection::vec(any::<u8>(), SIZE as usize), written: u64, begin in 0..1000_u64) {
            let mut fake = Fake::new();
            fake.put(0, &bytes);
            fake.written(written);
            fake.file.write_all_at(&(begin * 8).to_ne_bytes(), 0).unwrap();
            let mut turns = 0;
            while !fake.drain(100).is_empty() {
                turns += 1;
                prop_assert!(turns < 100);
            }
        }
    }
}
