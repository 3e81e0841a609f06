//! State: what a path's decisions leave for the next round.

use super::losses::Flights;
use super::values::Values;
use crate::step::columns::{Instant, Seconds, columns};

columns! {
    /// A path's values in use and on trial, and past evidence. Instants in seconds since the epoch.
    ///
    /// 0 is none, of values as of instants.
    #[derive(Clone, Debug)]
    pub struct State {
        /// Window in use, segments.
        window: f64 as "u4",
        /// Rate of each connection, bytes/s.
        connection_rate: f64 as "f8",
        /// Rate of all that start at once, bytes/s.
        path_rate: f64 as "f8",
        /// Window on trial, segments.
        trial_window: f64 as "u4",
        /// As `connection_rate`, on trial.
        trial_connection_rate: f64 as "f8",
        /// As `path_rate`, on trial.
        trial_path_rate: f64 as "f8",
        /// Connections on trial, of a thousand.
        trial_permille: f64 as "u2",
        /// Says whether what is in use is the group's estimate.
        borrowed: bool as "u1",
        /// Says whether what is on trial is the group's estimate.
        trial_borrowed: bool as "u1",
        /// Says whether the trial is a step beyond what was reached.
        trial_step: bool as "u1",
        /// First flights with the kernel's default, decayed.
        default_flights: f64 as "f4",
        /// Those of them that lost anything.
        default_lossy: f64 as "f4",
        /// Segments that one of these sends again.
        default_resent: f64 as "f4",
        /// When flights with the default were last seen.
        default_at: Instant as "u4",
        /// Time that 50 kB took with the default, microseconds.
        default_t50_us: f64 as "f4",
        /// Time that 100 kB took with the default, microseconds.
        default_t100_us: f64 as "f4",
        /// When these times were last seen.
        default_timed_at: Instant as "u4",
        /// First flights with the values in use, since they are.
        used_flights: f64 as "u4",
        /// Those of them that lost anything.
        used_lossy: f64 as "u4",
        /// Segments that they sent.
        used_segments: f64 as "u4",
        /// Segments that they sent again.
        used_resent: f64 as "u4",
        /// Rounds that the trial has lasted.
        trial_rounds: f64 as "u4",
        /// First flights on trial.
        trial_flights: f64 as "u4",
        /// Those of them that lost anything.
        trial_lossy: f64 as "u4",
        /// Segments that they sent.
        trial_segments: f64 as "u4",
        /// Segments that they sent again.
        trial_resent: f64 as "u4",
        /// Log2 of the trial's times over the others', each round's times its weight.
        trial_log2_time: f64 as "f4",
        /// Sum of these weights: the fewer of both arms' flights.
        trial_times: f64 as "f4",
        /// Log2 of a single connection's share of the path, bytes/s.
        share_log2: f64 as "f4",
        /// Connections that showed it, decayed.
        share_weight: f64 as "f4",
        /// Log2 of what all are delivered together, bytes/s.
        path_log2: f64 as "f4",
        /// Log2 of what trains show that the path carries, bytes/s.
        train_log2: f64 as "f4",
        /// Trains that showed it, decayed.
        train_weight: f64 as "f4",
        /// When the last ones were.
        train_at: Instant as "u4",
        /// Says whether they were sharp.
        train_sharp: bool as "u1",
        /// Connection rate that did harm or was tried in vain: the ceiling.
        harmful_rate: f64 as "f8",
        /// Until when nothing near it is tried.
        hold_until: Instant as "u4",
        /// Length of that hold, seconds.
        hold_s: Seconds as "u4",
        /// Connection rate that the evidence asked for when it did harm.
        harmful_share: f64 as "f8",
        /// When flights were last carried less than trains show that the path carries.
        shared_at: Instant as "u4",
        /// Says whether what is in use is what harm left of it.
        was_cut: bool as "u1",
        /// Lowest round trip when what is in use was proved, microseconds.
        learnt_rtt_us: f64 as "f4",
        /// Rounds with evidence.
        measured_rounds: f64 as "u4",
        /// Flap damping's penalty.
        penalty: f64 as "f8",
        /// Says whether rises are held back for it.
        suppressed: bool as "u1",
        /// Says whether an operator gave the values.
        overridden: bool as "u1",
        /// When the last evidence was.
        last_evidence: Instant as "u4",
    }
}

impl State {
    /// Values in use.
    pub(super) fn used(&self) -> Values {
        Values {
            window: self.window,
            rate: self.connection_rate,
            path: self.path_rate,
        }
    }

    /// Values on trial.
    pub(super) fn tried(&self) -> Values {
        Values {
            window: self.trial_window,
            rate: self.trial_connection_rate,
            path: self.trial_path_rate,
        }
    }

    /// First flights with the values in use.
    pub(super) fn used_flights(&self) -> Flights {
        Flights {
            flights: self.used_flights,
            lossy: self.used_lossy,
            segments: self.used_segments,
            resent: self.used_resent,
        }
    }

    /// First flights on trial.
    pub(super) fn trial_flights(&self) -> Flights {
        Flights {
            flights: self.trial_flights,
            lossy: self.trial_lossy,
            segments: self.trial_segments,
            resent: self.trial_resent,
        }
    }

    pub(super) fn set_used(&mut self, values: Values) {
        (self.window, self.connection_rate, self.path_rate) =
            (values.window, values.rate, values.path);
    }

    pub(super) fn set_tried(&mut self, values: Values) {
        (
            self.trial_window,
            self.trial_connection_rate,
            self.trial_path_rate,
        ) = (values.window, values.rate, values.path);
    }

    pub(super) fn set_used_flights(&mut self, count: Flights) {
        self.used_flights = count.flights;
        self.used_lossy = count.lossy;
        self.used_segments = count.segments;
        self.used_resent = count.resent;
    }

    pub(super) fn set_trial_flights(&mut self, count: Flights) {
        self.trial_flights = count.flights;
        self.trial_lossy = count.lossy;
        self.trial_segments = count.segments;
        self.trial_resent = count.resent;
    }
}
