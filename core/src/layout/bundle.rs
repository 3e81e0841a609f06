// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
//! Values of a bundle, as user space writes them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Address;

/// Places for the settings of a generation: that in use, one that was in use or is being filled where user space was
/// killed, and a free one.
pub const SLOTS: u32 = 3;
/// Different congestion controls in one bundle.
pub const ALGORITHMS: usize = 16;
/// Bytes of an algorithm's name with its end (TCP_CA_NAME_MAX).
pub const ALGORITHM_NAME: usize = 16;
/// Ports and networks of this host whose connections are left alone, of a bundle.
pub const OWN_SIDES: usize = 64;

/// [`Entry::flags`]: an excluded destination; it is counted, nothing else.
pub const LEAVE_ALONE: u8 = 1;
/// [`Entry::flags`]: hides a wider IPv6 prefix from mapped IPv4 addresses.
pub const NOTHING: u8 = 2;

/// Values that connections to a prefix start with; 0 is the kernel's default.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// Bytes acknowledged before the algorithm acts.
    pub from_bytes: u64,
    /// Initial window, segments.
    pub window: u32,
    /// Bytes/s, shared by all in their first flights.
    pub rate: u32,
    /// Bytes/s, the most of it that one gets.
    pub connection_rate: u32,
    /// Value on trial, as [`window`](Self::window).
    pub trial_window: u32,
    /// Value on trial, as [`rate`](Self::rate).
    pub trial_rate: u32,
    /// Value on trial, as [`connection_rate`](Self::connection_rate).
    pub trial_connection_rate: u32,
    /// Receive window that this host announces first, segments.
    pub receive_window: u32,
    /// Share of connections that get the trial's values, in 1/1000.
    pub trial_permille: u16,
    /// 1 + index into [`Settings::algorithms`].
    pub algorithm: u8,
    /// Length of its prefix.
    pub length: u8,
    /// [`LEAVE_ALONE`] or [`NOTHING`].
    pub flags: u8,
    /// Place of the settings of its generation.
    pub slot: u8,
    /// Segments that a first flight of the default sends again, in 1/16; 0 is not known.
    pub default_resent: u16,
    /// Zeros.
    pub padding: [u8; 4],
}

/// Values that all entries of a generation share.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Settings {
    /// Number of the application.
    pub generation: u64,
    /// The bundle's, seconds since the epoch.
    pub round: i64,
    /// CLOCK_BOOTTIME, nanoseconds: from then on nothing is done.
    pub deadline_ns: u64,
    /// Seed by which connections fall into shares.
    pub seed: u64,
    /// Time in which what the brake has counted halves, nanoseconds.
    pub half_life_ns: u64,
    /// Bytes acknowledged with which a cap is lifted.
    pub lift_bytes: u32,
    /// Round trips after which a cap is lifted; 0 is no bound.
    pub lift_round_trips: u32,
    /// Share of connections that may lose in their first flights, in 1/1000.
    pub brake_permille: u32,
    /// Fewest connections by which the brake judges; 0 is no brake.
    pub brake_connections: u32,
    /// Share of connections that leave a record, in 1/1000.
    pub record_permille: u32,
    /// Zero.
    pub padding: u32,
    /// Names, each with zeros at its end.
    pub algorithms: [[u8; ALGORITHM_NAME]; ALGORITHMS],
}

/// This host's own side of connections that are left alone, whatever their destination.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnSide {
    /// The network.
    pub address: Address,
    /// The bits of it that count; none for any network.
    pub mask: Address,
    /// 0 for any port.
    pub port: u32,
}

/// Own sides of a generation; the settings have the same slot.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LeftAlone {
    /// Number of them.
    pub count: u32,
    /// The first of these.
    pub sides: [OwnSide; OWN_SIDES],
}
