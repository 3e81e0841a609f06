//! Evidence: what a round showed of one path.

use super::losses::Flights;
use crate::step::columns::columns;

/// Bytes of a segment where none was seen: Ethernet's, with TCP timestamps.
pub const USUAL_MSS: f64 = 1448.0;

columns! {
    /// A round's evidence of a path, not smoothed. Counts are 0 and measurements NaN where unknown.
    /// Rates in bytes/s, times in microseconds.
    ///
    /// Arm 0 are connections that started with the entry's values, arm 1 those that started with the values on trial.
    /// First flights are those of more than ten segments.
    #[derive(Clone, Debug)]
    pub struct Seen {
        /// Connections that began.
        connections: f64 as "u4",
        /// Bytes of a segment.
        mss: f64 as "f4",
        /// Lowest round trip.
        min_rtt_us: f64 as "f4",
        /// Low quantile of single delivery rates, of connections that met the path: the application did not limit them.
        share_rate: f64 as "f4",
        /// Number of those connections.
        share_connections: f64 as "u4",
        /// High quantile of what any connections were delivered: a lower bound, since windows limit most of them.
        reached_rate: f64 as "f4",
        /// Number of those connections.
        reached_connections: f64 as "u4",
        /// High quantile, over short times, of what all busy connections were delivered together.
        path_rate: f64 as "f4",
        /// Number of those short times.
        path_buckets: f64 as "u4",
        /// Connections that were busy together.
        at_once: f64 as "f4",
        /// Median of what the peers' receive windows hold, bytes.
        receiver_window: f64 as "f4",
        /// Trains of first segments, which leave at once whatever a connection starts with.
        trains: f64 as "u4",
        /// Rate that a quarter of the trains are delivered below.
        train_low_rate: f64 as "f4",
        /// Median rate at which trains were delivered.
        train_rate: f64 as "f4",
        /// First flights of arm 0.
        flights_0: f64 as "u4",
        /// Those of them that lost anything.
        lossy_0: f64 as "u4",
        /// Segments that they sent again.
        resent_0: f64 as "u4",
        /// Segments that they sent.
        segments_0: f64 as "u4",
        /// Median time until 50 kB were acknowledged.
        t50_0_us: f64 as "f4",
        /// Median time until 100 kB were acknowledged.
        t100_0_us: f64 as "f4",
        /// Part that the path carried of a single connection's rate.
        carried_0: f64 as "f4",
        /// Part that the path carried of the rate of all that start at once.
        path_carried_0: f64 as "f4",
        /// As of arm 0.
        flights_1: f64 as "u4",
        /// As of arm 0.
        lossy_1: f64 as "u4",
        /// As of arm 0.
        resent_1: f64 as "u4",
        /// As of arm 0.
        segments_1: f64 as "u4",
        /// As of arm 0.
        t50_1_us: f64 as "f4",
        /// As of arm 0.
        t100_1_us: f64 as "f4",
        /// As of arm 0.
        carried_1: f64 as "f4",
        /// As of arm 0.
        path_carried_1: f64 as "f4",
        /// Connections that an edge's brake had cut.
        braked: f64 as "u4",
        /// First flights on edges that are held out: they start with the kernel's default.
        default_flights: f64 as "u4",
        /// Those of them that lost anything.
        default_lossy: f64 as "u4",
    }
}

impl Seen {
    /// First flights of both arms.
    pub(super) fn flights(&self) -> [Flights; 2] {
        let of = |flights, lossy: f64, segments, resent| Flights {
            flights,
            lossy: lossy.min(flights),
            segments,
            resent,
        };
        [
            of(self.flights_0, self.lossy_0, self.segments_0, self.resent_0),
            of(self.flights_1, self.lossy_1, self.segments_1, self.resent_1),
        ]
    }

    /// Bytes of a segment.
    pub(super) fn segment(&self) -> f64 {
        if self.mss.is_finite() && self.mss > 0.0 {
            self.mss
        } else {
            USUAL_MSS
        }
    }

    /// Times of 100 kB and of 50 kB, of arm 0 and of arm 1.
    pub(super) fn times_us(&self) -> [(f64, f64); 2] {
        [
            (self.t100_0_us, self.t100_1_us),
            (self.t50_0_us, self.t50_1_us),
        ]
    }
}
