//! Counts what was carried of each TCP connection: the truth beside what its sender believes.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::SocketAddr;

use serde::Serialize;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Flow {
    pub src: SocketAddr,
    pub dst: SocketAddr,
}

/// Traffic of a flow that a path carried in one interval of the wall clock. Bytes are TCP's payload, with what was sent
/// again.
///
/// Several records of one flow and interval belong together: the most of `most_bytes`, the sums of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    #[serde(flatten)]
    pub flow: Flow,
    /// When the interval ends, in seconds since the epoch.
    pub interval_end_s: u64,
    /// The most that left the path's link, and arrived, within one base round trip that ended in the interval.
    pub most_bytes: u64,
    /// Bytes of the base round trips that ended in the interval, and the sum of their squares. Round trips follow one
    /// another, each from the first segment after the one before.
    pub round_trip_bytes: u64,
    pub round_trip_bytes_squared: u64,
    pub bytes: u64,
    /// Segments with payload that the queue, the policer or the wire lost.
    pub lost_segments: u64,
}

/// Every flow since the start.
#[derive(Debug)]
pub struct Flows {
    interval_ns: u64,
    flows: HashMap<Flow, Carried>,
    closed: Vec<Record>,
}

#[derive(Debug, Default)]
struct Carried {
    /// Segments of the last base round trip: when each left the link, and its bytes.
    window: VecDeque<(u64, u64)>,
    window_bytes: u64,
    /// The round trip that has not ended: its first segment, and its bytes.
    began: u64,
    round_trip: u64,
    interval: u64,
    most_bytes: u64,
    round_trip_bytes: u64,
    round_trip_bytes_squared: u64,
    bytes: u64,
    lost_segments: u64,
}

impl Flows {
    /// Records for each interval of this length, at most an hour, aligned with the epoch.
    pub fn new(interval_s: u32) -> Self {
        Self {
            interval_ns: u64::from(interval_s) * 1_000_000_000,
            flows: HashMap::new(),
            closed: Vec::new(),
        }
    }

    /// A segment of `bytes` left the link at `at` (nanoseconds since the epoch, not going back for a flow) and arrives.
    pub fn carried(&mut self, flow: Flow, at: u64, bytes: u64, base_rtt_ns: u64) {
        // A round trip that ended before counts in the interval of its last segment.
        let known = self.flows.entry(flow).or_default();
        if known.began + base_rtt_ns <= at {
            known.end_round_trip();
            known.began = at;
        }
        let carried = self.enter(flow, at);
        carried.round_trip += bytes;
        carried.window.push_back((at, bytes));
        carried.window_bytes += bytes;
        while let Some((left, old)) = carried.window.front().copied()
            && left + base_rtt_ns <= at
        {
            carried.window.pop_front();
            carried.window_bytes -= old;
        }
        carried.bytes += bytes;
        carried.most_bytes = carried.most_bytes.max(carried.window_bytes);
    }

    /// A segment was lost at `at`.
    pub fn lost(&mut self, flow: Flow, at: u64) {
        self.enter(flow, at).lost_segments += 1;
    }

    /// Writes the records so far, a line of JSON each, and begins new ones; ends every round trip.
    pub fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        for (flow, carried) in &mut self.flows {
            carried.end_round_trip();
            self.closed.extend(carried.take(*flow, self.interval_ns));
        }
        for record in self.closed.drain(..) {
            serde_json::to_writer(&mut *out, &record)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    fn enter(&mut self, flow: Flow, at: u64) -> &mut Carried {
        let carried = self.flows.entry(flow).or_default();
        let interval = at / self.interval_ns;
        if carried.interval != interval {
            self.closed.extend(carried.take(flow, self.interval_ns));
            carried.interval = interval;
        }
        carried
    }
}

impl Carried {
    fn end_round_trip(&mut self) {
        let bytes = std::mem::take(&mut self.round_trip);
        self.round_trip_bytes += bytes;
        self.round_trip_bytes_squared = self
            .round_trip_bytes_squared
            .saturating_add(bytes.saturating_mul(bytes));
    }

    fn take(&mut self, flow: Flow, interval_ns: u64) -> Option<Record> {
        let record = Record {
            flow,
            interval_end_s: (self.interval + 1) * interval_ns / 1_000_000_000,
            most_bytes: std::mem::take(&mut self.most_bytes),
            round_trip_bytes: std::mem::take(&mut self.round_trip_bytes),
            round_trip_bytes_squared: std::mem::take(&mut self.round_trip_bytes_squared),
            bytes: std::mem::take(&mut self.bytes),
            lost_segments: std::mem::take(&mut self.lost_segments),
        };
        (record.bytes + record.round_trip_bytes + record.lost_segments > 0).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn flow(port: u16) -> Flow {
        Flow {
            src: SocketAddr::from(([10, 0, 0, 1], 80)),
            dst: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    fn written(flows: &mut Flows) -> Vec<Value> {
        let mut out = Vec::new();
        flows.write(&mut out).unwrap();
        serde_json::Deserializer::from_slice(&out)
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    proptest! {
        /// Beside a plain look at every span of a round trip that ends with a segment.
        #[test]
        fn the_most_of_a_round_trip_is_that_of_the_fullest_span(
            gaps in prop::collection::vec((0..400_000_000_u64, 1..1500_u64), 1..100), rtt in 1..500_000_000_u64,
        ) {
            let mut flows = Flows::new(1);
            let mut sent: Vec<(u64, u64)> = Vec::new();
            let mut at = 0;
            for (gap, bytes) in gaps {
                at += gap;
                flows.carried(flow(1), at, bytes, rtt);
                sent.push((at, bytes));
            }
            let records = written(&mut flows);
            let mut total = 0;
            for record in &records {
                let end = record["interval_end_s"].as_u64().unwrap();
                let fullest = sent
                    .iter()
                    .filter(|(last, _)| last / 1_000_000_000 + 1 == end)
                    .map(|(last, _)| {
                        let span = sent.iter().filter(|(at, _)| at <= last && at + rtt > *last);
                        span.map(|(_, bytes)| bytes).sum::<u64>()
                    })
                    .max();
                // Segments of one nanosecond are one step of the plain look.
                prop_assert_eq!(record["most_bytes"].as_u64(), fullest);
                total += record["bytes"].as_u64().unwrap();
            }
            prop_assert_eq!(total, sent.iter().map(|(_, bytes)| bytes).sum::<u64>());
        }
    }

    /// Two flights of 3,000 and one of 1,000 that is cut by the interval's end, round trips of 100 ms: the last counts
    /// where it ended.
    #[test]
    fn round_trips_follow_one_another() {
        let mut flows = Flows::new(1);
        for (ms, bytes) in [
            (500, 1000),
            (510, 2000),
            (700, 3000),
            (950, 400),
            (1049, 600),
            (1200, 50),
        ] {
            flows.carried(flow(1), ms * 1_000_000, bytes, 100_000_000);
        }
        let found: Vec<_> = written(&mut flows)
            .iter()
            .map(|record| {
                ["round_trip_bytes", "round_trip_bytes_squared"].map(|key| record[key].as_u64())
            })
            .collect();
        let first = [Some(6_000), Some(2 * 3_000 * 3_000)];
        assert_eq!(found, [first, [Some(1_050), Some(1_000_000 + 2_500)]]);
    }

    #[test]
    fn flows_are_separate_and_losses_counted_where_nothing_came_through() {
        let mut flows = Flows::new(20);
        flows.carried(flow(1), 5, 1448, 100);
        flows.lost(flow(1), 6);
        flows.lost(flow(2), 20_000_000_000);
        let mut records = written(&mut flows);
        records.sort_by_key(|record| record["dst"].to_string());
        let of = |record: &Value| {
            ["interval_end_s", "most_bytes", "lost_segments"].map(|key| record[key].as_u64())
        };
        assert_eq!(of(&records[0]), [Some(20), Some(1448), Some(1)]);
        assert_eq!(of(&records[1]), [Some(40), Some(0), Some(1)]);
        assert_eq!(records[0]["src"], "10.0.0.1:80");
        assert!(written(&mut flows).is_empty());
    }
}
