//! Rows of paths: what records showed of their handshakes, what decisions leave, and what these show.

use crate::step::columns::{Instant, Seconds, columns};

columns! {
    /// What the records of the last rounds showed of a path's handshakes. What is unknown is NaN.
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
    }
}

columns! {
    /// What decisions leave of a path; 0 is none.
    #[derive(Clone, Debug)]
    pub struct State {
        /// Timeout of handshakes, milliseconds.
        handshake_timeout_ms: f64 as "u2",
        /// Round that last had sufficient evidence.
        last_evidence: Instant as "u4",
        /// Instant until which nothing is given.
        hold_until: Instant as "u4",
        /// Length of that hold.
        hold_s: Seconds as "u4",
    }
}

columns! {
    /// What a decision shows beside the state that it leaves.
    #[derive(Clone, Debug)]
    pub struct Decided {
        /// Number of the action.
        action: f64 as "u1",
        /// Number of the reason.
        reason: f64 as "u1",
        /// Instant at which the value expires.
        expires_at: Instant as "u4",
    }
}
