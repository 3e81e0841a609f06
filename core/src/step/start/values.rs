//! Values: what a path's connections start with.

use super::evidence::Seen;
use super::policy::Start;
use crate::bundle::MAX_RATE;
use crate::gain::{KERNEL_DEFAULT, Path};

/// Windows that the kernel paces in a round trip of slow start, at most (`tcp_pacing_ss_ratio`).
const KERNEL_PACES: f64 = 2.0;
/// Part of what was saved that a careful start takes (RFC 9959).
const CAREFUL: f64 = 0.5;

/// A window (segments), a rate for each connection and the path's rate for all that start at once (bytes/s). Where the
/// window is 0 all are: nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// Segments.
    pub window: f64,
    /// Bytes/s of each connection.
    pub rate: f64,
    /// Bytes/s of all that start at once.
    pub path: f64,
}

impl Values {
    /// The kernel's default.
    pub const NOTHING: Self = Self {
        window: 0.0,
        rate: 0.0,
        path: 0.0,
    };

    pub(super) fn is_some(self) -> bool {
        self.window > 0.0
    }

    pub(super) fn least(self, other: Self) -> Self {
        Self {
            window: self.window.min(other.window),
            rate: self.rate.min(other.rate),
            path: self.path.min(other.path),
        }
    }

    pub(super) fn most(self, other: Self) -> Self {
        Self {
            window: self.window.max(other.window),
            rate: self.rate.max(other.rate),
            path: self.path.max(other.path),
        }
    }

    /// Scales all; the window is at least the kernel's default, and at most as many segments.
    pub(super) fn scaled(self, factor: f64, most: f64) -> Self {
        if !self.is_some() {
            return Self::NOTHING;
        }
        #[expect(clippy::cast_precision_loss, reason = "bounds of bundles are exact")]
        let rate = |one: f64| (one * factor).floor().clamp(1.0, MAX_RATE as f64);
        Self {
            window: (self.window * factor).floor().clamp(KERNEL_DEFAULT, most),
            rate: rate(self.rate),
            path: rate(self.path),
        }
    }

    /// Bounds the rate, and the others in proportion.
    pub(super) fn within(self, rate: f64, most: f64) -> Self {
        if self.rate > rate {
            self.scaled(rate / self.rate.max(1.0), most)
        } else {
            self
        }
    }

    /// Says whether any is above the other's by more than this share of it.
    pub(super) fn above(self, other: Self, share: f64) -> bool {
        self.window > other.window * (1.0 + share)
            || self.rate > other.rate * (1.0 + share)
            || self.path > other.path * (1.0 + share)
    }

    /// Says whether any is below the other's by more than this share of it.
    pub(super) fn below(self, other: Self, share: f64) -> bool {
        self.window < other.window * (1.0 - share)
            || self.rate < other.rate * (1.0 - share)
            || self.path < other.path * (1.0 - share)
    }
}

/// Part of the proved rate that is given.
pub(super) fn kept(law: &Start) -> f64 {
    if law.careful { CAREFUL } else { 1.0 }
}

/// Gives the values that fit a share of the path and the path's rate (bytes/s); nothing where the share or the round trip
/// is unknown.
pub fn size(share: f64, path: f64, rtt_us: f64, seen: &Seen, law: &Start) -> Values {
    let is_known = |one: f64| one.is_finite() && one > 0.0;
    if !is_known(share) || !is_known(rtt_us) {
        return Values::NOTHING;
    }
    let (together, mss) = (path.max(share), seen.segment());
    let path = Path {
        rtt_us,
        rate: kept(law) * share,
        mss,
    };
    let receiver = (seen.receiver_window > 0.0).then_some(seen.receiver_window);
    let window = path.window(together, receiver, law.headroom, law.cmax);
    let rate = (kept(law) * law.pace_gain * share)
        .min(most_paced(window, rtt_us, mss))
        .floor()
        .max(1.0);
    Values {
        window,
        rate,
        path: (law.pace_gain * together).floor().max(rate),
    }
}

/// Bytes/s above which a window's rate would never leave.
pub(super) fn most_paced(window: f64, rtt_us: f64, mss: f64) -> f64 {
    (KERNEL_PACES * window * mss / rtt_us * 1e6).floor()
}

/// Says whether the kernel's default carries as much in a round trip by itself.
pub(super) fn idle(rate: f64, rtt_us: f64, seen: &Seen) -> bool {
    rate * rtt_us / 1e6 < KERNEL_DEFAULT * seen.segment()
}

/// Says whether 50 or 100 kB would take longer with these values than starts with the kernel's default lately did
/// (`default_us`: both times, 0 is unknown).
pub(super) fn is_slower(values: Values, default_us: [f64; 2], rtt_us: f64, mss: f64) -> bool {
    let path = Path {
        rtt_us,
        rate: values.rate,
        mss,
    };
    values.is_some()
        && rtt_us > 0.0
        && [50_000.0, 100_000.0]
            .into_iter()
            .zip(default_us)
            // Less than a round trip was on another path.
            .any(|(size, took)| took > rtt_us && path.transfer_us(size, values.window) > took)
}
