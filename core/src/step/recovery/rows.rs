//! Rows of paths: what records showed of their handshakes and first flights, what decisions leave, and what these show.

use crate::step::columns::{Instant, Seconds, columns};

columns! {
    /// Evidence of a path by the last rounds' records. NaN is unknown.
    #[derive(Clone, Debug)]
    pub struct Seen {
        /// Handshakes.
        handshakes: f64 as "u4",
        /// High quantile of the handshakes' round trips, microseconds.
        handshake_rtt_us: f64 as "f8",
        /// The newest timeout that handshakes had, milliseconds.
        treated_ms: f64 as "u2",
        /// Handshakes with it.
        treated: f64 as "u4",
        /// Those of them that the edge sent again.
        treated_resent: f64 as "u4",
        /// Handshakes of the same edges and bundles that kept the kernel's, by chance.
        control: f64 as "u4",
        /// Those of them that the edge sent again.
        control_resent: f64 as "u4",
        /// First flights without copies: where copies are in use, only those that have none by chance.
        flights: f64 as "u4",
        /// Those of them that sent anything again.
        flights_lossy: f64 as "u4",
        /// Segments that one of these sent again, in the mean.
        resent_each: f64 as "f8",
        /// Flights whose handshake took less than the median.
        calm_flights: f64 as "u4",
        /// Those of them that sent anything again.
        calm_lossy: f64 as "u4",
        /// Flights whose handshake took more than the median.
        busy_flights: f64 as "u4",
        /// Those of them that sent anything again.
        busy_lossy: f64 as "u4",
        /// First flights with copies.
        copied: f64 as "u4",
        /// Those of them that sent anything again.
        copied_lossy: f64 as "u4",
        /// First flights of the same edges and bundles that had no copies, by chance.
        uncopied: f64 as "u4",
        /// Those of them that sent anything again.
        uncopied_lossy: f64 as "u4",
        /// Segments that were sent twice.
        copied_segments: f64 as "u4",
        /// Those of them that the other end did not report as got twice.
        repaired_segments: f64 as "u4",
        /// Mean time to 10 kB with copies, microseconds.
        copied_10k_us: f64 as "f8",
        /// Mean time to 10 kB beside them.
        uncopied_10k_us: f64 as "f8",
        /// Standard error of the difference of these two.
        error_10k_us: f64 as "f8",
    }
}

columns! {
    /// State of a path; 0 is none.
    #[derive(Clone, Debug)]
    pub struct State {
        /// Timeout of handshakes, milliseconds.
        handshake_timeout_ms: f64 as "u2",
        /// Round that last had sufficient evidence.
        last_evidence: Instant as "u4",
        /// Instant until which no timeout is given.
        hold_until: Instant as "u4",
        /// Length of that hold.
        hold_s: Seconds as "u4",
        /// Bytes at the beginning of connections that are sent twice.
        copied_bytes: f64 as "u2",
        /// Instant until which no copies are given.
        copies_hold_until: Instant as "u4",
        /// Length of that hold.
        copies_hold_s: Seconds as "u4",
        /// Says whether the timeout is an operator's.
        overridden: bool as "u1",
        /// Says whether the copies are an operator's.
        copies_overridden: bool as "u1",
    }
}

columns! {
    /// An operator's word for a path; NaN is what it does not name.
    #[derive(Clone, Debug)]
    pub struct Override {
        /// Timeout of handshakes, milliseconds; 0 is the kernel's.
        handshake_timeout_ms: f64 as "f8",
        /// Bytes at the beginning of connections that are sent twice.
        copied_bytes: f64 as "f8",
    }
}

columns! {
    /// Output of a decision beside the state that it leaves.
    #[derive(Clone, Debug)]
    pub struct Decided {
        /// Number of the action.
        action: f64 as "u1",
        /// Number of the timeout's reason.
        reason: f64 as "u1",
        /// Number of the copies' reason.
        copies_reason: f64 as "u1",
        /// Instant at which the values expire.
        expires_at: Instant as "u4",
    }
}
