//! Rows of client prefixes: what a round showed, what their decisions leave, and what these show.

use crate::step::columns::{Instant, columns};

columns! {
    /// A round's evidence of a prefix. Rates in bytes/s, growth in powers of two, NaN is unknown.
    #[derive(Clone, Debug)]
    pub struct Seen {
        /// First half of its first address, IPv4 mapped.
        high: u64 as "u8",
        /// Second half.
        low: u64 as "u8",
        /// Says whether its addresses are a PoP's own.
        back_office: bool as "u1",
        /// Rounds with enough evidence, the newest first.
        measured_0: u64 as "u8",
        /// Those before them.
        measured_1: u64 as "u8",
        /// Rounds in which it was in its PoP's lowest share by delivery rate.
        low_0: u64 as "u8",
        /// Those before them.
        low_1: u64 as "u8",
        /// Round trip of a packet.
        rtt_us: f64 as "f8",
        /// Share of the bytes that were sent again.
        retransmit_ratio: f64 as "f8",
        /// Delivery rate over the window.
        rate: f64 as "f8",
        /// Delivery rate over the newest `benefit_rounds`.
        recent_rate: f64 as "f8",
        /// Growth in its trial, until now.
        trial_growth: f64 as "f8",
        /// Says whether it, or its PoP, grew no more than the held-out prefixes did.
        not_helped: bool as "u1",
    }
}

columns! {
    /// State of a prefix; instants in seconds since the epoch, 0 is none.
    #[derive(Clone, Debug)]
    pub struct State {
        /// Says whether it is chosen but keeps the default.
        held_out: bool as "u1",
        /// Its recent rate when it was chosen; NaN is none.
        baseline_rate: f64 as "f8",
        /// When it was chosen.
        selected_since: Instant as "u4",
        /// Until when it is not chosen again.
        hold_until: Instant as "u4",
        /// Flap damping's penalty.
        penalty: f64 as "f8",
        /// Says whether it is not chosen for that.
        suppressed: bool as "u1",
        /// Growth in its trial; NaN is none.
        trial_growth: f64 as "f8",
    }
}

columns! {
    /// An operator's word for a prefix.
    #[derive(Clone, Debug)]
    pub struct Override {
        /// Says whether it uses BBR; else the kernel's default.
        bbr: bool as "u1",
    }
}

columns! {
    /// Output of a decision beside the state that it leaves.
    #[derive(Clone, Debug)]
    pub struct Decided {
        /// Number of the action.
        action: f64 as "u1",
        /// Says whether it uses BBR.
        algorithm: bool as "u1",
        /// Number of the reason.
        reason: f64 as "u1",
        /// Rounds of the window with enough evidence.
        measured_rounds: f64 as "u4",
        /// Those in which it was low.
        low_rounds: f64 as "u1",
        /// Number of changes to low and back.
        state_changes: f64 as "u1",
        /// Low rounds beyond `enter_duty` of the newest.
        low_excess: f64 as "f8",
        /// Rounds that were not low beyond what `leave_duty` leaves.
        good_excess: f64 as "f8",
    }
}
