//! Losses: what first flights lose, beside what the kernel's default loses and what random loss explains.

use super::policy::Start;
use crate::gain::KERNEL_DEFAULT;
use crate::step::chance::{FEWEST_LOSSY, allowed_share, lower_bound, upper_bound};

/// Standard errors that are chance.
const BY_CHANCE: f64 = 2.0;
/// Standard errors that are no chance, where something else shows the contrary.
pub(super) const SURE: f64 = 3.0;
/// Where so many of the default's flights lose something their share says nothing: only segments are compared.
pub(super) const BLIND: f64 = 0.9;
/// Part of all segments sent again that is harm where more than half of the flights say so, and how many times the
/// default's that must be: random loss may explain that each large flight loses something.
const FLOOD: f64 = 0.1;
const FLOOD_OF_DEFAULT: f64 = 2.0;

/// First flights: how many, how many of them lost anything, and segments sent and sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flights {
    pub flights: f64,
    pub lossy: f64,
    pub segments: f64,
    pub resent: f64,
}

impl Flights {
    /// Adds a round's to those of before, of which a part is kept.
    pub(super) fn after(self, before: Self, worn: f64) -> Self {
        let sum = |new: f64, old: f64| (old / worn).floor() + new;
        let flights = sum(self.flights, before.flights);
        Self {
            flights,
            lossy: sum(self.lossy, before.lossy).min(flights),
            segments: sum(self.segments, before.segments),
            resent: sum(self.resent, before.resent),
        }
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: Self) {
        self.flights += other.flights;
        self.lossy += other.lossy;
        self.segments += other.segments;
        self.resent += other.resent;
    }

    /// Share of the flights that lost anything.
    pub(super) fn share(self) -> f64 {
        self.lossy / self.flights.max(1.0)
    }

    /// Lower end of Wilson's interval of that share.
    pub(super) fn at_least(self) -> f64 {
        lower_bound(self.lossy, self.flights)
    }

    /// Upper end of Wilson's interval of that share.
    pub(super) fn at_most(self) -> f64 {
        upper_bound(self.lossy, self.flights)
    }

    /// Says whether clearly more of the flights lost anything than may. Where that bound says nothing, segments do.
    pub(super) fn too_many_lossy(self, bound: f64) -> bool {
        let is_blind = bound >= BLIND && self.segments > 0.0;
        self.lossy >= FEWEST_LOSSY && (self.at_least() > bound || is_blind)
    }

    /// Says whether more segments were sent again than does no harm, than as many flights with the kernel's default send
    /// again, and than chance adds. Unknown is much.
    pub(super) fn sends_much(self, default: Lost, law: &Start) -> bool {
        let harmless = (law.loss_segments * self.segments).max(default.most(self.flights));
        self.segments == 0.0 || self.resent > harmless
    }

    /// Says whether so much was lost that the path was full. One round is enough: where few connections start others
    /// follow only rounds later, and each of them would lose as much.
    pub(super) fn is_flood(self, default: Lost) -> bool {
        2.0 * self.lossy > self.flights
            && self.resent > FLOOD * self.segments
            && self.resent > FLOOD_OF_DEFAULT * default.share * default.of_lossy * self.flights
    }
}

/// Losses of flights: the share that lose anything, and the segments that one of these sends again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub share: f64,
    pub of_lossy: f64,
}

impl Lost {
    pub(super) const NOTHING: Self = Self {
        share: 0.0,
        of_lossy: 0.0,
    };

    /// Segments that so many flights send again at most, but for chance: whether one loses, and how much one does.
    fn most(self, flights: f64) -> f64 {
        let each = self.share * self.of_lossy;
        each * flights + BY_CHANCE * (each * (1.0 + self.of_lossy) * flights).sqrt()
    }
}

/// Share of flights that may lose anything: what random loss explains, or what others lose who start with less, with the
/// policy's bound on top.
pub(super) fn allowed_lossy(window: f64, default: f64, others: f64, law: &Start) -> f64 {
    let started = window.max(KERNEL_DEFAULT);
    let bounds = [law.loss_bound, law.loss_default_bound];
    let more = (others + allowed_share(started, 0.0, bounds)).min(1.0);
    allowed_share(started, default, bounds).max(more)
}

/// Says whether edges brake, now and then by chance, where this share of connections loses something.
#[must_use]
pub fn brakes(share: f64, brake_share: f64, brake_connections: f64) -> bool {
    share + BY_CHANCE * (share * (1.0 - share) / brake_connections).sqrt() >= brake_share
}
