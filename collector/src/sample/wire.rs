//! The protobuf wire format, written field by field into a fixed slot without a branch on the slot's bounds.
//!
//! A row is at most [`ROW_LIMIT`] bytes (the field table proves it at compile time), so the writer masks its position
//! instead of checking it: whatever happens, a store stays inside the slot.

/// No row is longer, bytes. A power of two: the position is masked with it.
pub(crate) const ROW_LIMIT: usize = 2048;

/// Bytes that a row's slot must have: stores are eight or sixteen bytes wide and may reach past the row's end.
pub(crate) const SLOT: usize = ROW_LIMIT + 64;

const MASK: usize = ROW_LIMIT - 1;
const CONTINUE: u64 = 0x8080_8080_8080_8080;

/// Writes one row into its slot.
pub(crate) struct RowWriter<'a> {
    slot: &'a mut [u8; SLOT],
    at: usize,
}

impl<'a> RowWriter<'a> {
    /// Starts at the slot's beginning.
    pub(crate) fn new(slot: &'a mut [u8; SLOT]) -> Self {
        Self { slot, at: 0 }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn store(&mut self, word: u64, len: usize) {
        let at = self.at & MASK;
        self.slot[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.at += len;
    }

    /// A varint field: uint32, uint64, int64, bool or an enum.
    #[inline(always)]
    pub(crate) fn varint<const NUMBER: u32>(&mut self, value: impl Varint) {
        value.write::<NUMBER>(self);
    }

    /// Sixteen bytes: an address.
    #[inline(always)]
    pub(crate) fn address<const NUMBER: u32>(&mut self, value: &[u8; 16]) {
        const { assert!(NUMBER < 16) };
        self.store(u64::from(NUMBER << 3 | 2) | 16 << 8, 2);
        let at = self.at & MASK;
        self.slot[at..at + 16].copy_from_slice(value);
        self.at += 16;
    }

    /// A short string; what does not fit the row any more is cut, which the callers' own limits never let happen.
    #[inline(always)]
    pub(crate) fn text<const NUMBER: u32>(&mut self, value: &str) {
        let (tag, tag_len) = const { tag(NUMBER, 2) };
        self.store(tag, tag_len);
        self.varint_bare(value.len() as u64);
        self.raw(value.as_bytes());
    }

    /// Bytes that are encoded already: the fields that a poll's rows have in common.
    #[inline(always)]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let at = self.at & MASK;
        let room = self.slot[at..].len().min(bytes.len());
        self.slot[at..at + room].copy_from_slice(&bytes[..room]);
        self.at += room;
    }

    fn varint_bare(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.store(value & 0x7f | 0x80, 1);
            value >>= 7;
        }
        self.store(value, 1);
    }
}

/// A value that protobuf writes as a varint.
pub(crate) trait Varint: Copy {
    /// Bytes that a field of this type can take, tag included.
    const LIMIT: usize;

    /// The contract's name of the type.
    const TYPE: &'static str;

    /// Appends the field `NUMBER` to the row.
    fn write<const NUMBER: u32>(self, row: &mut RowWriter<'_>);
}

impl Varint for u32 {
    const LIMIT: usize = 2 + 5;
    const TYPE: &'static str = "uint32";

    #[inline(always)]
    fn write<const NUMBER: u32>(self, row: &mut RowWriter<'_>) {
        let (tag, tag_len) = const { tag(NUMBER, 0) };
        if self < 0x80 {
            row.store(tag | u64::from(self) << (8 * tag_len), tag_len + 1);
        } else {
            let (word, len) = spread_narrow(self);
            row.store(tag | word << (8 * tag_len), tag_len + len);
        }
    }
}

impl Varint for bool {
    const LIMIT: usize = 2 + 1;
    const TYPE: &'static str = "bool";

    #[inline(always)]
    fn write<const NUMBER: u32>(self, row: &mut RowWriter<'_>) {
        let (tag, tag_len) = const { tag(NUMBER, 0) };
        row.store(tag | u64::from(self) << (8 * tag_len), tag_len + 1);
    }
}

impl Varint for u64 {
    const LIMIT: usize = 2 + 10;
    const TYPE: &'static str = "uint64";

    #[inline(always)]
    fn write<const NUMBER: u32>(self, row: &mut RowWriter<'_>) {
        let (tag, tag_len) = const { tag(NUMBER, 0) };
        if self < 0x80 {
            row.store(tag | self << (8 * tag_len), tag_len + 1);
            return;
        }
        if let Ok(narrow) = u32::try_from(self) {
            let (word, len) = spread_narrow(narrow);
            row.store(tag | word << (8 * tag_len), tag_len + len);
            return;
        }
        row.store(tag, tag_len);
        if self < 1 << 56 {
            let (word, len) = spread(self);
            row.store(word, len);
        } else if self == u64::MAX {
            // The kernel's value for "no limit", so the commonest of the large values.
            row.store(u64::MAX, 8);
            row.store(0x01ff, 2);
        } else {
            row.varint_bare(self);
        }
    }
}

/// The tag of a field as the low bytes of a word, and their number.
const fn tag(number: u32, wire_type: u32) -> (u64, usize) {
    assert!(number >= 1 && number < 2048);
    let key = (number << 3 | wire_type) as u64;
    if key < 0x80 {
        (key, 1)
    } else {
        (key & 0x7f | 0x80 | key >> 7 << 8, 2)
    }
}

/// The bits that mean "more follows" in a varint of so many bytes.
const MORE: [u64; 8] = {
    let mut more = [0; 8];
    let mut len = 1;
    while len < 8 {
        more[len] = CONTINUE & ((1 << (8 * (len - 1))) - 1);
        len += 1;
    }
    more
};

/// As [`spread`], without counting leading zeros, which takes many processors longer than four comparisons.
#[inline(always)]
fn spread_narrow(value: u32) -> (u64, usize) {
    let x = u64::from(value);
    let x = x & 0x0fff_ffff | (x & 0xf000_0000) << 4;
    let x = x & 0x000f_0000_3fff | (x & 0x0fff_c000) << 2;
    let x = x & 0x000f_007f_007f | (x & 0x3f80_3f80) << 1;
    let len = 1
        + usize::from(value >= 1 << 7)
        + usize::from(value >= 1 << 14)
        + usize::from(value >= 1 << 21)
        + usize::from(value >= 1 << 28);
    (x | MORE[len], len)
}

/// The varint of a value below 2^56 as the low bytes of a word, and their number: the bits are moved in three steps to
/// where seven of each eight carry them.
#[inline(always)]
fn spread(value: u64) -> (u64, usize) {
    let x = value;
    let x = x & 0x0fff_ffff | (x & 0x00ff_ffff_f000_0000) << 4;
    let x = x & 0x0000_3fff_0000_3fff | (x & 0x0fff_c000_0fff_c000) << 2;
    let x = x & 0x007f_007f_007f_007f | (x & 0x3f80_3f80_3f80_3f80) << 1;
    let bits = 64 - (value | 1).leading_zeros() as usize;
    let len = (bits * 9 + 64) >> 6;
    (x | CONTINUE & ((1 << (8 * (len - 1))) - 1), len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut RowWriter<'_>)) -> Vec<u8> {
        let mut slot = [0; SLOT];
        let mut row = RowWriter::new(&mut slot);
        write(&mut row);
        let len = row.len();
        slot[..len].to_vec()
    }

    fn expected(number: u32, value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::Varint, &mut bytes);
        prost::encoding::encode_varint(value, &mut bytes);
        bytes
    }

    fn check(value: u64) {
        assert_eq!(written(|row| row.varint::<7>(value)), expected(7, value));
        assert_eq!(
            written(|row| row.varint::<154>(value)),
            expected(154, value)
        );
        let narrow = value as u32;
        assert_eq!(
            written(|row| row.varint::<7>(narrow)),
            expected(7, narrow.into())
        );
        assert_eq!(
            written(|row| row.varint::<154>(narrow)),
            expected(154, narrow.into())
        );
    }

    #[test]
    fn every_length_of_varint_is_prosts() {
        for shift in 0..64 {
            for value in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                check(value);
            }
        }
        check(u64::MAX);
    }

    proptest! {
        #[test]
        fn any_varint_is_prosts(value: u64, shift in 0..64) {
            check(value >> shift);
        }

        #[test]
        fn a_writer_past_its_limit_stays_in_the_slot(values in prop::collection::vec(any::<u64>(), 0..2000)) {
            let mut slot = [0; SLOT];
            let mut row = RowWriter::new(&mut slot);
            for value in values {
                row.varint::<154>(value);
                row.address::<10>(&[1; 16]);
                row.text::<26>("cubic");
            }
        }
    }
}
