//! A bundle: what an edge's new connections start with, by destination, and until when. One JSON document, which is
//! written, read and checked by this definition everywhere.
//!
//! Fields stand in the order of their names. So a document is written in canonical form, keys sorted and without spaces;
//! its digest is taken of that. Reading is strict: an unknown key, a key that occurs twice, a null, a list in place of
//! an object, another encoding than UTF-8 and a number that is no whole one are errors.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::instant;

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
/// Bytes of an object.
pub const MAX_OBJECT_BYTES: u64 = 1_000_000_000;

/// A whole document. Times in seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Bundle {
    /// Time at which it was rendered.
    #[serde(with = "instant::text")]
    pub created_at: i64,
    /// `sha256:<hex>` over the canonical form of all other fields.
    pub digest: String,
    /// Name of the edge that it is for.
    pub edge: String,
    /// Way in which its entries take effect.
    pub enforce: Enforce,
    /// Values that connections to each destination start with; sorted by IP version, network and length, unique.
    pub entries: Vec<Entry>,
    /// Time from which on it does not count.
    #[serde(with = "instant::text")]
    pub expires_at: i64,
    /// First 12 hex digits of the SHA-256 of the effective policy.
    pub policy_version: String,
    /// The edge's PoP.
    pub pop: String,
    /// The round that decided it.
    #[serde(with = "instant::text")]
    pub round: i64,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
}

/// Way in which an edge acts on a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Enforce {
    /// Condition on which an entry stops by itself; None: it never does.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub brake: Option<Brake>,
    /// Routes or a program.
    pub by: Way,
    /// Destinations that are left alone, whatever the entries say: sorted and unique as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Prefix>,
    /// Bytes acknowledged at which a start rate is lifted; None is [`Enforce::LIFT_BYTES`].
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub lift_bytes: Option<u32>,
    /// Round trips since the connection was established at which it is lifted; None is no bound.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub lift_round_trips: Option<u32>,
    /// Treatment of connections that are open when the bundle is withdrawn.
    pub live: Live,
    /// Connections that are left alone by this edge's own side of them: sorted and unique. Only by a program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opted_out: Vec<OwnSide>,
    /// Fallback where the program cannot be loaded.
    pub otherwise: Otherwise,
    /// Connections of a thousand that leave a first-flight record; None is none.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub record_permille: Option<u32>,
}

impl Enforce {
    /// Value with which the rule of the start budget was measured.
    pub const LIFT_BYTES: u32 = 60_000;
}

/// Connections with this port and with an address in this network on the edge's own side; None is any, of one of them.
/// Ordered by port, then network.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct OwnSide {
    /// The edge's port.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Network of the edge's addresses.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
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

/// Condition on which an entry stops by itself, until a newer bundle comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Brake {
    /// Connections that must have started before (decayed as `half_life_s` says).
    pub connections: u32,
    /// Time after which a connection counts half, seconds.
    pub half_life_s: u32,
    /// Connections of a thousand that started with our values, which may lose in their first flights.
    pub lost_permille: u32,
}

/// Values that connections to one destination start with. A value that is None stays the kernel's default.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Entry {
    /// Another congestion control than the host's.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// The most of `start_rate` that one connection gets, bytes/s.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<u64>,
    /// Segments that a thousand first flights with the kernel's default were seen to send again.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub default_resent: Option<u32>,
    /// Initial congestion window, segments.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub initcwnd: Option<u32>,
    /// The destinations.
    pub prefix: Prefix,
    /// Receive window that is announced at first, segments.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub receive_window: Option<u32>,
    /// This edge's part of the path's rate, bytes/s: shared by all that are in their first flights.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub start_rate: Option<u64>,
    /// Another value for a share of the connections.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

impl Entry {
    /// One that names its destinations and has no value yet.
    pub const fn of(prefix: Prefix) -> Self {
        Self {
            congestion: None,
            connection_rate: None,
            default_resent: None,
            initcwnd: None,
            prefix,
            receive_window: None,
            start_rate: None,
            trial: None,
        }
    }
}

/// A congestion control, and from when on it acts.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Congestion {
    /// Name that the kernel has for it.
    pub algorithm: String,
    /// Permission to act from the first byte on, where the bytes cannot be waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Bytes that the connection must have had acknowledged.
    pub from_bytes: u64,
}

/// Values that a randomised share of an entry's connections gets instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Trial {
    /// Value in place of the entry's; None is no bound.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub connection_rate: Option<u64>,
    /// Value in place of the entry's; None is the kernel's default.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub initcwnd: Option<u32>,
    /// Connections of a thousand.
    pub permille: u32,
    /// Value in place of the entry's; None is no cap.
    #[serde(default, with = "given", skip_serializing_if = "Option::is_none")]
    pub start_rate: Option<u64>,
}

/// Reads structs from objects only: what serde derives would also take a list of their values.
macro_rules! objects {
    ($($name:ident)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Object;

                impl<'de> Visitor<'de> for Object {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        // What is derived, as `remote = "Self"` has it beside the trait.
                        $name::deserialize(MapAccessDeserializer::new(map))
                    }
                }

                from.deserialize_map(Object)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, to)
            }
        }
    )*};
}

objects!(Bundle Enforce OwnSide Brake Entry Congestion Trial);

/// An optional value: where it is written down, it is no null.
mod given {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn deserialize<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        T::deserialize(from).map(Some)
    }

    pub(super) fn serialize<S: Serializer, T: Serialize>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(to)
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
