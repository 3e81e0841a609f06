//! From connections to what each group of destinations would gain. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::gain::{ENDLESS_RATE, KERNEL_DEFAULT, Path, window};
use super::names::Names;
use super::resample::{DRAWS, Interval, LEAST_CLUSTERS, draws, quantile};
use super::seen::{Connection, Seen};

/// Bytes of answers.
pub(super) const SIZES: [u64; 4] = [10_000, 50_000, 100_000, 1_000_000];
/// Groups that are kept; of more, those with most connections.
pub(super) const MOST_GROUPS: usize = 10_000;
/// Connections of a group that a rate is taken from, those with the smallest hashes.
const MOST_PICKED: usize = 128;
/// Policy's defaults: from how many connections that met the path on their rates count alone, and which quantile.
const LEAST_MET: usize = 3;
const MET_QUANTILE: f64 = 0.5;
/// The quantile of the others' rates, which are lower bounds.
const REACHED_QUANTILE: f64 = 0.75;
/// Time of one observation, microseconds: connections of the same minutes meet the same path.
const SLOT_US: i64 = 300_000_000;

/// The saving of answers of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saving {
    /// Bytes.
    pub size: u64,
    /// Time of a transfer from the kernel's default, and from what the path has proved, ms.
    pub default_ms: f64,
    /// The time by default is that of answers of this size, and no model's.
    pub is_measured: bool,
    /// See `default_ms`.
    pub start_ms: f64,
    /// The difference.
    pub saved_ms: Interval,
    /// As round trips of the path.
    pub saved_round_trips: Interval,
}

/// The gain of one group.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// PoP, autonomous system or prefix.
    pub name: String,
    /// 4 or 6.
    pub ip_version: u8,
    /// Whether the rate is the path's, or what was reached at least.
    pub is_met: bool,
    /// Connections that the rate is of.
    pub connections: u64,
    /// Connections that began while it watched; in `fresh_from` those that sent so many bytes.
    pub fresh: u64,
    /// See `fresh`.
    pub fresh_from: [u64; SIZES.len()],
    /// The shortest round trip, ms.
    pub rtt_ms: Interval,
    /// The rate of a single connection, bytes a second.
    pub rate: Interval,
    /// Window that the law would give, segments.
    pub window: f64,
    /// By size.
    pub savings: [Saving; SIZES.len()],
    /// The saving of all connections that began, each as if it sent one answer, ms.
    pub total_ms: Interval,
    /// The share of sent bytes that were lost.
    pub lost_share: f64,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    /// Those that would save most in all come first.
    pub known: Vec<Estimate>,
    /// Groups without a rate.
    pub unknown: usize,
    /// Groups beyond the limit.
    pub left_out: usize,
}

/// A group's connections, each with what names it.
type Members<'a> = Vec<((u64, u64), &'a Connection)>;

/// Estimates the gain of each group.
pub(super) fn estimates(seen: &Seen, names: &Names) -> Estimates {
    let mut groups: BTreeMap<(String, u8), Members<'_>> = BTreeMap::new();
    let mut known: HashMap<IpAddr, String> = HashMap::new();
    for (key, one) in seen.connections() {
        let name = known
            .entry(one.peer)
            .or_insert_with(|| names.name(one.peer));
        let version = if one.peer.is_ipv4() { 4 } else { 6 };
        groups
            .entry((name.clone(), version))
            .or_default()
            .push((key, one));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, members)| Reverse(members.len()));
    let left_out = groups.len().saturating_sub(MOST_GROUPS);
    groups.truncate(MOST_GROUPS);
    let count = groups.len();
    let mut known: Vec<Estimate> = groups
        .into_iter()
        .filter_map(|((name, version), members)| estimate(name, version, &members))
        .collect();
    known.sort_by(|a, b| {
        let largest = |one: &Estimate| one.savings[SIZES.len() - 1].saved_ms.estimate;
        let by = b.total_ms.estimate.total_cmp(&a.total_ms.estimate);
        by.then(largest(b).total_cmp(&largest(a)))
            .then(a.name.cmp(&b.name))
    });
    Estimates {
        unknown: count - known.len(),
        known,
        left_out,
    }
}

fn estimate(name: String, ip_version: u8, members: &Members<'_>) -> Option<Estimate> {
    let drawn = Drawn::of(members)?;
    let path = drawn.paths[0];
    let saved = drawn.saved_us();
    let fresh = || {
        members
            .iter()
            .map(|(_, one)| one)
            .filter(|one| one.is_fresh)
    };
    let begun = |least: u64| {
        let of = fresh().filter(|one| one.size() >= least);
        of.map(|one| u64::from(one.weight)).sum::<u64>()
    };
    let fresh_from = SIZES.map(begun);
    let totals: Vec<f64> = saved
        .iter()
        .map(|row| total(row, &fresh_from) / 1000.0)
        .collect();
    let sent = fresh().fold(0, |sum: u64, one| sum.saturating_add(one.sent));
    let lost = fresh().fold(0, |sum: u64, one| sum.saturating_add(one.lost()));
    Some(Estimate {
        name,
        ip_version,
        is_met: drawn.is_met,
        connections: drawn.connections,
        fresh: begun(0),
        fresh_from,
        rtt_ms: drawn.interval(|one| one.rtt_us / 1000.0),
        rate: drawn.interval(|one| one.rate),
        window: window(path, drawn.receiver),
        savings: std::array::from_fn(|at| drawn.saving(at, &saved)),
        total_ms: Interval::of(&totals),
        lost_share: if sent > 0 {
            lost as f64 / sent as f64
        } else {
            0.0
        },
    })
}

/// A group's path: as its connections show it, then of resamples.
struct Drawn {
    is_met: bool,
    /// Connections behind it, before some were picked; whether these are so few that resamples
    /// would show the same.
    connections: u64,
    is_few: bool,
    /// Bytes, where receivers said.
    receiver: Option<f64>,
    /// By size, how many times as long as slow start at its best answers took that began with the default.
    slow: [Option<f64>; SIZES.len()],
    paths: Vec<Path>,
}

impl Drawn {
    /// None without a rate.
    fn of(members: &Members<'_>) -> Option<Self> {
        let met = with(members, |one| one.met_rate);
        let is_met = met.len() >= LEAST_MET;
        let mut picked = if is_met {
            met
        } else {
            with(members, Connection::reached_rate)
        };
        let connections = picked.len() as u64;
        picked.truncate(MOST_PICKED);
        if picked.is_empty() {
            return None;
        }
        let all = || members.iter().map(|(_, one)| one);
        let mss = median(all().map(|one| f64::from(one.mss)).filter(|mss| *mss > 0.0))?;
        let receivers = all().filter(|one| one.is_fresh && one.receiver_window > 0);
        let receiver = median(receivers.map(|one| f64::from(one.receiver_window)));
        let rates: Vec<f64> = picked.iter().map(|(_, _, rate)| *rate).collect();
        let rtts: Vec<f64> = picked
            .iter()
            .map(|(_, one, _)| f64::from(one.low_rtt_us))
            .collect();
        let weight = |one: &Connection| if is_met { one.weight } else { one.kilobytes() };
        let weights: Vec<u32> = picked.iter().map(|(_, one, _)| weight(one)).collect();
        let slot = |one: &Connection| u64::try_from(one.seen_us.div_euclid(SLOT_US)).unwrap_or(0);
        let slots: Vec<u64> = picked.iter().map(|(_, one, _)| slot(one)).collect();
        let share = if is_met {
            MET_QUANTILE
        } else {
            REACHED_QUANTILE
        };
        let path = |times: &Vec<u32>| Path {
            rtt_us: quantile(&rtts, &weights, times, 0.5),
            rate: quantile(&rates, &weights, times, share),
            mss,
        };
        Some(Self {
            is_met,
            connections,
            is_few: picked.len() < LEAST_CLUSTERS,
            receiver,
            slow: SIZES.map(|size| slowness(members, size as f64)),
            paths: draws(&slots).iter().map(path).collect(),
        })
    }

    fn interval(&self, of: impl Fn(&Path) -> f64) -> Interval {
        Interval::of(&self.paths.iter().map(of).collect::<Vec<_>>())
    }

    /// By size what a transfer takes by default, microseconds: measured, else by the model; where the rate is a lower bound as
    /// if only round trips took time.
    fn default_us(&self, at: usize) -> f64 {
        let size = SIZES[at] as f64;
        let path = self.paths[0];
        let endless = Path {
            rate: ENDLESS_RATE,
            ..path
        };
        let model = if self.is_met { path } else { endless };
        self.slow[at].map_or_else(
            || model.transfer_us(size, KERNEL_DEFAULT),
            |slow| slow * endless.transfer_us(size, KERNEL_DEFAULT),
        )
    }

    /// By size what a start saves, microseconds: the estimate, then of resamples. No answer arrives before the path's limit.
    fn saved_us(&self) -> Vec<[f64; SIZES.len()]> {
        let path = self.paths[0];
        let room: [f64; SIZES.len()] = std::array::from_fn(|at| {
            let carried = if self.is_met {
                SIZES[at] as f64 / path.rate * 1e6
            } else {
                0.0
            };
            (self.default_us(at) - path.rtt_us - carried).max(0.0)
        });
        let saved = if self.is_few {
            few(path, self.receiver)
        } else {
            let of = |one: &Path| {
                SIZES.map(|size| one.gain_us(size as f64, window(*one, self.receiver)))
            };
            self.paths.iter().map(of).collect()
        };
        let within = |row: [f64; SIZES.len()]| std::array::from_fn(|at| row[at].min(room[at]));
        saved.into_iter().map(within).collect()
    }

    fn saving(&self, at: usize, saved: &[[f64; SIZES.len()]]) -> Saving {
        let default_ms = self.default_us(at) / 1000.0;
        let column: Vec<f64> = saved.iter().map(|row| row[at] / 1000.0).collect();
        let round_trip = |row: usize| if self.is_few { self.paths[0].rtt_us } else { self.paths[row].rtt_us } / 1000.0;
        let trips: Vec<f64> = column
            .iter()
            .enumerate()
            .map(|(row, ms)| ms / round_trip(row))
            .collect();
        let saved_ms = Interval::of(&column);
        Saving {
            size: SIZES[at],
            default_ms,
            is_measured: self.slow[at].is_some(),
            start_ms: default_ms - saved_ms.estimate,
            saved_ms,
            saved_round_trips: Interval::of(&trips),
        }
    }
}

/// The median over answers of about that size that can have begun with the default. None of too few, or of fewer than
/// cannot: then others began so too, and those that are left are the slow ones.
fn slowness(members: &Members<'_>, size: f64) -> Option<f64> {
    let about = |one: &Connection| (0.8 * size..=1.25 * size).contains(&(one.size() as f64));
    let of = members.iter().filter(|(_, one)| about(one));
    let (kept, others): (Vec<_>, Vec<_>) = of
        .filter_map(|(_, one)| one.slowness())
        .partition(|(_, is_default)| *is_default);
    let is_enough = kept.len() >= LEAST_MET.max(others.len());
    is_enough.then(|| median(kept.into_iter().map(|(slowness, _)| slowness)))?
}

/// Connections with that rate, in the order of their hashes.
fn with<'a>(
    members: &Members<'a>,
    rate: fn(&Connection) -> u64,
) -> Vec<(u64, &'a Connection, f64)> {
    let known = |one: &Connection| rate(one) > 0 && one.low_rtt_us > 0 && one.mss > 0;
    let found = members.iter().filter(|(_, one)| known(one));
    let mut found: Vec<_> = found
        .map(|(key, one)| (mixed(*key), *one, rate(one) as f64))
        .collect();
    found.sort_by_key(|(hash, ..)| *hash);
    found
}

/// Resamples of so few would show the same few: as often nothing as what an endless rate would save.
fn few(path: Path, receiver: Option<f64>) -> Vec<[f64; SIZES.len()]> {
    let endless = Path {
        rate: ENDLESS_RATE,
        ..path
    };
    let estimate = SIZES.map(|size| path.gain_us(size as f64, window(path, receiver)));
    let mut found = vec![estimate];
    let window = window(endless, receiver);
    let most: [f64; SIZES.len()] =
        std::array::from_fn(|at| endless.gain_us(SIZES[at] as f64, window).max(estimate[at]));
    found.extend((1..=DRAWS).map(|draw| {
        if draw % 2 == 0 {
            [0.0; SIZES.len()]
        } else {
            most
        }
    }));
    found
}

/// Over connections of one size and not of the next.
fn total(saved: &[f64; SIZES.len()], from: &[u64; SIZES.len()]) -> f64 {
    let next = from.iter().skip(1).chain(&[0]);
    saved
        .iter()
        .zip(from)
        .zip(next)
        .map(|((saved, from), next)| saved * from.saturating_sub(*next) as f64)
        .sum()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// An order that nobody chooses by the order in which connections began (the finaliser of splitmix64).
fn mixed((netns, cookie): (u64, u64)) -> u64 {
    let mut hash = netns.rotate_left(32) ^ cookie;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
