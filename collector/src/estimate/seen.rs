//! Evidence of each connection from samples, as `sql/advise/evidence.sql` reads it from the store.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::gain::{ENDLESS_RATE, KERNEL_DEFAULT, Path};
use crate::sample::json::address;
use crate::sample::proto::{SampleKind, TcpSample, TcpState};

/// Connections that are remembered; of more, the first.
pub(super) const MOST_CONNECTIONS: usize = 200_000;
/// Limits as in sql/rollup/2_sockets.sql.
const MOST_RATE: u64 = 100_000_000_000;
const MOST_RTT_US: u32 = 600_000_000;
/// The kernel counts busy_time in jiffies (CONFIG_HZ is 250 or more). A time of fewer than three is mostly rounding.
const JIFFY_US: f64 = 4000.0;
const LEAST_TIME_US: f64 = 3.0 * JIFFY_US;
/// The kernel's value of ssthresh that was never set (TCP_INFINITE_SSTHRESH).
const UNSET: u32 = 2_147_483_647;
/// A rate of fewer bytes may be of a start that was ended early (HyStart); of more than that nobody is in slow start.
const LEAST_BYTES: u64 = 100_000;
const LONG_BYTES: u64 = 1_000_000;

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
    /// The most of a full window, or of more in a round trip than the default window.
    full_rate: u64,
    /// Acknowledged bytes, and microseconds with data in flight.
    acked: u64,
    /// See `acked`.
    busy_us: u64,
    /// The last poll that found everything acknowledged: bytes sent, and microseconds with data in flight.
    settled: Option<(u64, u64)>,
    /// It closed; the microseconds that its data took, where its FIN does not hide them.
    took_us: Option<u64>,
    /// Segments with data that came, at most.
    requests: u32,
    /// Its edge's program gave it a start.
    is_given: bool,
    /// It shows a larger first window, as only connections without loss can.
    is_raised: bool,
    /// Bytes sent, and of them again.
    pub sent: u64,
    /// See `sent`.
    pub again: u64,
    /// Segments that arrived twice.
    pub twice: u32,
    /// The peer's window as it closed, bytes; 0 is none.
    pub receiver_window: u32,
    /// The time of the newest sample, microseconds since the epoch.
    pub seen_us: i64,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Seen {
    since_us: i64,
    is_watching: bool,
    connections: HashMap<(u64, u64), Connection>,
    left_out: HashSet<(u64, u64)>,
    /// This host's addresses, each with the network namespace that has it; None where connections to them count.
    own: Option<HashSet<(u64, IpAddr)>>,
}

impl Connection {
    /// As it is before its first sample is taken.
    fn new(peer: IpAddr, is_fresh: bool, sample: &TcpSample) -> Self {
        Self {
            peer,
            is_fresh,
            weight: sample.sample_weight.unwrap_or(1).clamp(1, 65_535),
            mss: 0,
            low_rtt_us: 0,
            met_rate: 0,
            full_rate: 0,
            acked: 0,
            busy_us: 0,
            settled: None,
            took_us: None,
            requests: 0,
            is_given: false,
            is_raised: false,
            sent: 0,
            again: 0,
            twice: 0,
            receiver_window: 0,
            seen_us: 0,
        }
    }

    /// Keeps the time of its answer, and what its close shows.
    fn settle(&mut self, sample: &TcpSample, closes: bool) {
        if closes {
            self.receiver_window = sample.snd_wnd.unwrap_or(0);
            self.took_us = match self.settled {
                Some((sent, busy_us)) if sample.bytes_sent == Some(sent) => Some(busy_us),
                _ => took_us(sample, self.low_rtt_us),
            };
        } else if is_settled(sample) {
            self.settled = sample.bytes_sent.zip(sample.busy_time);
        }
    }

    /// Bytes that were lost: sent again, and not because they seemed to be.
    pub(super) fn lost(&self) -> u64 {
        let twice = u64::from(self.twice) * u64::from(self.mss);
        self.again.saturating_sub(twice)
    }

    /// Bytes that the application sent.
    pub(super) fn size(&self) -> u64 {
        self.sent.saturating_sub(self.again)
    }

    /// A rate that the path gives at least: over the time with data in flight (fewer than 100 kB show nothing), or of a full
    /// window. As the laws have it (sql/rollup/4_path_sockets.sql and 2_sockets.sql).
    pub(super) fn reached_rate(&self) -> u64 {
        let mean = if self.acked >= LEAST_BYTES && self.busy_us > 0 {
            u128::from(self.acked) * 1_000_000 / u128::from(self.busy_us)
        } else {
            0
        };
        u64::try_from(mean.min(u128::from(MOST_RATE)))
            .unwrap_or(MOST_RATE)
            .max(self.full_rate)
    }

    /// As a weight: connections that cannot show more hide none that does.
    pub(super) fn kilobytes(&self) -> u32 {
        let bytes = self.acked.saturating_mul(u64::from(self.weight));
        u32::try_from(bytes / 1000).unwrap_or(u32::MAX).max(1)
    }

    /// Time of one answer that no edge's program started, as a multiple of slow start's at its
    /// best, and whether it can have begun with the default.
    pub(super) fn slowness(&self) -> Option<(f64, bool)> {
        let is_timed = self.is_fresh && !self.is_given && self.requests == 1;
        let took = self.took_us.filter(|_| is_timed)? as f64;
        let best = Path {
            rtt_us: f64::from(self.low_rtt_us),
            rate: ENDLESS_RATE,
            mss: f64::from(self.mss),
        }
        .transfer_us(self.size() as f64, KERNEL_DEFAULT);
        let is_shown = self.low_rtt_us > 0 && self.mss > 0 && best >= LEAST_TIME_US;
        // Less is of no default.
        let is_default = !self.is_raised && took + JIFFY_US >= best;
        is_shown.then_some((took / best, is_default))
    }
}

impl Seen {
    /// Nothing yet; rates that were measured before `since_us` do not count. `with_local`: connections to this host itself do.
    pub(super) fn new(since_us: i64, with_local: bool) -> Self {
        Self {
            since_us,
            is_watching: false,
            connections: HashMap::new(),
            left_out: HashSet::new(),
            own: (!with_local).then(HashSet::new),
        }
    }

    /// The connections, each with what names it on this host; none to itself.
    pub(super) fn connections(&self) -> impl Iterator<Item = ((u64, u64), &Connection)> {
        let all = self.connections.iter().map(|(key, one)| (*key, one));
        all.filter(|(key, one)| !self.is_local(key.0, one.peer))
    }

    /// Number of connections to this host itself.
    pub(super) fn local(&self) -> usize {
        self.len() - self.connections().count()
    }

    fn is_local(&self, netns: u64, peer: IpAddr) -> bool {
        self.own
            .as_ref()
            .is_some_and(|own| peer.is_loopback() || own.contains(&(netns, peer)))
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Number of others that were met, counted up to as many again.
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
        if !(closes || sample.kind == SampleKind::Poll as i32) || !has_values(sample) {
            return;
        }
        let Some(peer) = address(&sample.dst_ip, sample.family).map(|peer| peer.to_canonical())
        else {
            return;
        };
        let own = address(&sample.src_ip, sample.family).map(|own| own.to_canonical());
        if let (Some(all), Some(own)) = (&mut self.own, own) {
            all.insert((sample.netns, own));
        }
        let key = (sample.netns, sample.cookie);
        if !self.connections.contains_key(&key) && self.connections.len() >= MOST_CONNECTIONS {
            if self.left_out.len() < MOST_CONNECTIONS {
                self.left_out.insert(key);
            }
            return;
        }
        let is_fresh = self.is_watching;
        let one = self
            .connections
            .entry(key)
            .or_insert_with(|| Connection::new(peer, is_fresh, sample));
        one.mss = sample.snd_mss.unwrap_or(0);
        one.sent = one.sent.max(sample.bytes_sent.unwrap_or(0));
        one.again = one.again.max(sample.bytes_retrans.unwrap_or(0));
        let copies = sample.copied_segments.unwrap_or(0);
        let twice = sample.dsack_dups.unwrap_or(0).saturating_sub(copies);
        one.twice = one.twice.max(twice);
        // Without the counter it may have had many.
        one.requests = one.requests.max(sample.data_segs_in.unwrap_or(2));
        one.is_given |=
            sample.started_window.unwrap_or(0) > 0 || sample.started_rate.unwrap_or(0) > 0;
        one.is_raised |= is_raised(sample).unwrap_or(false);
        if let Some(rtt) = sample.min_rtt.filter(|rtt| (1..=MOST_RTT_US).contains(rtt)) {
            one.low_rtt_us = if one.low_rtt_us == 0 {
                rtt
            } else {
                one.low_rtt_us.min(rtt)
            };
        }
        one.settle(sample, closes);
        one.seen_us = one.seen_us.max(sample.time_unix_us);
        // The kernel keeps a rate until the next valid one.
        let measured_us =
            sample.time_unix_us - 1000 * i64::from(sample.last_data_sent.unwrap_or(0));
        let rate = sample.delivery_rate.unwrap_or(0);
        if measured_us > self.since_us && rate <= MOST_RATE {
            one.acked = one.acked.max(sample.bytes_acked.unwrap_or(0));
            one.busy_us = one.busy_us.max(sample.busy_time.unwrap_or(0));
            let default = 10_000_000 * u128::from(sample.snd_mss.unwrap_or(0));
            let in_round_trip = u128::from(rate) * u128::from(sample.min_rtt.unwrap_or(0));
            if is_full(sample, rate) || in_round_trip > default {
                one.full_rate = one.full_rate.max(rate);
            }
            if is_met(sample, rate) {
                one.met_rate = rate;
            }
        }
    }
}

/// The application gave enough, and the window was in flight (Little's law).
fn is_full(sample: &TcpSample, rate: u64) -> bool {
    let bytes = window_bytes(sample);
    rate > 0
        && bytes > 0
        && !sample.delivery_rate_app_limited.unwrap_or(false)
        && 2 * u128::from(rate) * u128::from(sample.rtt.unwrap_or(0))
            >= u128::from(bytes) * 1_000_000
}

/// The path, and nobody else, limits it. Its window is full, and it has left slow start or was long in it (`has_met` of
/// sql/rollup/4_path_sockets.sql). Neither the receiver's window nor the send buffer held it back, now or for most of
/// its time.
fn is_met(sample: &TcpSample, rate: u64) -> bool {
    let threshold = sample.snd_ssthresh.unwrap_or(0);
    let acked = sample.bytes_acked.unwrap_or(0);
    let has_met = (1..UNSET).contains(&threshold)
        || sample.bytes_retrans.unwrap_or(0) > 0
        || acked >= LONG_BYTES;
    let held_us = sample
        .rwnd_limited
        .unwrap_or(0)
        .saturating_add(sample.sndbuf_limited.unwrap_or(0));
    is_full(sample, rate)
        && has_met
        && acked >= LEAST_BYTES
        && sample
            .snd_wnd
            .is_none_or(|receiver| u64::from(receiver) > window_bytes(sample))
        && held_us.saturating_mul(2) <= sample.busy_time.unwrap_or(0)
}

fn window_bytes(sample: &TcpSample) -> u64 {
    u64::from(sample.snd_cwnd.unwrap_or(0)) * u64::from(sample.snd_mss.unwrap_or(0))
}

/// While nothing was lost slow start has raised the window by no more than what was sent, and the FIN.
fn is_raised(sample: &TcpSample) -> Option<bool> {
    let sent = u64::from(sample.data_segs_out?);
    let is_whole = sample.total_retrans? == 0 && sample.snd_ssthresh? == UNSET;
    Some(is_whole && u64::from(sample.snd_cwnd?) > sent + 11)
}

/// Nothing is in flight, and no FIN was.
fn is_settled(sample: &TcpSample) -> bool {
    let states = [TcpState::Established, TcpState::CloseWait];
    sample.unacked == Some(0) && states.iter().any(|one| *one as i32 == sample.state)
}

/// The time that the data of a connection took that closed, microseconds. A FIN is acknowledged as one byte more. One that
/// follows its data is a round trip more, and as long as the peer delays its acknowledgement (40 ms on Linux): no longer than
/// the smoothed round trip shows, of which it is an eighth, nor than from the data on. None where that may be more than an
/// eighth of the time, or where data was never acknowledged.
fn took_us(sample: &TcpSample, low_rtt_us: u32) -> Option<u64> {
    let busy = sample.busy_time?;
    let size = sample.bytes_sent?.checked_sub(sample.bytes_retrans?)?;
    let (rtt, low) = (u64::from(sample.rtt.unwrap_or(0)), u64::from(low_rtt_us));
    let since_data = 1000 * u64::from(sample.last_data_sent.unwrap_or(0));
    match sample.bytes_acked?.cmp(&size) {
        Ordering::Less => return None,
        Ordering::Equal => return Some(busy),
        Ordering::Greater if 2 * since_data < 3 * rtt => return Some(busy),
        Ordering::Greater => {}
    }
    let took = busy.saturating_sub(low);
    let delayed = (8 * rtt.saturating_sub(low)).min(since_data.saturating_sub(2 * low));
    (8 * delayed <= took).then_some(took)
}

/// As `springtide_has_values` of sql/functions.sql: a connection that this side closed first ends as a record without
/// values, under its cookie or another.
fn has_values(sample: &TcpSample) -> bool {
    use TcpState as S;
    let states = [
        S::Established,
        S::FinWait1,
        S::FinWait2,
        S::Close,
        S::CloseWait,
        S::LastAck,
        S::Closing,
    ];
    sample.bytes_sent.is_some() && states.iter().any(|one| *one as i32 == sample.state)
}

#[cfg(test)]
mod tests;
