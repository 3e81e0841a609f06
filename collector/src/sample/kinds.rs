//! Layout of a value in a kernel structure: its width and how its bits are read.

use super::wire::Varint;

#[cfg(not(target_endian = "little"))]
compile_error!(
    "the kernel's bit fields and words are read as a little-endian machine lays them out"
);

/// The shape of a value in memory.
pub(crate) trait Kind {
    /// Bytes that it occupies.
    const WIDTH: usize;
    /// Its type on the wire.
    type Value: Varint;
    /// Reads it at `at`. Panics when `bytes` ends before `at + WIDTH`: callers have checked.
    fn read(bytes: &[u8], at: usize) -> Self::Value;
}

macro_rules! kind {
    ($($(#[$doc:meta])* $name:ident: $width:literal, $value:ty, |$bytes:ident| $read:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl Kind for $name {
            const WIDTH: usize = $width;
            type Value = $value;

            #[inline(always)]
            fn read(bytes: &[u8], at: usize) -> $value {
                let mut $bytes = [0; $width];
                $bytes.copy_from_slice(&bytes[at..at + $width]);
                $read
            }
        }
    )*};
}

kind! {
    /// One byte.
    U8: 1, u32, |b| u32::from(b[0]);
    /// Two bytes.
    U16: 2, u32, |b| u32::from(u16::from_ne_bytes(b));
    /// Two bytes in network order: a port.
    BigEndianU16: 2, u32, |b| u32::from(u16::from_be_bytes(b));
    /// Four bytes.
    U32: 4, u32, |b| u32::from_ne_bytes(b);
    /// Eight bytes.
    U64: 8, u64, |b| u64::from_ne_bytes(b);
    /// The lower half of a byte.
    LowNibble: 1, u32, |b| u32::from(b[0] & 0xf);
    /// The upper half of a byte.
    HighNibble: 1, u32, |b| u32::from(b[0] >> 4);
    /// A byte's lowest bit as a truth value.
    Bit0: 1, bool, |b| b[0] & 1 != 0;
    /// The two bits above it as a number.
    Bits1And2: 1, u32, |b| u32::from(b[0] >> 1 & 3);
    /// A byte as a truth value.
    NonZero: 1, bool, |b| b[0] != 0;
}
