// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
//! Structs that the eBPF program and user space share, defined here only: `edge/build.rs` makes the header `layout.h` of
//! them, whose names are those here in C's manner (`struct left_alone`, `TOTAL_NO_MEMORY`), and a test compares each member
//! with the types in the compiled programs.
//!
//! Every struct has explicit padding. [`LAYOUT`] changes whenever one of them does, but for what was padding and means
//! nothing while it is 0.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

mod bundle;
mod connection;
mod state;

pub use bundle::*;
pub use connection::*;
pub use state::*;

/// Version of all that is here; the directory of the program's pins is named after it.
pub const LAYOUT: u8 = 6;

/// An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d, as the kernel shows it on a socket of both families too; its
/// words are in network byte order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Address([u32; 4]);

impl Address {
    /// Takes the bytes as a packet has them.
    pub const fn new(octets: [u8; 16]) -> Self {
        Self(transmute!(octets))
    }

    /// Gives the bytes as a packet has them.
    pub const fn octets(self) -> [u8; 16] {
        transmute!(self.0)
    }
}

/// A destination.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Prefix {
    /// Bits of the address that count: of the mapped form. First, as BPF_MAP_TYPE_LPM_TRIE wants it.
    pub length: u32,
    /// The network.
    pub address: Address,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn what_tells_a_set_of_another_version_stays_where_it_is() {
        let about = [
            offset_of!(About, layout),
            offset_of!(About, receive_windows),
            offset_of!(About, draining),
        ];
        assert_eq!(about, [0, 4, 8]);
        let start = [offset_of!(Start, flags), offset_of!(Start, now_rate)];
        assert_eq!(start, [18, 156]);
    }

    #[test]
    fn an_address_has_the_bytes_of_a_packet() {
        let octets = std::array::from_fn(|at| at as u8);
        assert_eq!(Address::new(octets).as_bytes(), octets);
        assert_eq!(Address::new(octets).octets(), octets);
    }

    #[test]
    fn totals_are_as_many_as_there_are_names() {
        assert_eq!(Total::CopiesRefused as usize + 1, TOTALS);
    }
}
