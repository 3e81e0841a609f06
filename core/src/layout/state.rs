// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause
//! Memory between connections: of the program, and of each prefix.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The values that connections start with: 0 the entry's, 1 the trial's.
pub const ARMS: usize = 2;
/// Periods that are "lately", of the start budget: 10 s.
pub const PERIODS: usize = 4;
/// Length of one of [`PERIODS`], nanoseconds.
pub const PERIOD_NS: u64 = 2_500_000_000;
/// Addresses of which a brake knows how much they lost, per arm.
pub const SUSPECTS: usize = 4;
/// Steps of a brake: 0 as the bundle says, 1 half of it, 2 the kernel's default.
pub const STEPS: usize = 3;
/// The last of [`STEPS`].
pub const BY_DEFAULT: u32 = 2;
/// [`Brake::excused`]: an address that was nearly alone said that the default loses as much.
pub const BY_ONE: u16 = 1;
/// [`Brake::excused`]: addresses beside the one that lost most said so.
pub const BY_SEVERAL: u16 = 2;

/// One for the whole program: what user space must find again after a restart, and switches that the program reads. The
/// first three words stay where they are in every [`LAYOUT`](super::LAYOUT): by them a set of another version is made
/// to lift its caps.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct About {
    /// [`LAYOUT`](super::LAYOUT).
    pub layout: u32,
    /// Says whether some entry has one.
    pub receive_windows: u32,
    /// Says that nothing starts with our values, and that caps are lifted at the next acknowledgement.
    pub draining: u32,
    /// Place of the settings in use.
    pub slot: u32,
    /// Slot that is being filled; the same as [`slot`](Self::slot) where nothing is unfinished.
    pub pending: u32,
    /// Number of other sockops programs that see the same connections.
    pub others: u32,
    /// Number of the application.
    pub generation: u64,
    /// The bundle's, seconds since the epoch.
    pub round: i64,
    /// Seconds since the epoch.
    pub applied_at: i64,
    /// Seconds since the epoch.
    pub expires_at: i64,
    /// Number that the bundle has, without what is excluded.
    pub entries: u32,
    /// Excluded destinations.
    pub excluded: u32,
    /// Ids: in use, and the one that it replaces.
    pub programs: [u32; 2],
    /// SHA-256 of the object that the program comes from.
    pub object: [u8; 32],
    /// SHA-256 of the bundle.
    pub digest: [u8; 32],
}

/// Connections that started within a period and are in their first flights.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flights {
    /// Its number; 0 for none.
    pub period: u32,
    /// Number of them.
    pub live: u32,
    /// The most at once, of all periods that count.
    pub most: u32,
}

/// First flights that are over, of those that sent more than the kernel's first window; in 1/256.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    /// Number of them.
    pub flights: u64,
    /// Segments that were sent again in all of them.
    pub resent: u64,
}

/// Losses of one address in an arm of an entry since its present step was entered, in 1/256.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Suspect {
    /// Hashed; an IPv6 address counts by its first 64 bits.
    pub address: u32,
    /// Counted as [`Brake::exposed`].
    pub exposed: u32,
    /// Counted as [`Brake::lost`].
    pub lost: u32,
    /// Zero.
    pub padding: u32,
    /// Counts of the kernel's default.
    pub by_default: Tally,
}

/// Success of an arm of an entry. Counts are in 1/256 and decay; all but the tallies are of the present step.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Brake {
    /// Up to when counts have decayed.
    pub since_ns: u64,
    /// Time at which the step was entered.
    pub changed_ns: u64,
    /// Loss of a flight of the default when it excused, in 1/256; 0 excuses nothing.
    pub default_mean: u64,
    /// Counts by the step that flights started with.
    pub tallies: [Tally; STEPS],
    /// Connections that sent more than the kernel's first window, and got an answer.
    pub exposed: u32,
    /// Those of them that lost segments of their first flights.
    pub lost: u32,
    /// Step, of [`STEPS`].
    pub step: u32,
    /// Place of the suspect that is looked at first.
    pub turn: u32,
    /// Addresses that lost most.
    pub suspects: [Suspect; SUSPECTS],
    /// [`BY_ONE`] or [`BY_SEVERAL`]: the default lost as much in this round, and the brake was taken back.
    pub excused: u16,
    /// Time since which too much is lost but too few flights are over to compare, seconds; 0 is not so.
    pub doubted_s: u16,
    /// Says whether addresses beside the one that lost most were there as it stepped back in this round.
    pub crowded: u32,
}

/// The kernel's struct bpf_spin_lock, which it finds by this name.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpinLock {
    /// Nothing to user space.
    pub val: u32,
}

/// Memory of a prefix; made at its first connection, and kept from bundle to bundle.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct State {
    /// Held while budget or brakes change.
    pub lock: SpinLock,
    /// Zero.
    pub padding: u32,
    /// Round that the brakes' steps belong to, seconds since the epoch.
    pub round: i64,
    /// The budget.
    pub flights: [Flights; PERIODS],
    /// Brake of each arm.
    pub brakes: [Brake; ARMS],
    /// Connections that started with our values.
    pub started: [u64; ARMS],
    /// Those of them that sent more than the kernel's first window, and got an answer.
    pub exposed: [u64; ARMS],
    /// Those of these that lost segments of their first flights.
    pub lost: [u64; ARMS],
    /// Connections for which the trial or the brake says the kernel's default.
    pub untreated: [u64; ARMS],
    /// Algorithms that were set.
    pub switched: u64,
    /// Values that the kernel refused.
    pub refused: u64,
    /// Connections whose SYN was sent again: they start as the kernel does.
    pub late: u64,
    /// Steps back of a brake.
    pub braked: u64,
    /// Brakes that were taken back.
    pub excused: u64,
}

/// Copies that a CPU sends.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Copying {
    /// Bytes of copies that are not yet paid for by what was sent, times a thousand.
    pub owed: u64,
    /// Cookie of the connection whose SYN-ACK is about to leave, and is sent twice; 0 is none.
    pub synack: u64,
}

/// Counters of the whole program, one set per CPU.
#[derive(Clone, Copy, Debug, TryFromBytes)]
#[repr(C)]
pub enum Total {
    /// Connections that started with our values.
    Started,
    /// Connections that matched, and were left at the kernel's default by the trial or the brake.
    Untreated,
    /// Connections to an excluded destination.
    Excluded,
    /// Connections after the deadline.
    Expired,
    /// Connections whose SYN was sent again.
    Late,
    /// Windows that the kernel refused.
    RefusedWindow,
    /// Rates that it refused.
    RefusedRate,
    /// Algorithms that it refused.
    RefusedAlgorithm,
    /// Connections with a cap that the application set.
    OwnRate,
    /// No room for a socket's storage.
    NoMemory,
    /// No room for a prefix's state.
    NoState,
    /// Connections that sent more than the kernel's first window, and got an answer.
    Exposed,
    /// Those of them that lost segments of their first flights.
    Lost,
    /// Algorithms that were set.
    Switched,
    /// Steps back of a brake.
    Braked,
    /// Records that were written.
    Records,
    /// Records for which the ring buffer had no room.
    RecordsLost,
    /// Caps that were set.
    Caps,
    /// Caps that were lifted, or closed with their connection.
    CapsEnded,
    /// Brakes that were taken back.
    Excused,
    /// Segments that were sent twice, SYN-ACKs among them.
    Copies,
    /// Bytes of these.
    CopiedBytes,
    /// Copies that the budget left out, or the kernel.
    CopiesRefused,
}

/// Number of [`Total`]s.
pub const TOTALS: usize = 23;
