//! Groups: paths that resemble each other lend each other what they have proved.
//!
//! The model is normal with normal means (empirical Bayes). A path's own estimate x has the sampling variance v. The
//! means of a group's paths are spread around its mean with the variance between them, by the moments of DerSimonian and
//! Laird (Controlled Clinical Trials 7, 1986). The shrunken estimate is w x + (1 - w) mean with w = between / (between +
//! v): much evidence keeps its own, little is drawn to the group.

use super::losses::Flights;

/// A path's own estimate, log2 of bytes/s, and its sampling variance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub own: f64,
    pub variance: f64,
}

/// A group's paths that have an estimate of their own, and what its borrowers have on trial or in use together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// How many paths have an estimate.
    pub paths: f64,
    /// Their weighted mean.
    mean: f64,
    /// Variance between them.
    between: f64,
    /// Low quantile of them, log2 of bytes/s.
    pub low: f64,
    /// First flights of all that borrow.
    pub borrowers: Flights,
}

impl Group {
    /// A group without paths.
    pub(super) const EMPTY: Self = Self {
        paths: 0.0,
        mean: f64::NAN,
        between: f64::NAN,
        low: f64::NAN,
        borrowers: Flights {
            flights: 0.0,
            lossy: 0.0,
            segments: 0.0,
            resent: 0.0,
        },
    };

    /// Makes a group of its paths' estimates, which it sorts.
    pub(super) fn of(estimates: &mut [Estimate], quantile: f64, borrowers: Flights) -> Self {
        if estimates.is_empty() {
            return Self {
                borrowers,
                ..Self::EMPTY
            };
        }
        #[expect(clippy::cast_precision_loss, reason = "no fleet has 2^52 paths")]
        let paths = estimates.len() as f64;
        let sum = |weight: &dyn Fn(&Estimate) -> f64| estimates.iter().map(weight).sum::<f64>();
        let inverse = |one: &Estimate| 1.0 / one.variance.max(1e-6);
        let total = sum(&inverse);
        let fixed = sum(&|one| inverse(one) * one.own) / total;
        let squares = sum(&|one| inverse(one).powi(2));
        let spread = sum(&|one| inverse(one) * (one.own - fixed).powi(2));
        let between = if estimates.len() < 2 {
            0.0
        } else {
            ((spread - (paths - 1.0)) / (total - squares / total)).max(0.0)
        };
        // The mean of paths that differ by more than their own errors: none counts for many.
        let weight = |one: &Estimate| 1.0 / (one.variance.max(1e-6) + between);
        let mean = sum(&|one| weight(one) * one.own) / sum(&weight);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a quantile is within 0 and 1"
        )]
        let at = (quantile * (paths - 1.0)).floor() as usize;
        let (_, low, _) =
            estimates.select_nth_unstable_by(at, |one, other| one.own.total_cmp(&other.own));
        Self {
            paths,
            mean,
            between,
            low: low.own,
            borrowers,
        }
    }

    /// Draws an estimate to the group's mean; gives the weight of its own evidence too. Never above its own: what was not
    /// seen here must not be spent here. Groups of fewer than `least` paths shrink nothing.
    pub(super) fn shrink(&self, estimate: Estimate, least: f64) -> (f64, f64) {
        if self.paths < least {
            return (estimate.own, 1.0);
        }
        let weight = self.between / (self.between + estimate.variance);
        let drawn = weight * estimate.own + (1.0 - weight) * self.mean;
        (drawn.min(estimate.own), weight)
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Group};
    use crate::step::losses::Flights;

    fn group(own: &[f64]) -> Group {
        let mut estimates: Vec<Estimate> = own
            .iter()
            .zip([0.01, 0.01, 0.01, 1.0])
            .map(|(&own, variance)| Estimate { own, variance })
            .collect();
        Group::of(&mut estimates, 0.25, Flights::default())
    }

    #[test]
    fn little_evidence_is_drawn_to_the_group() {
        let group = group(&[20.0, 20.2, 19.8, 23.0]);
        let of = |own, variance| group.shrink(Estimate { own, variance }, 3.0);
        assert!(of(23.0, 1.0).1 < of(20.0, 0.01).1);
        assert!((20.0..22.0).contains(&of(23.0, 1.0).0));
        assert!((group.low - 19.8).abs() < 1e-9);
    }

    #[test]
    fn an_estimate_is_never_raised() {
        let group = group(&[20.0, 20.2, 19.8, 18.0]);
        for (own, variance) in [(20.0, 0.01), (18.0, 1.0), (17.0, 4.0)] {
            assert!(group.shrink(Estimate { own, variance }, 3.0).0 <= own);
        }
    }

    #[test]
    fn a_group_of_few_lends_nothing() {
        let own = Estimate {
            own: 23.0,
            variance: 1.0,
        };
        let (drawn, weight) = group(&[20.0, 20.2]).shrink(own, 3.0);
        assert!((drawn - 23.0).abs() < 1e-9 && (weight - 1.0).abs() < 1e-9);
    }
}
