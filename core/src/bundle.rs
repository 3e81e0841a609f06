//! A bundle: what an edge's new connections start with, by destination, and until when. One JSON document, which is
//! written, read and checked by this definition everywhere.
//!
//! Fields stand in the order of their names. So a document is written in canonical form, keys sorted and without
//! spaces; its digest is taken of that. Reading is strict: errors are an unknown key, a key that occurs twice, a null,
//! a list in place of an object, a number that is not whole, and any encoding but UTF-8.

use std::fmt;

use crate::part::{Value, choices, part};

pub use crate::check::is_name;
pub use crate::prefix::{Prefix, destination_problem, parse_prefix};

/// The schema of documents.
pub const SCHEMA_VERSION: u32 = 1;
/// 100,000 of the longest IPv6 destinations are 7.5 MB.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Ten times what a fleet needs; also the largest that the policy can ask for.
pub const MAX_ENTRIES: usize = 100_000;
/// Ports and networks that are left alone: what the program has room for.
pub const MAX_OPTED_OUT: usize = 64;
/// Segments: 1.4 MB in the first round trip; ten times the largest default of the policy, a slip above it.
pub const MAX_WINDOW: u32 = 1000;
/// Bytes/s.
pub const MIN_RATE: u64 = 1000;
/// Bytes/s: 80 Gbit/s.
pub const MAX_RATE: u64 = 10_000_000_000;
/// Segments of a thousand first flights: five times what one of the default `lift_bytes` has. Edges take one flight for
/// at most 4096 (edge/bpf), with which none ever brakes.
pub const MAX_DEFAULT_RESENT: u32 = 200_000;
/// Milliseconds: below it a host that is busy for a moment would send again what was not lost.
pub const MIN_HANDSHAKE_TIMEOUT_MS: u32 = 50;
/// Milliseconds: the kernel's own (RFC 6298).
pub const MAX_HANDSHAKE_TIMEOUT_MS: u32 = crate::layout::HANDSHAKE_DEFAULT_MS;
/// Bytes of a connection's beginning that may be sent twice: what the program has room for.
pub const MAX_COPIED_BYTES: u32 = 65_535;
/// Bytes of an object.
pub const MAX_OBJECT_BYTES: u64 = 1_000_000_000;

part! {
    /// One JSON document for each edge: the values that new connections start with towards each prefix, how the edge
    /// enforces them, and until when. Times in seconds since the epoch; as text like 2026-01-02T03:05:00Z.
    Bundle {
        /// Time at which it was rendered.
        instant created_at;
        /// `sha256:<hex>` over the canonical form of all other fields.
        required digest: String;
        /// Name of the edge that it is for; another one refuses it.
        required edge: String;
        /// Way in which its entries take effect.
        required enforce: Enforce;
        /// Values that connections to each destination start with; sorted by IP version, network and length, unique. The
        /// longest match counts.
        required entries: Vec<Entry>;
        /// Time from which on it does not count: the edge withdraws it by itself.
        instant expires_at;
        /// First 12 hex digits of the SHA-256 of the effective policy.
        required policy_version: String;
        /// The edge's PoP.
        required pop: String;
        /// The round that decided it; an edge never goes back.
        instant round;
        /// Schema of the document: 1.
        required schema_version: u32, within SCHEMA_VERSION.into()..=SCHEMA_VERSION.into();
    }
}

part! {
    /// Way in which an edge acts on a bundle.
    #[derive(Default)]
    Enforce {
        /// Condition on which an entry stops by itself; without, none does.
        optional brake: Option<Brake>;
        /// Routes or a program.
        required by: Way;
        /// DSCP of copies; without, that of their connection.
        optional copies_dscp: Option<u32>, within 1..=63;
        /// Bytes of copies for each thousand bytes that the edge sends, at most; without, 20.
        optional copies_permille: Option<u32>, within 1..=1000;
        /// Destinations that are left alone, whatever the entries say; sorted and unique.
        optional excluded: Vec<Prefix>;
        /// Bytes acknowledged at which a start rate is lifted; without, 60,000.
        optional lift_bytes: Option<u32>, within 1..=MAX_OBJECT_BYTES;
        /// Round trips since the connection was established at which it is lifted; without, no bound.
        optional lift_round_trips: Option<u32>, within 1..=1000;
        /// Treatment of connections that are open when the bundle is withdrawn.
        required live: Live;
        /// Connections that are left alone by this edge's own side of them; sorted by port, then prefix; unique. Only by a
        /// program.
        optional opted_out: Vec<OwnSide>;
        /// Fallback where the program cannot be loaded: as much as routes can, or nothing.
        required otherwise: Otherwise;
        /// Connections of a thousand that leave a first-flight record, whatever their destination; without, none.
        optional record_permille: Option<u32>, within 0..=1000;
    }
}

impl Enforce {
    /// Value with which the rule of the start budget was measured.
    pub const LIFT_BYTES: u32 = 60_000;
    /// Share of copies that hardly costs a network anything.
    pub const COPIES_PERMILLE: u32 = 20;
}

part! {
    /// Connections by the edge's own side of them; at least one of both.
    #[derive(Copy, PartialOrd, Ord)]
    OwnSide {
        /// The edge's port; without, any.
        optional port: Option<u16>, within 1..=65_535;
        /// Network of the edge's addresses; without, any.
        optional prefix: Option<Prefix>;
    }
}

/// Way in which values reach a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Routes that carry windows and congestion controls.
    #[default]
    Routes,
    /// An eBPF sockops program.
    Bpf,
}

/// Fallback of an edge that cannot load the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    /// Routes, with as much as they can carry.
    Routes,
    /// Nothing: the kernel's default.
    #[default]
    Default,
}

/// Treatment of open connections when a bundle is withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Live {
    /// They stay as they are.
    #[default]
    Leave,
    /// Cap and congestion control go back to the host's default.
    Restore,
}

choices! {
    Way: "routes" "bpf";
    Otherwise: "routes" "default";
    Live: "leave" "restore";
}

part! {
    /// Condition on which an entry stops by itself, until a newer bundle comes.
    #[derive(Copy)]
    Brake {
        /// Connections that must have started before (decayed as `half_life_s` says).
        required connections: u32, within 1..=1_000_000;
        /// Time after which a connection counts half, seconds.
        required half_life_s: u32, within 1..=86_400;
        /// Connections of a thousand that started with our values, which may lose in their first flights.
        required lost_permille: u32, within 1..=1000;
    }
}

part! {
    /// Values that connections to one destination start with. What is missing stays the kernel's default.
    Entry {
        /// Another congestion control than the host's.
        optional congestion: Option<Congestion>;
        /// The most of `start_rate` that one connection gets, bytes/s.
        optional connection_rate: Option<u64>, within MIN_RATE..=MAX_RATE;
        /// Bytes at the beginning of each connection whose segments are sent twice, and the SYN-ACK before them.
        optional copied_bytes: Option<u32>, within 1..=MAX_COPIED_BYTES.into();
        /// Segments that a thousand first flights with the kernel's default were seen to send again.
        optional default_resent: Option<u32>, within 1..=MAX_DEFAULT_RESENT.into();
        /// Time without an answer after which a SYN or a SYN-ACK is sent again, milliseconds; without, the kernel's second.
        optional handshake_timeout_ms: Option<u32>, within MIN_HANDSHAKE_TIMEOUT_MS.into()..=MAX_HANDSHAKE_TIMEOUT_MS.into();
        /// Initial congestion window, segments.
        optional initcwnd: Option<u32>, within 1..=MAX_WINDOW.into();
        /// Segments that one of parity stands for. Instead of `copied_bytes` being sent twice, so many times more are sent with
        /// parity.
        optional parity_every: Option<u32>, within 1..=10;
        /// The destinations, like 10.77.2.0/24 or fd77:2::/48, in its shortest form.
        required prefix: Prefix;
        /// Receive window that is announced at first, segments.
        optional receive_window: Option<u32>, within 1..=MAX_WINDOW.into();
        /// This edge's part of the path's rate, bytes/s: shared by all that are in their first flights.
        optional start_rate: Option<u64>, within MIN_RATE..=MAX_RATE;
        /// Other values for a share of the connections, by chance.
        optional trial: Option<Trial>;
    }
}

impl Entry {
    /// One that names its destinations and has no value yet.
    pub const fn of(prefix: Prefix) -> Self {
        Self {
            congestion: None,
            connection_rate: None,
            copied_bytes: None,
            default_resent: None,
            handshake_timeout_ms: None,
            initcwnd: None,
            parity_every: None,
            prefix,
            receive_window: None,
            start_rate: None,
            trial: None,
        }
    }
}

part! {
    /// A congestion control, and from when on it acts.
    Congestion {
        /// Name that the kernel has for it, like bbr.
        required algorithm: String;
        /// Permission to act from the first byte on, where the bytes cannot be waited for.
        optional always: bool;
        /// Bytes that the connection must have had acknowledged.
        required from_bytes: u64, within 0..=MAX_OBJECT_BYTES;
    }
}

part! {
    /// Values that a randomised share of an entry's connections gets instead.
    #[derive(Copy)]
    Trial {
        /// Value in place of the entry's; without, no bound.
        optional connection_rate: Option<u64>, within MIN_RATE..=MAX_RATE;
        /// Value in place of the entry's; without, the kernel's default.
        optional initcwnd: Option<u32>, within 1..=MAX_WINDOW.into();
        /// Connections of a thousand.
        required permille: u32, within 1..=1000;
        /// Value in place of the entry's; without, no cap.
        optional start_rate: Option<u64>, within MIN_RATE..=MAX_RATE;
    }
}

impl Bundle {
    /// Describes a document as JSON Schema does.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        let mut schema = <Self as Value>::schema();
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema
    }
}

/// Fault of a document, and what to do: one line of `FIELD: PROBLEM; FIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub kind: Kind,
    /// Place in the document, like `entries[3].trial.permille`.
    pub field: String,
    /// Description of it.
    pub what: String,
    /// Advice.
    pub fix: String,
}

/// Kinds of problems that edges answer in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The document is no bundle, or a value is out of bounds.
    Wrong,
    /// The content is not what was digested.
    Altered,
    /// The bundle is for another edge.
    OtherEdge,
    /// The bundle is past its expiry.
    Expired,
}

impl Problem {
    pub(crate) fn new(
        field: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (field, what, fix) = (field.into(), what.into(), fix.into());
        Self {
            kind: Kind::Wrong,
            field,
            what,
            fix,
        }
    }

    pub(crate) fn of(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}; {}", self.field, self.what, self.fix)
    }
}
