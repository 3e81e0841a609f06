//! Policy: the keys of policy.yaml that a step reads. The controller holds their defaults, ranges and sources.

use super::rules::Rules;

/// What the operator asks of a step.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Policy {
    /// Section `start`.
    pub start: Start,
    /// Section `damping`.
    pub damping: Damping,
    /// Section `enforce`.
    pub enforce: Enforce,
    /// Rules in force; a bench leaves some out, by their names.
    #[serde(default, rename = "without")]
    pub rules: Rules,
}

/// Section `start`; the meaning of each key stands in policy.yaml.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Start {
    pub careful: bool,
    pub min_connections: f64,
    pub history_weight: f64,
    pub collapse: f64,
    pub pace_gain: f64,
    pub headroom: f64,
    pub cmax: f64,
    pub ttl_s: i64,
    pub hysteresis: f64,
    pub duty_rounds: f64,
    pub trial_permille: f64,
    pub trial_flights: f64,
    pub trial_rounds: f64,
    pub step: f64,
    pub step_gain: f64,
    pub slower: f64,
    pub loss_bound: f64,
    pub loss_segments: f64,
    pub loss_default_bound: f64,
    pub cut: f64,
    pub hold_s: i64,
    pub group_units: f64,
    pub group_quantile: f64,
}

/// Section `damping`.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Damping {
    pub half_life_s: f64,
    pub suppress_above: f64,
    pub reuse_below: f64,
    pub max_suppress_s: f64,
}

/// Section `enforce`: when edges brake, and how many connections a trial may have.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Enforce {
    pub brake_lost_permille: f64,
    pub brake_connections: f64,
    pub max_trial_permille: f64,
}

impl Damping {
    /// Lets a penalty decay (RFC 2439); a clock that went back leaves it as it is.
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
