//! Chance: what random loss explains, and how sure a share of few connections is.

use crate::gain::KERNEL_DEFAULT;

/// Quantile of the normal distribution that is 99.9 % on one side: a path is judged 288 times a day.
const Z: f64 = 3.09;
/// One or two that lost something prove nothing, whatever the statistic gives for so few.
pub(super) const FEWEST_LOSSY: f64 = 3.0;
/// Window that `loss_bound` refers to, segments. Below twice the default the bound falls no further: a connection that
/// started with ten sends up to twenty.
const BOUND_AT: f64 = 100.0;
const BOUND_FROM: f64 = 20.0;

/// Lower end of the share lossy / count: Wilson's score interval (J. Am. Stat. Assoc. 22, 1927); 0 of none.
pub(super) fn lower_bound(lossy: f64, count: f64) -> f64 {
    let count = count.max(1.0);
    let share = (lossy / count).min(1.0);
    let spread = Z * (share * (1.0 - share) / count + Z.powi(2) / (4.0 * count.powi(2))).sqrt();
    ((share + Z.powi(2) / (2.0 * count) - spread) / (1.0 + Z.powi(2) / count)).max(0.0)
}

/// Upper end of the same interval.
pub(super) fn upper_bound(lossy: f64, count: f64) -> f64 {
    1.0 - lower_bound(count - lossy, count)
}

/// Share of connections that may lose anything where they start with `started` segments: what random loss explains (the
/// policy's `loss_bound`) or, where it is more, what the path loses with the kernel's default, up to
/// `loss_default_bound`.
pub(super) fn allowed_share(started: f64, default: f64, [bound, default_bound]: [f64; 2]) -> f64 {
    let by_default = 1.0 - (1.0 - bound).powf(KERNEL_DEFAULT / BOUND_AT);
    if started <= KERNEL_DEFAULT {
        return by_default.max(default_bound);
    }
    let share = by_default.max(default.min(default_bound));
    1.0 - (1.0 - share).powf(started.max(BOUND_FROM) / KERNEL_DEFAULT)
}
