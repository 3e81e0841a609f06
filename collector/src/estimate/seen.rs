//! What samples show of each connection, as `sql/advise/evidence.sql` reads it from the store.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crate::sample::json::address;
use crate::sample::proto::{SampleKind, TcpSample, TcpState};

/// Connections that are remembered; of more, the first.
pub(super) const MOST_CONNECTIONS: usize = 200_000;
/// Limits as in sql/rollup/2_sockets.sql.
const MOST_RATE: u64 = 100_000_000_000;
const MOST_RTT_US: u32 = 600_000_000;

/// A connection, as its samples so far show it. Rates are bytes a second, 0 is none.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// The other end.
    pub peer: IpAddr,
    /// Was not there in the first poll.
    pub is_fresh: bool,
    /// Sockets that it stands for.
    pub weight: u32,
    /// Bytes of a segment, of the newest sample.
    pub mss: u32,
    /// The shortest round trip, microseconds; 0 is none.
    pub low_rtt_us: u32,
    /// Delivered while the path, and nobody else, was the limit.
    pub met_rate: u64,
    /// The most that was delivered.
    pub reached_rate: u64,
    /// Bytes sent, and of them again.
    pub sent: u64,
    /// See `sent`.
    pub again: u64,
    /// Segments that arrived twice.
    pub twice: u32,
    /// The peer's window as it closed, bytes; 0 is none.
    pub receiver_window: u32,
    /// Of the newest sample, microseconds since the epoch.
    pub seen_us: i64,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Seen {
    since_us: i64,
    is_watching: bool,
    connections: HashMap<(u64, u64), Connection>,
    left_out: HashSet<(u64, u64)>,
}

impl Connection {
    /// Bytes that were lost: sent again, and not because they seemed to be.
    pub(super) fn lost(&self) -> u64 {
        let twice = u64::from(self.twice) * u64::from(self.mss);
        self.again.saturating_sub(twice)
    }
}

impl Seen {
    /// Nothing yet; rates that were measured before `since_us` do not count.
    pub(super) fn new(since_us: i64) -> Self {
        Self {
            since_us,
            is_watching: false,
            connections: HashMap::new(),
            left_out: HashSet::new(),
        }
    }

    /// The connections, each with what names it on this host.
    pub(super) fn connections(&self) -> impl Iterator<Item = ((u64, u64), &Connection)> {
        self.connections.iter().map(|(key, one)| (*key, one))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// How many more were met, counted up to as many again.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// The first poll is over, which shows connections of any age: what is met from now on has begun since.
    pub(super) fn watch(&mut self) {
        self.is_watching = true;
    }

    /// Takes a sample.
    pub(super) fn take(&mut self, sample: &TcpSample) {
        let closes = sample.kind == SampleKind::Close as i32;
        if !(closes || sample.kind == SampleKind::Poll as i32) || !has_tcp_info(sample.state) {
            return;
        }
        let Some(peer) = address(&sample.dst_ip, sample.family).map(|peer| peer.to_canonical())
        else {
            return;
        };
        let key = (sample.netns, sample.cookie);
        if !self.connections.contains_key(&key) && self.connections.len() >= MOST_CONNECTIONS {
            if self.left_out.len() < MOST_CONNECTIONS {
                self.left_out.insert(key);
            }
            return;
        }
        let one = self.connections.entry(key).or_insert_with(|| Connection {
            peer,
            is_fresh: self.is_watching,
            weight: sample.sample_weight.unwrap_or(1).clamp(1, 65_535),
            mss: 0,
            low_rtt_us: 0,
            met_rate: 0,
            reached_rate: 0,
            sent: 0,
            again: 0,
            twice: 0,
            receiver_window: 0,
            seen_us: 0,
        });
        one.mss = sample.snd_mss.unwrap_or(0);
        one.sent = one.sent.max(sample.bytes_sent.unwrap_or(0));
        one.again = one.again.max(sample.bytes_retrans.unwrap_or(0));
        one.twice = one.twice.max(sample.dsack_dups.unwrap_or(0));
        if closes {
            one.receiver_window = sample.snd_wnd.unwrap_or(0);
        }
        if let Some(rtt) = sample.min_rtt.filter(|rtt| (1..=MOST_RTT_US).contains(rtt)) {
            one.low_rtt_us = if one.low_rtt_us == 0 {
                rtt
            } else {
                one.low_rtt_us.min(rtt)
            };
        }
        one.seen_us = one.seen_us.max(sample.time_unix_us);
        // The kernel keeps a rate until the next valid one.
        let measured_us =
            sample.time_unix_us - 1000 * i64::from(sample.last_data_sent.unwrap_or(0));
        let rate = sample.delivery_rate.unwrap_or(0);
        if measured_us > self.since_us && rate <= MOST_RATE {
            one.reached_rate = one.reached_rate.max(rate);
            if is_met(sample, rate) {
                one.met_rate = rate;
            }
        }
    }
}

/// The path, and nobody else, limits it: it has left slow start, the application gave enough, the window was in flight
/// (Little's law), and neither the receiver's window nor the send buffer held it back, now or for most of its time.
fn is_met(sample: &TcpSample, rate: u64) -> bool {
    let window = u64::from(sample.snd_cwnd.unwrap_or(0));
    let bytes = window * u64::from(sample.snd_mss.unwrap_or(0));
    let threshold = sample.snd_ssthresh.unwrap_or(0);
    let in_flight =
        2 * u128::from(rate) * u128::from(sample.rtt.unwrap_or(0)) >= u128::from(bytes) * 1_000_000;
    let held_us = sample
        .rwnd_limited
        .unwrap_or(0)
        .saturating_add(sample.sndbuf_limited.unwrap_or(0));
    rate > 0
        && !sample.delivery_rate_app_limited.unwrap_or(false)
        && (1..2_147_483_647).contains(&threshold)
        && window > 0
        && window >= u64::from(threshold)
        && in_flight
        && sample
            .snd_wnd
            .is_none_or(|receiver| u64::from(receiver) > bytes)
        && held_us.saturating_mul(2) <= sample.busy_time.unwrap_or(0)
}

/// As `springtide_has_tcp_info` of sql/functions.sql.
fn has_tcp_info(state: i32) -> bool {
    use TcpState as S;
    [
        S::Established,
        S::FinWait1,
        S::FinWait2,
        S::Close,
        S::CloseWait,
        S::LastAck,
        S::Closing,
    ]
    .into_iter()
    .any(|one| one as i32 == state)
}

#[cfg(test)]
mod tests {
    use super::{Connection, Seen};
    use crate::sample::proto::{SampleKind, TcpSample, TcpState};

    /// Out of slow start, 100 segments in flight for 40 ms at the rate that this takes.
    fn meets(cookie: u64, poll: u64) -> TcpSample {
        TcpSample {
            cookie,
            poll_sequence: poll,
            kind: SampleKind::Poll as i32,
            state: TcpState::Established as i32,
            family: 2,
            dst_ip: std::net::Ipv4Addr::new(192, 0, 2, 7)
                .to_ipv6_mapped()
                .octets()
                .to_vec(),
            time_unix_us: 1_000_000 + i64::try_from(poll).unwrap(),
            snd_mss: Some(1000),
            snd_cwnd: Some(100),
            snd_ssthresh: Some(80),
            rtt: Some(40_000),
            min_rtt: Some(30_000),
            delivery_rate: Some(2_500_000),
            snd_wnd: Some(1_000_000),
            bytes_sent: Some(5_000_000),
            busy_time: Some(1_000_000),
            ..TcpSample::default()
        }
    }

    fn after(samples: &[TcpSample]) -> Connection {
        let mut seen = Seen::new(0);
        samples.iter().for_each(|sample| seen.take(sample));
        let found = seen.connections().next().map(|(_, one)| one.clone());
        found.unwrap()
    }

    #[test]
    fn a_rate_counts_as_met_only_where_the_path_alone_was_the_limit() {
        assert_eq!(after(&[meets(1, 2)]).met_rate, 2_500_000);
        let cases: [fn(&mut TcpSample); 8] = [
            |sample| sample.delivery_rate_app_limited = Some(true),
            |sample| sample.snd_ssthresh = Some(i32::MAX.unsigned_abs()),
            |sample| sample.snd_ssthresh = Some(200),
            |sample| sample.rtt = Some(10_000),
            |sample| sample.snd_wnd = Some(100_000),
            |sample| sample.rwnd_limited = Some(600_000),
            |sample| sample.sndbuf_limited = Some(600_000),
            |sample| sample.last_data_sent = Some(2000),
        ];
        for (number, change) in cases.iter().enumerate() {
            let mut sample = meets(1, 2);
            change(&mut sample);
            assert_eq!(after(&[sample]).met_rate, 0, "{number}");
        }
    }

    #[test]
    fn what_the_first_poll_shows_is_of_any_age() {
        let mut seen = Seen::new(0);
        seen.take(&meets(1, 5));
        seen.watch();
        seen.take(&meets(2, 6));
        seen.take(&meets(1, 6));
        let mut fresh: Vec<_> = seen
            .connections()
            .map(|((_, cookie), one)| (cookie, one.is_fresh))
            .collect();
        fresh.sort_unstable();
        assert_eq!(fresh, [(1, false), (2, true)]);
    }

    #[test]
    fn listeners_and_other_kinds_are_no_connections() {
        let mut seen = Seen::new(0);
        for change in [
            (|sample: &mut TcpSample| sample.state = TcpState::Listen as i32) as fn(&mut TcpSample),
            |sample| sample.kind = SampleKind::FirstFlight as i32,
            |sample| sample.dst_ip = vec![1, 2],
        ] {
            let mut sample = meets(1, 2);
            change(&mut sample);
            seen.take(&sample);
        }
        assert_eq!(seen.len(), 0);
    }
}
