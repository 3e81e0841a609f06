//! Output of a round: the state of the next one, and the decision with its reason.

use super::ceiling::Ceiling;
use super::falls::Move;
use super::losses::Flights;
use super::reason::{Action, Reason};
use super::rises::Tried;
use super::round::Override;
use super::rules::Rule;
use super::state::State;
use super::trial::Trial;
use super::values::Values;
use super::{BESIDE, Case, Findings, Outcome};

/// Results of the rules for a path.
pub(super) struct Next {
    pub moved: Move,
    pub tried: Tried,
    pub ceiling: Ceiling,
    /// Rounds with evidence.
    pub rounds: f64,
    /// The evidence has not expired.
    pub is_living: bool,
    /// Others are on the path.
    pub is_shared: bool,
}

impl Next {
    /// Leaves the state of the next round.
    pub(super) fn leave(
        &self,
        case: &Case,
        found: &Findings,
        word: Option<&Override>,
        after: &mut State,
    ) -> Outcome {
        let (law, before, moved) = (&case.policy.start, case.before, &self.moved);
        let value = match word {
            Some(word) => word.values(case),
            None if self.is_living => moved.value,
            None => Values::NOTHING,
        };
        let on_trial = if self.is_living && word.is_none() {
            self.tried.values
        } else {
            Values::NOTHING
        };
        after.set_used(value);
        after.set_tried(on_trial);
        self.leave_trial(case, found, after);
        self.leave_counts(case, found, value, after);
        self.leave_ceiling(case, after);

        let is_lowered = case.in_use.is_some() && value.below(case.in_use, 0.0);
        let damping = &case.policy.damping;
        after.penalty = case.penalty;
        if is_lowered && self.is_living && word.is_none() {
            after.penalty = damping.charged(case.penalty);
        }
        after.suppressed = case.is_suppressed || after.penalty > damping.suppress_above;
        after.overridden = word.is_some();
        after.was_cut = moved.is_cut || before.was_cut && !moved.is_changed && value.is_some();
        let was_learnt = before.learnt_rtt_us > 0.0;
        if moved.is_changed && value.is_some() || !was_learnt {
            after.learnt_rtt_us = case.rtt_us;
        }
        after.measured_rounds = if self.is_living { self.rounds } else { 0.0 };

        let acted = before.window > 0.0 || before.trial_permille > 0.0;
        Outcome {
            action: match (value.is_some(), on_trial.is_some(), acted) {
                (true, _, _) => Action::Set,
                (false, true, _) => Action::Try,
                (false, false, true) => Action::Withdraw,
                (false, false, false) => Action::None,
            },
            reason: if word.is_some() {
                Reason::Override
            } else {
                self.reason(case, found, value, on_trial, acted)
            },
            proved_share: found.proved.share,
            proved_path: found.proved.path,
            expires_at: if after.last_evidence > 0 {
                after.last_evidence + law.ttl_s
            } else {
                0
            },
        }
    }

    /// Writes how many connections are on trial, and of what. Others start with the default beside
    /// what is in use, where only they show what it loses.
    fn leave_trial(&self, case: &Case, found: &Findings, after: &mut State) {
        let (moved, tried, before) = (&self.moved, &self.tried, case.before);
        let (is_used, is_tried) = (after.window > 0.0, after.trial_window > 0.0);
        let leans = found.counts.leans && is_used && !case.is_overridden;
        let goes_on = moved.trial == Trial::Runs;
        let permille = if tried.begins || leans && !goes_on {
            part(case)
        } else {
            before.trial_permille
        };
        after.trial_permille = permille.min(match (is_tried, leans) {
            (true, _) => case.policy.enforce.max_trial_permille,
            (false, true) => BESIDE,
            (false, false) => 0.0,
        });
        let is_promoted = matches!(moved.trial, Trial::Promoted(_));
        let of_group = if is_promoted {
            before.trial_borrowed
        } else {
            before.borrowed
        };
        after.borrowed = of_group && is_used && !case.is_overridden;
        after.trial_borrowed = tried.is_borrowed && is_tried;
        after.trial_step = tried.is_step && is_tried;
    }

    /// Other values have other first flights.
    fn leave_counts(&self, case: &Case, found: &Findings, value: Values, after: &mut State) {
        if value != case.before.used() {
            after.set_used_flights(Flights::default());
        }
        if self.moved.trial != Trial::Runs || after.trial_window != case.before.trial_window {
            after.set_trial_flights(Flights::default());
            after.trial_rounds = 0.0;
            (after.trial_log2_time, after.trial_times) = (0.0, 0.0);
        }
        // Its times are of the path as it was.
        if found.proved.fell {
            after.default_timed_at = 0;
        }
        if !self.is_shared {
            after.shared_at = 0;
        }
    }

    /// A path that nobody connects to any more leaves nothing for good: its ceiling ends a hold after the hold.
    fn leave_ceiling(&self, case: &Case, after: &mut State) {
        let is_gone = !self.is_living && case.round >= self.ceiling.until + self.ceiling.hold_s;
        let ceiling = if is_gone { Ceiling::NONE } else { self.ceiling };
        after.harmful_rate = ceiling.rate;
        after.hold_until = ceiling.until;
        after.hold_s = ceiling.hold_s;
        after.harmful_share = ceiling.asked;
    }

    fn reason(
        &self,
        case: &Case,
        found: &Findings,
        value: Values,
        on_trial: Values,
        acted: bool,
    ) -> Reason {
        if acted && !self.is_living {
            return Reason::Expired;
        }
        if case.is_frozen {
            return Reason::HeldIncompleteInput;
        }
        let reason = self.tried.reason.unwrap_or(self.moved.reason);
        if !value.is_some() && on_trial.is_some() && self.moved.trial == Trial::Runs {
            return Reason::OnTrial;
        }
        if value.is_some() || on_trial.is_some() || reason != Reason::NoEvidence {
            return reason;
        }
        if self.rounds > 0.0 && self.rounds < case.policy.start.duty_rounds {
            return Reason::BelowDutyCycle;
        }
        if case.seen.connections > 0.0 && found.proved.share.is_nan() {
            return Reason::ThinEvidence;
        }
        reason
    }
}

/// Connections on trial, per thousand: as many as show in a round or two what is asked of a trial. Where connections
/// are few it is a large part, at most what edges allow; it costs few.
fn part(case: &Case) -> f64 {
    let (law, most) = (&case.policy.start, case.policy.enforce.max_trial_permille);
    if !case.on(Rule::MoreOfFew) {
        return law.trial_permille.min(most);
    }
    let wanted = (1000.0 * law.trial_flights / case.seen.connections.max(1.0)).floor();
    wanted.clamp(law.trial_permille.min(most), most)
}
