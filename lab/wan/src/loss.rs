//! Packets that a path loses.

use rand::Rng;
use serde::Deserialize;

use crate::units::Probability;

/// The loss process of a path, as the configuration file gives it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LossModel {
    /// Every packet is lost on its own with this probability.
    Bernoulli(Probability),
    /// Loss comes in bursts: a Markov chain of a good and a bad state, moved once a packet (Elliott, 1963).
    GilbertElliott(GilbertElliott),
}

/// The four probabilities of the chain; the stationary share of the bad state is `enter_bad / (enter_bad + leave_bad)`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    pub enter_bad: Probability,
    pub leave_bad: Probability,
    #[serde(default)]
    pub loss_good: Probability,
    #[serde(default = "Probability::certain")]
    pub loss_bad: Probability,
}

/// A loss process in motion.
#[derive(Debug)]
pub struct Loss {
    model: Option<LossModel>,
    bad: bool,
}

impl Loss {
    /// `None` loses nothing. A Gilbert-Elliott chain starts in the good state.
    pub fn new(model: Option<LossModel>) -> Self {
        Self { model, bad: false }
    }

    /// Whether the next packet is lost.
    pub fn next(&mut self, rng: &mut impl Rng) -> bool {
        match self.model {
            None => false,
            Some(LossModel::Bernoulli(probability)) => rng.random_bool(probability.get()),
            Some(LossModel::GilbertElliott(chain)) => {
                let turn = if self.bad {
                    chain.leave_bad
                } else {
                    chain.enter_bad
                };
                self.bad ^= rng.random_bool(turn.get());
                rng.random_bool(
                    if self.bad {
                        chain.loss_bad
                    } else {
                        chain.loss_good
                    }
                    .get(),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const PACKETS: u32 = 40_000;

    fn losses(model: Option<LossModel>, seed: u64) -> Vec<bool> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut loss = Loss::new(model);
        (0..PACKETS).map(|_| loss.next(&mut rng)).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / f64::from(PACKETS)
    }

    fn chain(enter_bad: f64, leave_bad: f64) -> LossModel {
        LossModel::GilbertElliott(GilbertElliott {
            enter_bad: Probability::new(enter_bad).unwrap(),
            leave_bad: Probability::new(leave_bad).unwrap(),
            loss_good: Probability::default(),
            loss_bad: Probability::certain(),
        })
    }

    #[test]
    fn nothing_and_everything_are_exact() {
        assert_eq!(share(&losses(None, 1)), 0.0);
        assert_eq!(
            share(&losses(
                Some(LossModel::Bernoulli(Probability::default())),
                1
            )),
            0.0
        );
        assert_eq!(
            share(&losses(
                Some(LossModel::Bernoulli(Probability::certain())),
                1
            )),
            1.0
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Six standard deviations of a binomial: one of the cases is beyond them with odds of 2e-7.
        #[test]
        fn bernoulli_loses_its_share(p in 0.01..0.5_f64, seed: u64) {
            let found = share(&losses(Some(LossModel::Bernoulli(Probability::new(p).unwrap())), seed));
            let sigma = (p * (1.0 - p) / f64::from(PACKETS)).sqrt();
            prop_assert!((found - p).abs() < 6.0 * sigma, "{found} for {p}");
        }

        /// A burst ends with probability `leave_bad` at each packet, so bursts last its inverse on average; and
        /// the share of lost packets is that of the bad state. One of the cases is outside with odds of 3e-7, by
        /// Chernoff's bound for the chain that has the fewest bursts.
        #[test]
        fn gilbert_elliott_has_its_burst_length_and_share(enter in 0.02..0.2_f64, leave in 0.1..0.6_f64, seed: u64) {
            let lost = losses(Some(chain(enter, leave)), seed);
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            let length = lost.iter().filter(|lost| **lost).count() as f64 / bursts;
            prop_assert!((length * leave - 1.0).abs() < 0.25, "bursts of {length} for {leave}");
            let stationary = enter / (enter + leave);
            prop_assert!((share(&lost) / stationary - 1.0).abs() < 0.3);
        }

        #[test]
        fn the_same_seed_loses_the_same_packets(seed: u64) {
            prop_assert_eq!(losses(Some(chain(0.05, 0.3)), seed), losses(Some(chain(0.05, 0.3)), seed));
        }
    }
}
