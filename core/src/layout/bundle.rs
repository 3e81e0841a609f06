// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
//! Values of a bundle, as user space writes them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Address;
use crate::bundle;

/// Places for the settings of a generation: that in use, one that was in use or is being filled where user space was
/// killed, and a free one.
pub const SLOTS: u32 = 3;
/// Different congestion controls in one bundle.
pub const ALGORITHMS: usize = 16;
/// Bytes of an algorithm's name with its end (TCP_CA_NAME_MAX).
pub const ALGORITHM_NAME: usize = 16;
/// Ports and networks of this host whose connections are left alone, of a bundle.
pub const OWN_SIDES: usize = 64;

/// Connections of a thousand that recover from loss as the kernel does: beside them it shows what ours is worth.
pub const RECOVERY_CONTROL: u32 = 100;
/// The kernel's timeout of a handshake, milliseconds (TCP_TIMEOUT_INIT).
pub const HANDSHAKE_DEFAULT_MS: u32 = 1000;
/// Groups of parity that are open at once: neighbouring segments are in different ones.
pub const PARITY_GROUPS: u32 = 4;

/// Bytes/s: above it 4 bytes of SO_MAX_PACING_RATE mean no cap.
const LARGEST_RATE: u64 = u32::MAX as u64 - 1;

/// [`Entry::flags`]: an excluded destination; it is counted, nothing else.
pub const LEAVE_ALONE: u8 = 1;
/// [`Entry::flags`]: hides a wider prefix; nothing is done, and nothing counted.
pub const NOTHING: u8 = 2;
/// [`Entry::flags`]: every destination that the bundle does not name; connections leave a record, nothing else.
pub const UNNAMED: u8 = 4;

/// Values that connections to a prefix start with; 0 is the kernel's default.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// Bytes acknowledged before the algorithm acts.
    pub from_bytes: u32,
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
    /// [`LEAVE_ALONE`], [`NOTHING`] or [`UNNAMED`].
    pub flags: u8,
    /// Place of the settings of its generation.
    pub slot: u8,
    /// Segments that a first flight of the default sends again, in 1/16; 0 is not known.
    pub default_resent: u16,
    /// Bytes at a connection's beginning that are sent twice, and its SYN-ACK; 0 is none.
    pub copied_bytes: u16,
    /// Time after which a SYN or a SYN-ACK is sent again, milliseconds; 0 is the kernel's.
    pub handshake_timeout_ms: u16,
    /// Segments that one of parity stands for, in place of copies; 0 is copies.
    pub parity_every: u8,
    /// Zeros.
    pub padding: [u8; 3],
}

impl Entry {
    /// Encodes what an entry of a bundle gives. Its place (length, slot) and its algorithm's number are the whole bundle's.
    #[must_use]
    pub fn of(entry: &bundle::Entry) -> Self {
        let trial = entry.trial.as_ref();
        Self {
            from_bytes: entry
                .congestion
                .as_ref()
                .map_or(0, |one| u32::try_from(one.from_bytes).unwrap_or(u32::MAX)),
            window: entry.initcwnd.unwrap_or(0),
            rate: rate_of(entry.start_rate),
            connection_rate: rate_of(entry.connection_rate),
            trial_window: trial.and_then(|one| one.initcwnd).unwrap_or(0),
            trial_rate: rate_of(trial.and_then(|one| one.start_rate)),
            trial_connection_rate: rate_of(trial.and_then(|one| one.connection_rate)),
            receive_window: entry.receive_window.unwrap_or(0),
            trial_permille: trial.map_or(0, |one| {
                u16::try_from(one.permille.min(1000)).unwrap_or(1000)
            }),
            default_resent: resent_of(entry.default_resent),
            handshake_timeout_ms: entry
                .handshake_timeout_ms
                .map_or(0, |ms| u16::try_from(ms).unwrap_or(0)),
            copied_bytes: entry
                .copied_bytes
                .map_or(0, |bytes| u16::try_from(bytes).unwrap_or(u16::MAX)),
            parity_every: entry
                .parity_every
                .map_or(0, |segments| u8::try_from(segments).unwrap_or(0)),
            ..Self::default()
        }
    }
}

fn rate_of(rate: Option<u64>) -> u32 {
    rate.map_or(0, |rate| u32::try_from(rate.min(LARGEST_RATE)).unwrap_or(0))
}

/// Segments of a thousand flights as sixteenths of a segment of one.
fn resent_of(thousand: Option<u32>) -> u16 {
    thousand.map_or(0, |segments| {
        u16::try_from((segments.saturating_mul(16).div_ceil(1000)).max(1)).unwrap_or(u16::MAX)
    })
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
    /// Ticks of the kernel's timers in a second (CONFIG_HZ).
    pub hz: u32,
    /// Bytes of copies for each thousand bytes sent, at most.
    pub copies_permille: u32,
    /// DSCP of copies; 0 is that of their connection.
    pub copies_dscp: u32,
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_thousand_flights_segments_are_sixteenths_of_one() {
        assert_eq!(
            [None, Some(1), Some(4_000_000)].map(super::resent_of),
            [0, 1, 64_000]
        );
    }
}
