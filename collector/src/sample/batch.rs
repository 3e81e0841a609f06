//! Rows gathered into one message: a varint length and an Envelope, ClickHouse's ProtobufList format.

use crate::sample::wire::SLOT;

/// Most rows in a message: 500 to 1000 is where ClickHouse's Kafka engine is fastest.
pub(crate) const ROWS: u32 = 1000;

/// A batch is full above this, bytes: half of what a Kafka broker takes by default.
const BYTES: usize = 512 * 1024;

/// Room for the varint in front of the Envelope.
const HEAD: usize = 5;

/// Tag and length in front of each row. The length always has two bytes, which holds any row.
const ROW_HEAD: usize = 3;

/// Gathers rows in a buffer that is allocated once.
pub struct Batch {
    buffer: Box<[u8]>,
    end: usize,
    rows: u32,
}

/// A complete message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Rows inside.
    pub rows: u32,
    /// Varint length and Envelope.
    pub bytes: &'a [u8],
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            buffer: vec![0; HEAD + BYTES + ROW_HEAD + SLOT].into(),
            end: HEAD,
            rows: 0,
        }
    }
}

impl Batch {
    /// Adds the row that `encode` writes into the slot it is given; it returns the row's length.
    #[inline(always)]
    pub fn push(&mut self, encode: impl FnOnce(&mut [u8; SLOT]) -> usize) {
        let start = self.end + ROW_HEAD;
        let Some(slot) = self.buffer[start..].first_chunk_mut() else {
            unreachable!("a batch that is not full has room for a slot")
        };
        let len = encode(slot);
        self.buffer[self.end..start].copy_from_slice(&[
            0x0a,
            len as u8 & 0x7f | 0x80,
            (len >> 7) as u8,
        ]);
        self.end = start + len;
        self.rows += 1;
    }

    /// Whether it must be taken before the next row.
    pub fn is_full(&self) -> bool {
        self.rows >= ROWS || self.end >= HEAD + BYTES
    }

    /// Whether it holds no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows so far as one message. The batch keeps them until [`clear`](Self::clear).
    pub fn message(&mut self) -> Message<'_> {
        let mut length = self.end - HEAD;
        let mut varint = [0; HEAD];
        let mut used = 0;
        loop {
            varint[used] = length as u8 & 0x7f;
            length >>= 7;
            used += 1;
            if length == 0 {
                break;
            }
            varint[used - 1] |= 0x80;
        }
        let start = HEAD - used;
        self.buffer[start..HEAD].copy_from_slice(&varint[..used]);
        Message {
            rows: self.rows,
            bytes: &self.buffer[start..self.end],
        }
    }

    /// Forgets the rows.
    pub fn clear(&mut self) {
        self.end = HEAD;
        self.rows = 0;
    }
}
