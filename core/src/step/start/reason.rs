//! Reasons: which rule made a decision what it is, and what would change it.

use crate::step::words::reasons;

/// Effect of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Nothing.
    None,
    /// Gives values to a share of the connections only.
    Try,
    /// Gives values to all.
    Set,
    /// Takes back what was given.
    Withdraw,
}

impl Action {
    /// Name of each, in the order of their numbers.
    pub const ALL: &'static [&'static str] = &["none", "try", "set", "withdraw"];
}

reasons! {
    /// Nothing was seen.
    NoEvidence "no_evidence" "only what was seen is learnt from",
    /// Too little was.
    ThinEvidence "thin_evidence" "start.min_connections, start.group_units",
    /// Evidence is there for too few rounds.
    BelowDutyCycle "below_duty_cycle" "start.duty_rounds",
    /// The values in use are those proved.
    Proved "proved" "what the path has proved, start.hysteresis",
    /// The values in use stay without new evidence.
    HeldThinEvidence "held_thin_evidence" "start.ttl_s",
    /// Too little of the round arrived.
    HeldIncompleteInput "held_incomplete_input"
        "completeness: too little of the round arrived, the last decisions stay in force",
    /// A ceiling holds a rise back.
    HeldCeiling "held_ceiling" "a ceiling since harm or a trial in vain: start.hold_s",
    /// Damping does.
    HeldDamping "held_damping" "damping.suppress_above, until damping.reuse_below",
    /// Less is proved.
    Lowered "lowered" "what the path proves now, start.hysteresis",
    /// Far less is.
    Collapsed "collapsed" "start.collapse",
    /// First flights lose too much.
    Loss "loss" "start.loss_bound: more first flights lost something than random loss explains, or than lately",
    /// An edge braked.
    Braked "braked" "an edge's brake: enforce.brake_lost_permille, enforce.brake_connections",
    /// The round trip is another.
    RoundTripChanged "round_trip_changed" "start.careful (RFC 9959)",
    /// The evidence is too old.
    Expired "expired" "start.ttl_s",
    /// The proved values are on trial.
    TrialProved "trial_proved" "start.trial_permille: nothing rises before it was judged on a share of the connections",
    /// A step beyond what was reached is.
    TrialStep "trial_step" "start.step, on trial",
    /// The group's low quantile is.
    TrialBorrowed "trial_borrowed" "start.group_quantile of its group, on trial",
    /// A trial goes on, and nothing is in use.
    OnTrial "on_trial" "start.trial_flights, start.trial_rounds",
    /// A trial went well.
    Promoted "promoted" "a trial that was judged good",
    /// A trial of what was borrowed did.
    PromotedBorrowed "promoted_borrowed" "a trial of the group that was judged good",
    /// A trial lost too much.
    TrialLoss "trial_loss" "start.loss_bound on trial, then start.hold_s",
    /// A trial was slower.
    TrialSlower "trial_slower" "start.slower on trial, then start.hold_s",
    /// A trial was no faster.
    TrialNoGain "trial_no_gain" "start.step_gain on trial, then start.hold_s",
    /// The evidence fell below what was on trial.
    TrialOvertaken "trial_overtaken" "start.collapse: the evidence fell below what was on trial",
    /// An operator said so.
    Override "override" "an operator's override in the policy",
}
