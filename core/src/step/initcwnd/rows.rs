//! Rows of pairs: what a round showed, what their decisions leave, and what these show.

use crate::step::columns::{Instant, Seconds, columns};

columns! {
    /// A round's evidence of a pair. Unknown windows are NaN.
    #[derive(Clone, Debug)]
    pub struct Seen {
        /// Connections that had a window of data acknowledged.
        connections_earned: f64 as "u4",
        /// The policy's combination of their windows, segments.
        window: f64 as "f8",
        /// Their mean.
        mean_cwnd: f64 as "f8",
        /// Median window that the peers advertised, segments.
        receiver_cwnd: f64 as "f8",
        /// Connections that closed after at most two of the windows that they began with.
        young_connections: f64 as "u4",
        /// Those of them that lost anything.
        young_lossy_connections: f64 as "u4",
        /// Whether the pair is off in an experiment: 1 for a switchback's turn, 2 for a test of all.
        turn: f64 as "u1",
    }
}

columns! {
    /// State of a pair; windows in segments, instants in seconds since the epoch. 0 is none.
    #[derive(Clone, Debug)]
    pub struct State {
        /// The bounded value before rounding and before the limits; NaN is none.
        smoothed_cwnd: f64 as "f8",
        /// Round that last had sufficient evidence.
        last_evidence: Instant as "u4",
        /// Window that new connections start with.
        initcwnd: f64 as "u4",
        /// Until when the ceiling is not tried.
        guard_until: Instant as "u4",
        /// Length of that hold, seconds.
        guard_hold_s: Seconds as "u4",
        /// The window judged clean last or, below a ceiling, the largest one.
        clean_initcwnd: f64 as "u4",
        /// The window last judged harmful; while it is 0 there is no ceiling.
        harmful_initcwnd: f64 as "u4",
        /// Young connections that last judged the kernel's default.
        default_young: f64 as "u4",
        /// Those of them that lost anything.
        default_young_lossy: f64 as "u4",
        /// Rounds that the window has been in use.
        trial_rounds: f64 as "u4",
        /// Young connections since then that are not yet judged.
        trial_young: f64 as "u4",
        /// Those of them that lost anything.
        trial_young_lossy: f64 as "u4",
        /// Flap damping's penalty.
        penalty: f64 as "f8",
        /// Says whether rises are held back for it.
        suppressed: bool as "u1",
        /// Rounds with sufficient evidence, of the last `duty_window_rounds`.
        measured_rounds: f64 as "u4",
    }
}

columns! {
    /// An operator's word for a pair.
    #[derive(Clone, Debug)]
    pub struct Override {
        /// Segments; 0 is the kernel's default.
        window: f64 as "u4",
    }
}

columns! {
    /// Output of a decision beside the state that it leaves; windows in segments.
    #[derive(Clone, Debug)]
    pub struct Decided {
        /// Number of the action.
        action: f64 as "u1",
        /// Number of the reason.
        reason: f64 as "u1",
        /// The round's window, or the mean where the evidence did not suffice.
        observed_cwnd: f64 as "f8",
        /// Window in use before; 0 is the kernel's default.
        previous_initcwnd: f64 as "u4",
        /// Last smoothed value.
        previous_cwnd: f64 as "f8",
        /// Window made of the smoothed value, before rounding.
        target_cwnd: f64 as "f8",
        /// Largest window that the loss guard allows; 0 where it bounds nothing.
        ceiling_initcwnd: f64 as "u4",
        /// Instant at which the value expires.
        expires_at: Instant as "u4",
    }
}
