//! The values of a bundle that passed every check.

use ipnet::IpNet;

/// A bundle that passed every check. Times in seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Whose it is.
    pub edge: String,
    /// The edge's PoP.
    pub pop: String,
    /// The round that decided it.
    pub round: i64,
    /// First 12 hex digits of the SHA-256 of the effective policy.
    pub policy_version: String,
    /// When it was rendered.
    pub created_at: i64,
    /// From then on it does not count.
    pub expires_at: i64,
    /// `sha256:<hex>` over the canonical JSON of all other fields.
    pub digest: String,
    /// How its entries reach the packet.
    pub enforce: Enforce,
    /// What connections to each destination start with; sorted by IP version, network and length, unique.
    pub entries: Vec<Entry>,
}

/// How an edge acts on a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforce {
    /// By routes or by a program.
    pub by: Way,
    /// What happens where the program cannot be loaded.
    pub otherwise: Otherwise,
    /// What happens to connections that are open when the bundle is withdrawn.
    pub live: Live,
    /// Destinations that are left alone, whatever the entries say: sorted and unique as they are.
    pub excluded: Vec<IpNet>,
    /// Connections that are left alone by this edge's own side of them: sorted and unique. Only by a program.
    pub opted_out: Vec<OwnSide>,
    /// How long a start rate holds.
    pub lift: Lift,
    /// When an entry stops by itself; None never.
    pub brake: Option<Brake>,
    /// Of a thousand connections, those that leave a first-flight record.
    pub record_permille: u32,
}

/// Connections with this port and with an address in this network on the edge's own side; None is any, of one of them.
/// Ordered by port, then network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnSide {
    /// The edge's port.
    pub port: Option<u16>,
    /// Of the edge's addresses.
    pub prefix: Option<IpNet>,
}

/// How values reach a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Routes that carry windows and congestion controls.
    #[default]
    Routes,
    /// An eBPF sockops program.
    Bpf,
}

/// What an edge does that cannot load the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// As much as routes can carry.
    Routes,
    /// Nothing: the kernel's default.
    #[default]
    Default,
}

/// What becomes of open connections when a bundle is withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Live {
    /// They stay as they are.
    #[default]
    Leave,
    /// Cap and congestion control go back to the host's default.
    Restore,
}

/// A start rate is lifted as soon as one of these is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lift {
    /// Bytes acknowledged.
    pub bytes: u32,
    /// Round trips since the connection was established; None is no bound.
    pub round_trips: Option<u32>,
}

impl Default for Lift {
    /// 60 kB: what the rule of the start budget was measured with.
    fn default() -> Self {
        Self {
            bytes: 60_000,
            round_trips: None,
        }
    }
}

/// When an entry stops by itself, until a newer bundle comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    /// Of a thousand connections that started with our values, those that may lose in their first flights.
    pub lost_permille: u32,
    /// Not before so many have started (decayed as `half_life_s` says).
    pub connections: u32,
    /// After this time a connection counts half, seconds.
    pub half_life_s: u32,
}

/// What connections to one destination start with. What is None stays the kernel's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The destinations.
    pub prefix: IpNet,
    /// Initial congestion window, segments.
    pub initcwnd: Option<u32>,
    /// This edge's part of the path's rate, bytes/s: shared by all that are in their first flights.
    pub start_rate: Option<u64>,
    /// The most of `start_rate` that one connection gets, bytes/s.
    pub connection_rate: Option<u64>,
    /// Another congestion control than the host's.
    pub congestion: Option<Congestion>,
    /// Receive window that is announced at first, segments.
    pub receive_window: Option<u32>,
    /// Another value for a share of the connections.
    pub trial: Option<Trial>,
    /// Segments that a thousand first flights with the kernel's default were seen to send again.
    pub default_resent: Option<u32>,
}

/// A congestion control, and from when on it acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// As the kernel names it.
    pub algorithm: String,
    /// Bytes that the connection must have had acknowledged.
    pub from_bytes: u64,
    /// Where the bytes cannot be waited for, it may act from the first byte on.
    pub always: bool,
}

/// What a randomised share of an entry's connections gets instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Of a thousand connections.
    pub permille: u32,
    /// In place of the entry's; None is the kernel's default.
    pub initcwnd: Option<u32>,
    /// In place of the entry's; None is no cap.
    pub start_rate: Option<u64>,
    /// In place of the entry's; None is no bound.
    pub connection_rate: Option<u64>,
}
