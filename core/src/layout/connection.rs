// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
//! Memory of a connection, and the record that the program leaves as it closes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ALGORITHM_NAME, Address, Prefix};

/// [`Start::flags`]: our cap is set.
pub const CAPPED: u8 = 1;
/// [`Start::flags`]: it is in the budget of its entry.
pub const COUNTED: u8 = 2;
/// [`Start::flags`]: it sent more than the kernel's first window, and got an answer.
pub const EXPOSED: u8 = 4;
/// [`Start::flags`]: it lost segments of its first flights.
pub const LOST: u8 = 8;
/// [`Start::flags`]: its first flights are acknowledged.
pub const JUDGED: u8 = 16;
/// [`Start::flags`]: the algorithm was set, or refused.
pub const SWITCHED: u8 = 32;
/// [`Start::flags`]: it leaves a record.
pub const RECORD: u8 = 64;
/// [`Start::flags`]: nothing was acknowledged since the retransmission timer ran out.
pub const UNANSWERED: u8 = 128;

/// So many times [`Start::lift_bytes`] a cap holds beside others.
pub const CROWDED_LIFT: u32 = 4;

/// Values that a connection started with, in a socket's own storage. The kernel makes one of zeros, and the program
/// fills it. `flags` and `now_rate` stay where they are in every [`LAYOUT`](super::LAYOUT): by them a withdrawal lifts the caps
/// of a set of another version.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Start {
    /// The bundle's, seconds since the epoch.
    pub round: i64,
    /// Segments that were set; 0 the kernel's default.
    pub window: u32,
    /// Bytes/s that were set, its share of the entry's; 0 no cap.
    pub rate: u32,
    /// 0 the entry's values, 1 the trial's.
    pub arm: u8,
    /// Step of the brake.
    pub step: u8,
    /// [`CAPPED`] and the like.
    pub flags: u8,
    /// [`LAYOUT`](super::LAYOUT); 0 while it is being filled.
    pub layout: u8,
    /// Number by which the entry's rate was divided; 0 before anything is sent.
    pub at_once: u32,
    /// Generation of the bundle that it started under.
    pub generation: u64,
    /// Prefix of the entry that matched.
    pub entry: Prefix,
    /// Period in which it counts in the budget.
    pub period: u32,
    /// CLOCK_MONOTONIC, nanoseconds, when established.
    pub at_ns: u64,
    /// Copy of [`Entry::from_bytes`](super::Entry::from_bytes).
    pub from_bytes: u64,
    /// bytes_acked when established.
    pub acked: u64,
    /// total_retrans when established.
    pub resent: u32,
    /// snd_nxt when established.
    pub sequence: u32,
    /// snd_nxt when the present round trip began.
    pub round_end: u32,
    /// Round trips since it was established.
    pub round_trips: u32,
    /// snd_nxt when the first flights were out.
    pub first_end: u32,
    /// Segments of the first flights that were sent again.
    pub first_resent: u32,
    /// Copy from the [`Settings`](super::Settings) that it started under.
    pub lift_bytes: u32,
    /// Copy from there.
    pub lift_round_trips: u32,
    /// Copy from there.
    pub brake_permille: u32,
    /// Copy from there.
    pub brake_connections: u32,
    /// Copy from there.
    pub half_life_ns: u64,
    /// First data acknowledged; microseconds since established, as the four that follow; 0 never.
    pub first_us: u32,
    /// 10 kB acknowledged.
    pub acked_10k_us: u32,
    /// 50 kB acknowledged.
    pub acked_50k_us: u32,
    /// 100 kB acknowledged.
    pub acked_100k_us: u32,
    /// Cap lifted.
    pub lifted_us: u32,
    /// Round trip of the handshake, microseconds.
    pub srtt_us: u32,
    /// The entry's rate, or what the brake left of it, bytes/s.
    pub whole_rate: u32,
    /// The cap in force, bytes/s; [`rate`](Self::rate) is the first.
    pub now_rate: u32,
    /// Callbacks that other programs want.
    pub others: u32,
    /// Bytes/s that its cap never exceeds; 0 no bound.
    pub most_rate: u32,
    /// Name that is to be set; empty for none.
    pub algorithm: [u8; ALGORITHM_NAME],
    /// Time of the last look at it, microseconds since established.
    pub seen_us: u32,
    /// Bytes acknowledged by then.
    pub seen_bytes: u32,
    /// Says whether it starts as the kernel does because of the brake, which asks what that loses.
    pub control: u32,
    /// Says whether the brake still waits for what its first flights lost in all.
    pub untold: u32,
    /// tcp_sock.delivered when established.
    pub train_base: u32,
    /// Segments delivered since, at the last look; 0 none yet.
    pub train_seen: u32,
    /// Time at which the last of them came, the kernel's microseconds.
    pub train_seen_us: u32,
    /// Segments delivered at the look with which the train began.
    pub train_first: u32,
    /// Time at which the last of those came.
    pub train_first_us: u32,
    /// Bytes acknowledged then.
    pub train_first_bytes: u32,
    /// Time at which the last of those was sent.
    pub train_sent_us: u32,
    /// Bytes of the longest train, delivered after its first look.
    pub train_bytes: u32,
    /// Microseconds that this took.
    pub train_us: u32,
    /// Says that no train can follow.
    pub train_over: u32,
    /// data_segs_out when [`first_resent`](Self::first_resent) was read: both of the same flights.
    pub first_segments: u32,
    /// Timeout of its handshake, milliseconds; 0 is the kernel's.
    pub handshake_timeout_ms: u16,
    /// Bytes of its beginning that are sent twice; 0 is none.
    pub copied_bytes: u16,
    /// Sequence number up to which segments have been sent.
    pub sent_end: u32,
    /// Segments that were sent twice.
    pub copied_segments: u32,
    /// Copy of [`Entry::parity_every`](super::Entry::parity_every).
    pub parity_every: u8,
    /// Zeros.
    pub padding: [u8; 7],
}

/// A packet of which parity is to be sent, whose bytes follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sent {
    /// CLOCK_MONOTONIC, nanoseconds: when it leaves at the earliest; 0 is now.
    pub leaves_ns: u64,
    /// Bytes of data in each of its segments, but for the last; 0 where it is one.
    pub segment_bytes: u32,
    /// Place of its IP header.
    pub ip_at: u16,
    /// Segments that one of parity stands for.
    pub every: u8,
    /// DSCP of parity; 0 is none.
    pub dscp: u8,
}

/// A connection's first flights, written as it closes. Times in microseconds since it was established, 0 never. The
/// program looks once a round trip and as the connection's state changes; between two looks acknowledgements are taken
/// for even, as those of what is paced are: the times of bursts are late by up to a round trip.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Record {
    /// Cookie of the socket.
    pub cookie: u64,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub closed_ns: u64,
    /// Generation of the bundle that it started under.
    pub generation: u64,
    /// The bundle's, seconds since the epoch.
    pub round: i64,
    /// Bytes acknowledged until it closed.
    pub acked_bytes: u64,
    /// Inode of the network namespace.
    pub netns: u64,
    /// This host's end.
    pub local: Address,
    /// The other end.
    pub remote: Address,
    /// Port of this host's end.
    pub local_port: u32,
    /// Port of the other end.
    pub remote_port: u32,
    /// Length of the entry's prefix.
    pub length: u32,
    /// Copy of [`Start::window`].
    pub window: u32,
    /// Copy of [`Start::rate`].
    pub rate: u32,
    /// Copy of [`Start::at_once`].
    pub at_once: u32,
    /// Segments of the first flights that were sent again.
    pub first_resent: u32,
    /// Segments that were sent again until it closed.
    pub resent: u32,
    /// Segments with data that were sent.
    pub segments: u32,
    /// Round trip of the handshake.
    pub handshake_us: u32,
    /// Least round trip.
    pub min_rtt_us: u32,
    /// First data acknowledged.
    pub first_us: u32,
    /// 10 kB acknowledged.
    pub acked_10k_us: u32,
    /// 50 kB acknowledged.
    pub acked_50k_us: u32,
    /// 100 kB acknowledged.
    pub acked_100k_us: u32,
    /// Cap lifted.
    pub lifted_us: u32,
    /// It closed.
    pub lived_us: u32,
    /// Bytes of what the kernel sends at once, delivered after the first of it; 0 is not known.
    pub train_bytes: u32,
    /// Time that they took, microseconds.
    pub train_us: u32,
    /// Segments with data that were sent in the first flights, [`first_resent`](Self::first_resent) among them.
    pub first_segments: u32,
    /// Copy of [`Start::arm`].
    pub arm: u8,
    /// Copy of [`Start::step`].
    pub step: u8,
    /// Copy of [`Start::flags`].
    pub flags: u8,
    /// [`LAYOUT`](super::LAYOUT).
    pub layout: u8,
    /// Copy of [`Start::handshake_timeout_ms`].
    pub handshake_timeout_ms: u16,
    /// SYNs or SYN-ACKs of this host that were sent again.
    pub handshake_resent: u8,
    /// Zero.
    pub padding: u8,
    /// Copy of [`Start::copied_bytes`].
    pub copied_bytes: u16,
    /// Copy of [`Start::copied_segments`].
    pub copied_segments: u16,
    /// Segments that the other end got twice (tcp_sock.dsack_dups).
    pub dsack_dups: u32,
}
