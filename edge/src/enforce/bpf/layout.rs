//! What the program and user space share, as `bpf/start.h` has it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Changes with every struct of `bpf/start.h`; the directory of the pins is named after it.
pub(super) const LAYOUT: u32 = 4;
/// Places for the settings of a generation.
pub(super) const SLOTS: u32 = 3;
/// Addresses of which a brake knows how much they lost.
pub(super) const SUSPECTS: usize = 4;
/// Steps of a brake: the bundle's values, half of them, the kernel's default.
pub(super) const STEPS: usize = 3;
/// Ports and networks of this host whose connections are left alone, of a bundle.
pub(super) const OWN_SIDES: usize = 64;
/// Different congestion controls in one bundle.
pub(super) const ALGORITHMS: usize = 16;
/// Bytes of an algorithm's name with its end (TCP_CA_NAME_MAX).
pub(super) const ALGORITHM_NAME: usize = 16;
/// The budget's "lately": so many periods of so many nanoseconds count.
pub(super) const PERIODS: u32 = 4;
/// See [`PERIODS`].
pub(super) const PERIOD_NS: u64 = 2_500_000_000;
/// Sums of all CPUs, in the order of `enum total`.
pub(super) const TOTALS: u32 = 20;

/// Entry.flags: an excluded destination.
pub(super) const LEAVE_ALONE: u8 = 1;
/// Entry.flags: hides a wider IPv6 prefix from mapped IPv4 addresses.
pub(super) const NOTHING: u8 = 2;

/// A destination; IPv4 in its mapped form.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Prefix {
    pub(super) length: u32,
    pub(super) address: [u8; 16],
}

/// What connections to a prefix start with; 0 is the kernel's default.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Values {
    pub(super) from_bytes: u64,
    pub(super) window: u32,
    pub(super) rate: u32,
    pub(super) connection_rate: u32,
    pub(super) trial_window: u32,
    pub(super) trial_rate: u32,
    pub(super) trial_connection_rate: u32,
    pub(super) receive_window: u32,
    pub(super) trial_permille: u16,
    pub(super) algorithm: u8,
    pub(super) length: u8,
    pub(super) flags: u8,
    pub(super) slot: u8,
    pub(super) default_resent: u16,
    pub(super) padding: [u8; 4],
}

/// What all entries of a generation share.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Settings {
    pub(super) generation: u64,
    pub(super) round: i64,
    pub(super) deadline_ns: u64,
    pub(super) seed: u64,
    pub(super) half_life_ns: u64,
    pub(super) lift_bytes: u32,
    pub(super) lift_round_trips: u32,
    pub(super) brake_permille: u32,
    pub(super) brake_connections: u32,
    pub(super) record_permille: u32,
    pub(super) padding: u32,
    pub(super) algorithms: [[u8; ALGORITHM_NAME]; ALGORITHMS],
}

/// Connections that are left alone by this host's own side of them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Side {
    pub(super) address: [u8; 16],
    pub(super) mask: [u8; 16],
    pub(super) port: u32,
}

/// Those of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LeftAlone {
    pub(super) count: u32,
    pub(super) sides: [Side; OWN_SIDES],
}

/// One for the whole program.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct About {
    pub(super) layout: u32,
    pub(super) receive_windows: u32,
    pub(super) draining: u32,
    pub(super) slot: u32,
    pub(super) pending: u32,
    pub(super) others: u32,
    pub(super) generation: u64,
    pub(super) round: i64,
    pub(super) applied_at: i64,
    pub(super) expires_at: i64,
    pub(super) entries: u32,
    pub(super) excluded: u32,
    pub(super) programs: [u32; 2],
    pub(super) object: [u8; 32],
    pub(super) digest: [u8; 32],
}

/// Connections that started within a period and are in their first flights.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Flights {
    pub(super) period: u32,
    pub(super) live: u32,
    pub(super) most: u32,
}

/// What one address did to an arm of an entry; counts in 1/256.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Suspect {
    pub(super) address: u32,
    pub(super) exposed: u32,
    pub(super) lost: u32,
    pub(super) padding: u32,
    pub(super) by_default: Tally,
}

/// What first flights lost that are over, of one step of a brake; in 1/256.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Tally {
    pub(super) flights: u64,
    pub(super) resent: u64,
}

/// How an arm of an entry does; counts in 1/256.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BrakeState {
    pub(super) since_ns: u64,
    pub(super) changed_ns: u64,
    pub(super) default_mean: u64,
    pub(super) tallies: [Tally; STEPS],
    pub(super) exposed: u32,
    pub(super) lost: u32,
    pub(super) step: u32,
    pub(super) turn: u32,
    pub(super) suspects: [Suspect; SUSPECTS],
    pub(super) excused: u16,
    pub(super) doubted_s: u16,
    pub(super) crowded: u32,
}

/// What the program knows of a prefix.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct State {
    pub(super) lock: u32,
    pub(super) padding: u32,
    pub(super) round: i64,
    pub(super) flights: [Flights; PERIODS as usize],
    pub(super) brakes: [BrakeState; 2],
    pub(super) started: [u64; 2],
    pub(super) exposed: [u64; 2],
    pub(super) lost: [u64; 2],
    pub(super) untreated: [u64; 2],
    pub(super) switched: u64,
    pub(super) refused: u64,
    pub(super) late: u64,
    pub(super) braked: u64,
    pub(super) excused: u64,
}

/// A connection's first flights, as the ring buffer has them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct RawRecord {
    pub(super) cookie: u64,
    pub(super) closed_ns: u64,
    pub(super) generation: u64,
    pub(super) round: i64,
    pub(super) acked_bytes: u64,
    pub(super) netns: u64,
    pub(super) local: [u8; 16],
    pub(super) remote: [u8; 16],
    pub(super) local_port: u32,
    pub(super) remote_port: u32,
    pub(super) length: u32,
    pub(super) window: u32,
    pub(super) rate: u32,
    pub(super) at_once: u32,
    pub(super) first_resent: u32,
    pub(super) resent: u32,
    pub(super) segments: u32,
    pub(super) handshake_us: u32,
    pub(super) min_rtt_us: u32,
    pub(super) first_us: u32,
    pub(super) acked_10k_us: u32,
    pub(super) acked_50k_us: u32,
    pub(super) acked_100k_us: u32,
    pub(super) lifted_us: u32,
    pub(super) lived_us: u32,
    pub(super) train_bytes: u32,
    pub(super) train_us: u32,
    pub(super) first_segments: u32,
    pub(super) arm: u8,
    pub(super) step: u8,
    pub(super) flags: u8,
    pub(super) layout: u8,
    pub(super) padding: u32,
}
