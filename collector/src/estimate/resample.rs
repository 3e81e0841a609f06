//! Quantiles of weighted values and their intervals, by bootstrap over clusters, as the controller has them
//! (`controller/springtide/laws/resample.py`): with another source of chance, so that bounds differ by that.

/// Resamples.
pub(super) const DRAWS: usize = 200;
/// Slots from which on they are drawn whole; with fewer, connections are drawn. Fewer connections give no interval.
pub(super) const LEAST_CLUSTERS: usize = 5;
/// The level of the interval.
const LEVEL: f64 = 0.95;

/// An estimate between the bounds of its interval of 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower bound, not above the estimate.
    pub low: f64,
    /// Upper bound, not below it.
    pub high: f64,
}

impl Interval {
    /// Makes the interval of `values`: the estimate, then what it was in resamples. `values` is not empty.
    pub(super) fn of(values: &[f64]) -> Self {
        let estimate = values[0];
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (below, above) = (
                sorted[place.floor() as usize],
                sorted[place.ceil() as usize],
            );
            below + (above - below) * place.fract()
        };
        Self {
            estimate,
            low: at((1.0 - LEVEL) / 2.0).min(estimate),
            high: at(f64::midpoint(1.0, LEVEL)).max(estimate),
        }
    }

    /// Every bound through a function that grows.
    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            estimate: change(self.estimate),
            low: change(self.low),
            high: change(self.high),
        }
    }
}

/// Number of times that each observation counts: as they are, then in [`DRAWS`] resamples. `slots`
/// are the observations' times; those of one slot are drawn together where there are enough slots.
/// The same slots give the same draws.
pub(super) fn draws(slots: &[u64]) -> Vec<Vec<u32>> {
    let mut clusters = slots.to_vec();
    clusters.sort_unstable();
    clusters.dedup();
    let member: Vec<usize> = if clusters.len() < LEAST_CLUSTERS {
        (0..slots.len()).collect()
    } else {
        slots
            .iter()
            .map(|slot| clusters.partition_point(|one| one < slot))
            .collect()
    };
    let count = member.iter().max().map_or(0, |most| most + 1);
    let mut state = 17_u64;
    let mut random = |most: usize| {
        // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most as u64) as usize
    };
    let mut found = vec![vec![1; slots.len()]];
    for _ in 0..DRAWS {
        let mut times = vec![0; count];
        for _ in 0..count {
            times[random(count)] += 1;
        }
        found.push(member.iter().map(|&one| times[one]).collect());
    }
    found
}

/// The smallest value up to which at least that share of the weight lies; `values`, `weights` and `times` are of one length,
/// not empty.
pub(super) fn quantile(values: &[f64], weights: &[u32], times: &[u32], share: f64) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let weight = |at: usize| f64::from(weights[at]) * f64::from(times[at]);
    let total: f64 = order.iter().map(|&at| weight(at)).sum();
    let mut passed = 0.0;
    for &at in &order {
        passed += weight(at);
        // A rounding error in the share is not a connection.
        if passed >= total * share * (1.0 - 1e-12) && passed > 0.0 {
            return values[at];
        }
    }
    order.last().map_or(f64::NAN, |&at| values[at])
}

#[cfg(test)]
mod tests {
    use super::{DRAWS, Interval, draws, quantile};

    #[test]
    fn a_quantile_is_the_first_value_that_reaches_its_share() {
        let values = [4.0, 1.0, 3.0, 2.0];
        let once = [1; 4];
        for (share, wanted) in [
            (0.25, 1.0),
            (0.26, 2.0),
            (0.5, 2.0),
            (0.75, 3.0),
            (1.0, 4.0),
        ] {
            let found = quantile(&values, &once, &once, share);
            assert!((found - wanted).abs() < 1e-12, "{share}: {found}");
        }
        // 3 weighs as much as all others together, and 1 was not drawn.
        let found = quantile(&values, &[1, 1, 3, 1], &[1, 0, 1, 1], 0.5);
        assert!((found - 3.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn slots_are_drawn_together_where_there_are_enough() {
        let few = draws(&[1, 1, 2, 2]);
        assert_eq!(few.len(), 1 + DRAWS);
        assert!(few.iter().all(|times| times.iter().sum::<u32>() == 4));
        assert!(few.iter().any(|times| times[0] != times[1]));
        let many = draws(&[1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert!(
            many.iter()
                .all(|times| times[0] == times[1] && times.iter().sum::<u32>() == 10)
        );
        assert_eq!(few, draws(&[1, 1, 2, 2]));
    }

    #[test]
    fn an_interval_holds_its_estimate_and_nineteen_of_twenty_others() {
        let values: Vec<f64> = std::iter::once(500.0)
            .chain((0..=1000).map(f64::from))
            .collect();
        let found = Interval::of(&values);
        assert!((24.0..=26.0).contains(&found.low), "{found:?}");
        assert!((974.0..=976.0).contains(&found.high), "{found:?}");
        let outside = Interval::of(&[2000.0, 1.0, 2.0]);
        assert!((outside.high - 2000.0).abs() < 1e-9);
    }
}
