//! Policy: the keys of policy.yaml that a step reads. The controller holds their defaults, ranges and sources.

use super::rules::Rules;
use crate::step::damping::Damping;

/// The operator's settings for a step.
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

/// Section `enforce`: when edges brake, and how many connections a trial may have.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Enforce {
    pub brake_lost_permille: f64,
    pub brake_connections: f64,
    pub max_trial_permille: f64,
}
