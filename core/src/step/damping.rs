//! Flap damping of a value that is published round by round (RFC 2439).

/// Section `damping`, or `congestion_damping`.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Damping {
    pub half_life_s: f64,
    pub suppress_above: f64,
    pub reuse_below: f64,
    pub max_suppress_s: f64,
}

impl Damping {
    /// Lets a penalty decay; a clock that went back leaves it as it is.
    pub(super) fn decayed(&self, penalty: f64, elapsed_s: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "seconds")]
        let elapsed_s = elapsed_s.max(0) as f64;
        penalty * 0.5_f64.powf(elapsed_s / self.half_life_s)
    }

    /// Adds one change to a penalty. Its ceiling decays to `reuse_below` in `max_suppress_s`: nothing is held longer.
    pub(super) fn charged(&self, penalty: f64) -> f64 {
        let half_lives = (self.max_suppress_s / self.half_life_s).min(50.0);
        (penalty + 1.0).min(self.reuse_below * half_lives.exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::Damping;

    #[test]
    fn the_penalty_halves_and_its_ceiling_bounds_how_long_it_holds() {
        let law = Damping {
            half_life_s: 1800.0,
            suppress_above: 2.5,
            reuse_below: 0.75,
            max_suppress_s: 3600.0,
        };
        let penalty = (0..1000).fold(0.0, |penalty, _| law.charged(penalty));
        assert!(penalty > law.suppress_above);
        assert!((law.decayed(penalty, 1800) - penalty / 2.0).abs() < 1e-9);
        assert!(law.decayed(penalty, 3599) > law.reuse_below);
        assert!(law.decayed(penalty, 3601) < law.reuse_below);
        assert_eq!(law.decayed(penalty, -5).to_bits(), penalty.to_bits());
    }
}
