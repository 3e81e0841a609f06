//! A connection as people look at it: the columns of the table and of `top`.

use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};

use crate::sample::json::{address, state_name};
use crate::sample::proto::{TcpSample, TcpState};

/// The part of a sample that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Connection {
    /// Names the socket within the boot: inode of its network namespace and its cookie.
    pub key: (u64, u64),
    /// The kernel's number of the state.
    pub state: i32,
    /// The local end.
    pub local: Option<SocketAddr>,
    /// The other end.
    pub peer: Option<SocketAddr>,
    /// Congestion control algorithm.
    pub algorithm: Option<Box<str>>,
    /// Smoothed and smallest round-trip time, microseconds; None before the first measurement.
    pub rtt_us: Option<u32>,
    /// See `rtt_us`.
    pub min_rtt_us: Option<u32>,
    /// Congestion window, packets.
    pub cwnd: Option<u32>,
    /// Segment size, bytes.
    pub mss: Option<u32>,
    /// Delivery rate, bytes per second.
    pub delivery_rate: Option<u64>,
    /// Bytes acknowledged.
    pub acked: Option<u64>,
    /// Packets sent again in the connection's life.
    pub retrans: Option<u32>,
    /// Packets sent again per second between the last two looks; None with one look only.
    pub retrans_per_s: Option<f64>,
    /// Bytes that wait to be read by the application.
    pub receive_queue: u32,
    /// Bytes that wait to be sent or acknowledged.
    pub send_queue: u32,
}

impl From<&TcpSample> for Connection {
    fn from(sample: &TcpSample) -> Self {
        // A listening socket's tcp_info has defaults that mean nothing for a connection.
        let listens = sample.state == TcpState::Listen as i32;
        let measured =
            |rtt: Option<u32>| rtt.filter(|&rtt| !listens && rtt != 0 && rtt != u32::MAX);
        let end = |ip: &[u8], port: u32| {
            let address = address(ip, sample.family)?;
            Some(SocketAddr::new(address, u16::try_from(port).ok()?))
        };
        Self {
            key: (sample.netns, sample.cookie),
            state: sample.state,
            local: end(&sample.src_ip, sample.src_port),
            peer: end(&sample.dst_ip, sample.dst_port),
            algorithm: sample.congestion_algorithm.as_deref().map(Box::from),
            rtt_us: measured(sample.rtt),
            min_rtt_us: measured(sample.min_rtt),
            cwnd: sample.snd_cwnd.filter(|_| !listens),
            mss: sample.snd_mss.filter(|_| !listens),
            delivery_rate: sample.delivery_rate.filter(|rate| *rate > 0),
            acked: sample.bytes_acked.filter(|_| !listens),
            retrans: sample.total_retrans.filter(|_| !listens),
            retrans_per_s: None,
            receive_queue: sample.rqueue,
            send_queue: sample.wqueue,
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of its name")]
pub(crate) enum Column {
    State,
    Local,
    Peer,
    Algorithm,
    Rtt,
    MinRtt,
    Cwnd,
    Mss,
    Rate,
    Acked,
    Retrans,
    RetransPerSecond,
    ReceiveQueue,
    SendQueue,
}

impl Column {
    /// Every column, from left to right.
    pub(crate) const ALL: [Self; 14] = [
        Self::State,
        Self::Local,
        Self::Peer,
        Self::Algorithm,
        Self::Rtt,
        Self::MinRtt,
        Self::Cwnd,
        Self::Mss,
        Self::Rate,
        Self::Acked,
        Self::Retrans,
        Self::RetransPerSecond,
        Self::ReceiveQueue,
        Self::SendQueue,
    ];

    /// Its heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Local => "LOCAL",
            Self::Peer => "PEER",
            Self::Algorithm => "CC",
            Self::Rtt => "RTT",
            Self::MinRtt => "MIN RTT",
            Self::Cwnd => "CWND",
            Self::Mss => "MSS",
            Self::Rate => "RATE",
            Self::Acked => "ACKED",
            Self::Retrans => "RETRANS",
            Self::RetransPerSecond => "RETR/s",
            Self::ReceiveQueue => "RECV-Q",
            Self::SendQueue => "SEND-Q",
        }
    }

    /// Whether it holds words and not numbers: words begin at the left, numbers end at the right.
    pub(crate) fn is_text(self) -> bool {
        matches!(
            self,
            Self::State | Self::Local | Self::Peer | Self::Algorithm
        )
    }

    /// Its content, with a unit; `-` for nothing.
    pub(crate) fn cell(self, of: &Connection) -> String {
        match self {
            Self::State => state_name(of.state.into()).map_or_else(
                || of.state.to_string(),
                |name| name.trim_start_matches("TCP_STATE_").replace('_', "-"),
            ),
            Self::Local => optional(of.local, |end| end.to_string()),
            Self::Peer => optional(of.peer, |end| end.to_string()),
            Self::Algorithm => optional(of.algorithm.as_ref(), |name| name.to_string()),
            Self::Rtt => optional(of.rtt_us, |us| time(us.into())),
            Self::MinRtt => optional(of.min_rtt_us, |us| time(us.into())),
            Self::Cwnd => optional(of.cwnd, |packets| packets.to_string()),
            Self::Mss => optional(of.mss, |bytes| bytes.to_string()),
            Self::Rate => optional(of.delivery_rate, bit_rate),
            Self::Acked => optional(of.acked, |bytes| format!("{}B", decimal(bytes as f64))),
            Self::Retrans => optional(of.retrans, |packets| packets.to_string()),
            Self::RetransPerSecond => optional(of.retrans_per_s, per_second),
            Self::ReceiveQueue => of.receive_queue.to_string(),
            Self::SendQueue => of.send_queue.to_string(),
        }
    }

    /// Compares two connections in it: an absent value comes last, whichever way the others go.
    pub(crate) fn compare(self, a: &Connection, b: &Connection, descending: bool) -> Ordering {
        let by = |a: Ordering| if descending { a.reverse() } else { a };
        if !self.is_text() {
            return match (self.number(a), self.number(b)) {
                (Some(a), Some(b)) => by(a.total_cmp(&b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
        }
        match self {
            Self::State => by(a.state.cmp(&b.state)),
            Self::Local => by(a.local.cmp(&b.local)),
            Self::Peer => by(a.peer.cmp(&b.peer)),
            _ => by(a.algorithm.cmp(&b.algorithm)),
        }
    }

    /// Its number, where it holds numbers.
    pub(crate) fn number(self, of: &Connection) -> Option<f64> {
        match self {
            Self::Rtt => of.rtt_us.map(f64::from),
            Self::MinRtt => of.min_rtt_us.map(f64::from),
            Self::Cwnd => of.cwnd.map(f64::from),
            Self::Mss => of.mss.map(f64::from),
            Self::Rate => of.delivery_rate.map(|rate| rate as f64),
            Self::Acked => of.acked.map(|bytes| bytes as f64),
            Self::Retrans => of.retrans.map(f64::from),
            Self::RetransPerSecond => of.retrans_per_s,
            Self::ReceiveQueue => Some(of.receive_queue.into()),
            Self::SendQueue => Some(of.send_queue.into()),
            Self::State | Self::Local | Self::Peer | Self::Algorithm => None,
        }
    }
}

/// The prefix that a peer belongs to: /24 or /56, the units of the fleet's policy. A mapped address is its IPv4 address.
pub(crate) fn peer_prefix(peer: IpAddr) -> (IpAddr, u8) {
    match peer.to_canonical() {
        IpAddr::V4(address) => (IpAddr::V4((address.to_bits() & (!0 << 8)).into()), 24),
        IpAddr::V6(address) => (IpAddr::V6((address.to_bits() & (!0 << 72)).into()), 56),
    }
}

fn optional<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Microseconds with a unit.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

/// Bytes per second in bits.
pub(crate) fn bit_rate(bytes: u64) -> String {
    format!("{}bit/s", decimal(bytes as f64 * 8.0))
}

/// A frequency.
pub(crate) fn per_second(value: f64) -> String {
    if value == 0.0 || value >= 9.95 {
        decimal(value)
    } else if value < 0.1 {
        "<0.1".to_owned()
    } else {
        format!("{value:.1}")
    }
}

/// A number with three digits and a decimal prefix.
pub(crate) fn decimal(value: f64) -> String {
    let (mut value, mut prefixes) = (value, ["", "k", "M", "G", "T", "P"].iter());
    let mut prefix = prefixes.next();
    while value >= 999.5 {
        let Some(next) = prefixes.next() else { break };
        (value, prefix) = (value / 1000.0, Some(next));
    }
    let prefix = prefix.copied().unwrap_or_default();
    let digits = if prefix.is_empty() || value >= 99.95 {
        0
    } else {
        1
    };
    format!("{value:.digits$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_at_a_glance() {
        let shown = [
            0.0, 999.0, 1000.0, 12_345.0, 99_960.0, 999_600.0, 43e9, 1e18, 1e19,
        ]
        .map(decimal);
        assert_eq!(
            shown,
            [
                "0", "999", "1.0k", "12.3k", "100k", "1.0M", "43.0G", "1000P", "10000P"
            ]
        );
        assert_eq!(
            [999, 1_000, 20_150, 3_000_000].map(time),
            ["999us", "1.0ms", "20.1ms", "3.0s"]
        );
        assert_eq!(
            [0.0, 0.04, 1.25, 12.5].map(per_second),
            ["0", "<0.1", "1.2", "12"]
        );
    }

    #[test]
    fn peers_belong_to_a_24_or_a_56() {
        for (peer, prefix) in [
            ("198.51.100.77", ("198.51.100.0", 24)),
            ("::ffff:198.51.100.77", ("198.51.100.0", 24)),
            ("2001:db8:1:2ff::1", ("2001:db8:1:200::", 56)),
        ] {
            let (network, length) = prefix;
            assert_eq!(
                peer_prefix(peer.parse().unwrap()),
                (network.parse().unwrap(), length)
            );
        }
    }

    #[test]
    fn what_is_absent_comes_last_both_ways() {
        let rtts = [Some(5), None, Some(9)].map(|rtt_us| Connection {
            rtt_us,
            ..Connection::default()
        });
        for (descending, order) in [
            (true, [Some(9), Some(5), None]),
            (false, [Some(5), Some(9), None]),
        ] {
            let mut sorted = rtts.clone();
            sorted.sort_by(|a, b| Column::Rtt.compare(a, b, descending));
            assert_eq!(sorted.map(|connection| connection.rtt_us), order);
        }
    }
}
