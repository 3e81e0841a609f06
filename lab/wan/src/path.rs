//! One directed path: a queue in front of a serialising link, then loss, propagation delay and duplication.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::config::Shape;
use crate::loss::Loss;

const NS_PER_S: u128 = 1_000_000_000;

/// What a path did since the start. `packets` and `bytes` are what was offered to it, IP headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub queue_drops: u64,
    pub duplicates: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The queue had no room.
    Dropped,
    /// Lost on the wire, after it took its time on the link.
    Lost,
    /// Arrives at this time, in nanoseconds of the caller's clock.
    Arrives { at: u64, twice: bool },
}

/// A path in motion. Packets never overtake one another: jitter stretches and bunches them, as a queue elsewhere would.
#[derive(Debug)]
pub struct Path {
    shape: Shape,
    loss: Loss,
    rng: ChaCha8Rng,
    /// When the link will have sent all that it has taken on.
    free_at: u64,
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
            free_at: 0,
            last_arrival: 0,
            counters: Counters::default(),
        }
    }

    /// Takes a packet of `bytes` at `now` (nanoseconds, never going back).
    pub fn offer(&mut self, now: u64, bytes: usize) -> Fate {
        self.counters.packets += 1;
        self.counters.bytes += bytes as u64;
        let Some(sent_at) = self.enqueue(now, bytes as u64) else {
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
        let at = self
            .last_arrival
            .max(sent_at + self.shape.delay.ns() + jitter);
        self.last_arrival = at;
        let twice = self.rng.random_bool(self.shape.duplicate.get());
        self.counters.duplicates += u64::from(twice);
        Fate::Arrives { at, twice }
    }

    /// A packet that arrives was refused all the same, because the whole emulator holds too much.
    pub fn overflowed(&mut self) {
        self.counters.queue_drops += 1;
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the last bit leaves the link, or None when the queue (the packet on the link included) has no room.
    fn enqueue(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let Some(rate) = self.shape.rate else {
            return Some(now);
        };
        let begin = self.free_at.max(now);
        let backlog = u128::from(begin - now) * u128::from(rate.bits_per_s()) / (8 * NS_PER_S);
        if backlog + u128::from(bytes) > u128::from(self.shape.queue_bytes.get()) {
            return None;
        }
        let takes = (u128::from(bytes) * 8 * NS_PER_S).div_ceil(u128::from(rate.bits_per_s()));
        self.free_at = begin + takes as u64;
        Some(self.free_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Megabits, Milliseconds, Probability, QueueBytes};
    use proptest::prelude::*;

    fn shape(delay_ms: f64, jitter_ms: f64, rate_mbit: Option<f64>, queue_bytes: u64) -> Shape {
        Shape {
            delay: Milliseconds::new(delay_ms).unwrap(),
            jitter: Milliseconds::new(jitter_ms).unwrap(),
            loss: None,
            rate: rate_mbit.map(|rate| Megabits::new(rate).unwrap()),
            queue_bytes: QueueBytes::new(queue_bytes as f64).unwrap(),
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
                prop_assert_eq!(path.offer(now, bytes), Fate::Arrives { at, twice: false });
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
    fn duplication_is_counted() {
        let mut always = shape(1.0, 0.0, None, 1500);
        always.duplicate = Probability::certain();
        let mut path = Path::new(always, 7, 1);
        assert_eq!(
            path.offer(0, 100),
            Fate::Arrives {
                at: 1_000_000,
                twice: true
            }
        );
        assert_eq!(path.counters().duplicates, 1);
    }
}
