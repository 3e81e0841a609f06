//! One directed path: a policer, a queue in front of a serialising link, then loss, propagation delay and duplication.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::config::{Policer, Shape};
use crate::loss::Loss;

const NS_PER_S: u128 = 1_000_000_000;

/// Counts of a path since the start. `packets` and `bytes` are what was offered to it, IP headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub queue_drops: u64,
    pub policed: u64,
    pub duplicates: u64,
}

/// Outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The policer's bucket was empty, or the queue had no room.
    Dropped,
    /// Lost on the wire, after it took its time on the link.
    Lost,
    /// Leaves the link and arrives at these times, in nanoseconds of the caller's clock.
    Arrives { left: u64, at: u64, twice: bool },
}

/// A path in motion. Packets never overtake one another: jitter stretches and bunches them, as a queue elsewhere would.
#[derive(Debug)]
pub struct Path {
    shape: Shape,
    loss: Loss,
    rng: ChaCha8Rng,
    bucket: Option<Bucket>,
    /// When the link will have sent all that it has taken on.
    free_at: u64,
    /// When each packet that waits, or is on the link, will have left it; kept where the queue is counted in packets.
    waiting: VecDeque<u64>,
    last_arrival: u64,
    counters: Counters,
}

impl Path {
    /// Each path has a random stream of its own, so that traffic elsewhere does not change what happens here.
    pub fn new(shape: Shape, seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        let loss = Loss::new(shape.loss);
        Self {
            shape,
            loss,
            rng,
            bucket: shape.policer.map(Bucket::new),
            free_at: 0,
            waiting: VecDeque::new(),
            last_arrival: 0,
            counters: Counters::default(),
        }
    }

    /// Takes a packet of `bytes` at `now` (nanoseconds, never going back).
    pub fn offer(&mut self, now: u64, bytes: usize) -> Fate {
        self.counters.packets += 1;
        self.counters.bytes += bytes as u64;
        if let Some(bucket) = &mut self.bucket
            && !bucket.passes(now, bytes as u64)
        {
            self.counters.policed += 1;
            return Fate::Dropped;
        }
        let Some(left) = self.enqueue(now, bytes as u64) else {
            self.counters.queue_drops += 1;
            return Fate::Dropped;
        };
        if self.loss.next(&mut self.rng) {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let jitter = match self.shape.jitter.ns() {
            0 => 0,
            most => self.rng.random_range(0..=most),
        };
        let at = self.last_arrival.max(left + self.shape.delay.ns() + jitter);
        self.last_arrival = at;
        let twice = self.rng.random_bool(self.shape.duplicate.get());
        self.counters.duplicates += u64::from(twice);
        Fate::Arrives { left, at, twice }
    }

    /// From now on the path is this one; what is under way stays so.
    pub fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        self.loss = Loss::new(shape.loss);
        self.bucket = shape.policer.map(Bucket::new);
    }

    /// Without jitter and queue, in nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        self.shape.delay.ns()
    }

    /// A packet that arrives was refused all the same, because the whole emulator holds too much.
    pub fn overflowed(&mut self) {
        self.counters.queue_drops += 1;
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the last bit leaves the link, or None when the queue (the packet on the link included) has no room.
    fn enqueue(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let Some(rate) = self.shape.rate else {
            return Some(now);
        };
        while self.waiting.front().is_some_and(|left| *left <= now) {
            self.waiting.pop_front();
        }
        let begin = self.free_at.max(now);
        let backlog = u128::from(begin - now) * u128::from(rate.bits_per_s()) / (8 * NS_PER_S);
        if backlog + u128::from(bytes) > u128::from(self.shape.queue_bytes.get()) {
            return None;
        }
        if let Some(most) = self.shape.queue_packets
            && self.waiting.len() >= most.get()
        {
            return None;
        }
        let mean =
            (u128::from(bytes) * 8 * NS_PER_S).div_ceil(u128::from(rate.bits_per_s())) as u64;
        let takes = if self.shape.poisson {
            // 1 less a draw from 0 to below 1: never the logarithm of 0.
            (mean as f64 * -(1.0 - self.rng.random::<f64>()).ln()) as u64
        } else {
            mean
        };
        self.free_at = begin + takes;
        if self.shape.queue_packets.is_some() {
            self.waiting.push_back(self.free_at);
        }
        Some(self.free_at)
    }
}

/// A token bucket in motion. A token is a bit for a nanosecond of a billion: whole numbers, so that nothing is rounded.
#[derive(Debug)]
struct Bucket {
    rate: u128,
    most: u128,
    tokens: u128,
    filled_at: u64,
}

impl Bucket {
    fn new(policer: Policer) -> Self {
        let most = u128::from(policer.burst_bytes.get()) * 8 * NS_PER_S;
        Self {
            rate: u128::from(policer.rate.bits_per_s()),
            most,
            tokens: most,
            filled_at: 0,
        }
    }

    fn passes(&mut self, now: u64, bytes: u64) -> bool {
        let gained = u128::from(now - self.filled_at) * self.rate;
        self.tokens = self.most.min(self.tokens + gained);
        self.filled_at = now;
        let costs = u128::from(bytes) * 8 * NS_PER_S;
        let enough = costs <= self.tokens;
        if enough {
            self.tokens -= costs;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Megabits, Milliseconds, Probability, QueueBytes, QueuePackets};
    use proptest::prelude::*;

    fn shape(delay_ms: f64, jitter_ms: f64, rate_mbit: Option<f64>, queue_bytes: u64) -> Shape {
        Shape {
            delay: Milliseconds::new(delay_ms).unwrap(),
            jitter: Milliseconds::new(jitter_ms).unwrap(),
            loss: None,
            rate: rate_mbit.map(|rate| Megabits::new(rate).unwrap()),
            poisson: false,
            policer: None,
            queue_bytes: QueueBytes::new(queue_bytes as f64).unwrap(),
            queue_packets: None,
            duplicate: Probability::default(),
        }
    }

    fn packets() -> impl Strategy<Value = Vec<(u64, usize)>> {
        prop::collection::vec((0..3_000_000_u64, 40..1500_usize), 1..200)
    }

    proptest! {
        #[test]
        fn arrivals_keep_their_order_and_never_come_early(
            offered in packets(), delay in 0.0..300.0_f64, jitter in 0.0..50.0_f64, rate in 1.0..1000.0_f64,
        ) {
            let mut path = Path::new(shape(delay, jitter, Some(rate), 1 << 30), 7, 1);
            let (mut now, mut last) = (0, 0);
            for (gap, bytes) in offered {
                now += gap;
                let Fate::Arrives { at, .. } = path.offer(now, bytes) else { panic!("dropped") };
                prop_assert!(at >= now + path.shape.delay.ns());
                prop_assert!(at >= last);
                last = at;
            }
        }

        /// However the packets come, what arrives in any span of time fits the rate, and what waits fits the queue.
        #[test]
        fn rate_and_queue_hold(offered in packets(), rate in 1.0..100.0_f64, queue in 1500..60_000_u64) {
            let mut path = Path::new(shape(0.0, 0.0, Some(rate), queue), 7, 1);
            let mut now = 0;
            let mut out: Vec<(u64, usize)> = Vec::new();
            for (gap, bytes) in &offered {
                now += gap;
                if let Fate::Arrives { at, .. } = path.offer(now, *bytes) {
                    let waited_bytes = (at - now) as f64 * rate * 1e6 / 8e9;
                    prop_assert!(waited_bytes <= queue as f64 + 1.0, "{waited_bytes} in a queue of {queue}");
                    out.push((at, *bytes));
                }
            }
            for (index, (from, _)) in out.iter().enumerate() {
                let mut bits = 0.0;
                for (at, bytes) in &out[index + 1..] {
                    bits += *bytes as f64 * 8.0;
                    prop_assert!(bits <= (at - from) as f64 * rate / 1e3 + 1.0);
                }
            }
            let counted = path.counters();
            prop_assert_eq!(counted.packets, offered.len() as u64);
            prop_assert_eq!(counted.queue_drops, (offered.len() - out.len()) as u64);
        }

        #[test]
        fn without_a_rate_nothing_waits(offered in packets(), delay in 0.0..300.0_f64) {
            let mut path = Path::new(shape(delay, 0.0, None, 1500), 7, 1);
            let mut now = 0;
            for (gap, bytes) in offered {
                now += gap;
                let at = now + path.shape.delay.ns();
                prop_assert_eq!(path.offer(now, bytes), Fate::Arrives { left: now, at, twice: false });
            }
        }

        /// In any span of time no more than the burst and what the rate allows; and nothing is refused that fits both.
        #[test]
        fn a_policer_passes_its_burst_and_its_rate(
            offered in packets(), rate in 0.1..50.0_f64, burst in 1500..30_000_u64,
        ) {
            let mut policed = shape(0.0, 0.0, None, 1500);
            let burst_bytes = QueueBytes::new(burst as f64).unwrap();
            policed.policer = Some(Policer { rate: Megabits::new(rate).unwrap(), burst_bytes });
            let mut path = Path::new(policed, 7, 1);
            let mut now = 0;
            let mut out: Vec<(u64, usize)> = Vec::new();
            for (gap, bytes) in &offered {
                now += gap;
                // The most that any span up to now, this packet included, would hold beyond its rate.
                let mut held = *bytes as f64;
                let mut most = held;
                for (at, passed) in out.iter().rev() {
                    held += *passed as f64;
                    most = most.max(held - (now - at) as f64 * rate / 8e3);
                }
                if path.offer(now, *bytes) == Fate::Dropped {
                    prop_assert!(most > burst as f64 - 1.0, "refused at {most} of {burst}");
                } else {
                    prop_assert!(most <= burst as f64 + 1.0, "passed at {most} of {burst}");
                    out.push((now, *bytes));
                }
            }
            prop_assert_eq!(path.counters().policed, (offered.len() - out.len()) as u64);
        }

        /// Whatever their size, at most so many packets wait or are on the link.
        #[test]
        fn a_queue_of_packets_holds_so_many(offered in packets(), rate in 0.1..20.0_f64, most in 1..40_usize) {
            let mut counted = shape(0.0, 0.0, Some(rate), 1 << 30);
            counted.queue_packets = Some(QueuePackets::new(most as f64).unwrap());
            let mut path = Path::new(counted, 7, 1);
            let mut now = 0;
            let mut leaving: Vec<u64> = Vec::new();
            for (gap, bytes) in &offered {
                now += gap;
                let there = leaving.iter().filter(|left| **left > now).count();
                match path.offer(now, *bytes) {
                    Fate::Arrives { left, .. } => {
                        prop_assert!(there < most);
                        leaving.push(left);
                    }
                    _ => prop_assert_eq!(there, most),
                }
            }
        }
    }

    #[test]
    fn streams_differ_and_repeat() {
        let jittered = |stream| {
            let mut path = Path::new(shape(1.0, 5.0, None, 1500), 7, stream);
            (0..20)
                .map(|step| path.offer(step * 20_000_000, 100))
                .collect::<Vec<_>>()
        };
        assert_eq!(jittered(1), jittered(1));
        assert_ne!(jittered(1), jittered(2));
    }

    #[test]
    fn a_path_that_is_changed_keeps_what_is_under_way() {
        let mut path = Path::new(shape(10.0, 0.0, Some(8.0), 1 << 20), 7, 1);
        let Fate::Arrives { left: first, .. } = path.offer(0, 1000) else {
            panic!("dropped")
        };
        path.reshape(shape(10.0, 0.0, Some(0.8), 1 << 20));
        let Fate::Arrives { left: second, .. } = path.offer(0, 1000) else {
            panic!("dropped")
        };
        assert_eq!((first, second), (1_000_000, 11_000_000));
    }

    #[test]
    fn a_poisson_link_carries_its_rate_in_uneven_steps() {
        let mut random = shape(0.0, 0.0, Some(8.0), 1 << 30);
        random.poisson = true;
        let mut path = Path::new(random, 7, 1);
        let mut steps = Vec::new();
        let mut last = 0;
        for _ in 0..20_000 {
            let Fate::Arrives { left, .. } = path.offer(0, 1000) else {
                panic!("dropped")
            };
            steps.push((left - last) as f64 / 1e6);
            last = left;
        }
        // A packet takes a millisecond in the mean; the standard deviation of an exponential time is its mean.
        let count = steps.len() as f64;
        let mean = steps.iter().sum::<f64>() / count;
        let variance = steps.iter().map(|step| (step - mean).powi(2)).sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.1, "{variance}");
    }

    #[test]
    fn duplication_is_counted() {
        let mut always = shape(1.0, 0.0, None, 1500);
        always.duplicate = Probability::certain();
        let mut path = Path::new(always, 7, 1);
        assert_eq!(
            path.offer(0, 100),
            Fate::Arrives {
                left: 0,
                at: 1_000_000,
                twice: true
            }
        );
        assert_eq!(path.counters().duplicates, 1);
    }
}
