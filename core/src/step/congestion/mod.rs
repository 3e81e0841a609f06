//! BBR or the kernel's default for each client prefix of a PoP (the selective-BBR article).
//!
//! In the order in which they act:
//!
//! 1. **observe**: in which rounds of the window a prefix had enough evidence, and in which of them it was in its PoP's
//!    lowest share by delivery rate ([`history`]);
//! 2. **choose** those that are consistently low and change their state rarely. Never back-office traffic, nor a path with
//!    a low round-trip time and few retransmissions; not one that was given back or has changed too often lately; so many
//!    a round, so many in all ([`cap`]). A hashed share of the chosen is held out ([`holdout`]);
//! 3. **keep** them for a minimum stay, and then until they are low no more than any other;
//! 4. **give back** what BBR does not help, as others judge it who know all prefixes' growth.
//!
//! Where a PoP's newest round cannot be trusted, its last decisions stay in force. An operator's override precedes all of
//! it.

mod cap;
mod history;
mod holdout;
mod rows;

use super::columns::ColumnMut;
use super::damping::Damping;
use super::round::{Part, Paths, Row};
use super::words::reasons;

pub use self::rows::{Decided, Override, Seen, State};

/// The operator's settings for the choice.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Policy {
    /// Section `congestion`.
    pub congestion: Congestion,
    /// Section `congestion_damping`.
    pub congestion_damping: Damping,
    /// Names of the PoPs; the group of a path is a PoP's place here, from 1 on.
    pub pops: Vec<String>,
}

/// Section `congestion`; the meaning of each key stands in policy.yaml.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Congestion {
    pub window_rounds: u32,
    pub min_rounds: f64,
    pub enter_duty: f64,
    pub leave_duty: f64,
    pub max_flap_rate: f64,
    pub low_rtt_us: f64,
    pub few_retransmits: f64,
    pub min_stay_s: i64,
    pub max_new: usize,
    pub max_selected: usize,
    pub holdout_share: f64,
    pub give_back_hold_s: i64,
}

impl Congestion {
    /// Says whether an excess is as large as that of `min_rounds` low ones, one after the other.
    fn is_clear(&self, excess: f64) -> bool {
        excess >= (1.0 - self.enter_duty) * self.min_rounds - 1e-9
    }
}

/// Effect of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Action {
    None,
    Enter,
    Keep,
    Leave,
}

reasons! {
    /// Low often enough.
    ConsistentlyLow "consistently_low"
        "low ones exceed congestion.enter_duty of the newest rounds, as congestion.min_rounds do",
    /// Neither low enough nor recovered.
    HeldHysteresis "held_hysteresis"
        "between congestion.leave_duty and congestion.enter_duty nothing changes",
    /// Chosen not long ago.
    HeldMinStay "held_min_stay" "congestion.min_stay_s",
    /// Too few rounds were measured to change anything.
    HeldThinEvidence "held_thin_evidence" "congestion.min_rounds",
    /// Too little of the round arrived.
    HeldIncompleteInput "held_incomplete_input"
        "where the newest round cannot be trusted, the last decisions stay in force",
    /// No longer low.
    Recovered "recovered"
        "low ones fall short of congestion.leave_duty of the newest rounds, as clearly as it was chosen",
    /// No round was measured.
    NoEvidence "no_evidence" "nothing measured within congestion.window_rounds",
    /// BBR does not help.
    NotHelped "not_helped"
        "congestion.min_benefit: what it, or its PoP, grew beyond the held-out prefixes lies below",
    /// No clients.
    BackOffice "back_office" "BBR is for clients: the addresses are a PoP's own",
    /// The path is near and loses little.
    HealthyPath "healthy_path" "congestion.low_rtt_us and congestion.few_retransmits",
    /// It becomes low and ceases to be too often.
    Flapping "flapping" "congestion.max_flap_rate",
    /// There were too many changes.
    HeldDamping "held_damping"
        "congestion_damping.suppress_above, until congestion_damping.reuse_below",
    /// BBR did not help lately.
    GivenBack "given_back" "congestion.give_back_hold_s",
    /// There is no room.
    Capped "capped" "congestion.max_new and congestion.max_selected",
    /// Not low often enough.
    BelowDutyCycle "below_duty_cycle"
        "low ones exceed congestion.enter_duty of the newest rounds, as congestion.min_rounds do",
    /// Too few rounds were measured.
    ThinEvidence "thin_evidence" "congestion.min_rounds",
    /// An operator said so.
    Override "override" "an operator's override in the policy",
}

/// Algorithms of client prefixes, as a part of a decision.
#[derive(Debug)]
pub enum Algorithms {}

impl Part for Algorithms {
    type Policy = Policy;
    type Seen = Seen;
    type State = State;
    type Override = Override;
    type Decided = Decided;
    const ACTIONS: &'static [&'static str] = &["none", "enter", "keep", "leave"];
    const REASONS: &'static [(&'static str, &'static str)] = Reason::ALL;

    fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
        let room = cap::room(round, policy, paths);
        paths.write::<Self>(out, |path, row| {
            let pop = (paths.groups[path] as usize).checked_sub(1);
            let name = pop.and_then(|pop| policy.pops.get(pop));
            let case = Case::new(round, policy, row);
            case.step(room[path], name.map_or("", String::as_str))
        });
    }
}

/// One prefix in one round: what a step reads.
struct Case<'a> {
    round: i64,
    policy: &'a Policy,
    law: &'a Congestion,
    seen: &'a Seen,
    before: &'a State,
    word: Option<&'a Override>,
    is_frozen: bool,
    /// Columns that it will show, but for what is decided.
    history: Decided,
    penalty: f64,
    is_suppressed: bool,
}

impl<'a> Case<'a> {
    fn new(round: i64, policy: &'a Policy, row: &'a Row<Algorithms>) -> Self {
        let (law, damping, before) = (&policy.congestion, &policy.congestion_damping, &row.before);
        let penalty = damping.decayed(before.penalty, round - row.decided);
        Self {
            round,
            policy,
            law,
            seen: &row.seen,
            before,
            word: row.word.as_ref(),
            is_frozen: row.is_frozen,
            history: history::counted(&row.seen, law),
            penalty,
            is_suppressed: before.suppressed && penalty >= damping.reuse_below,
        }
    }

    fn is_chosen(&self) -> bool {
        self.before.selected_since > 0
    }

    fn is_enough(&self) -> bool {
        self.history.measured_rounds >= self.law.min_rounds
    }

    fn is_poor(&self) -> bool {
        self.is_enough() && self.law.is_clear(self.history.low_excess)
    }

    fn is_healthy(&self) -> bool {
        let (seen, law) = (self.seen, self.law);
        seen.rtt_us < law.low_rtt_us && seen.retransmit_ratio < law.few_retransmits
    }

    /// Says what the evidence asks for, and why: before the cap, and before an operator's word.
    fn asks(&self) -> (Action, Reason) {
        if self.is_chosen() {
            self.keep_or_leave()
        } else {
            self.enter()
        }
    }

    fn keep_or_leave(&self) -> (Action, Reason) {
        let is_recovered = self.is_enough() && self.law.is_clear(self.history.good_excess);
        let is_better = is_recovered || self.is_healthy();
        let is_young = self.round - self.before.selected_since < self.law.min_stay_s;
        let rules = [
            // Nothing in the whole window: what was known of it is too old to stand on.
            (
                self.history.measured_rounds == 0.0,
                Action::Leave,
                Reason::NoEvidence,
            ),
            (self.is_frozen, Action::Keep, Reason::HeldIncompleteInput),
            (self.seen.back_office, Action::Leave, Reason::BackOffice),
            (self.seen.not_helped, Action::Leave, Reason::NotHelped),
            (is_better && is_young, Action::Keep, Reason::HeldMinStay),
            (self.is_healthy(), Action::Leave, Reason::HealthyPath),
            (is_better, Action::Leave, Reason::Recovered),
            (!self.is_enough(), Action::Keep, Reason::HeldThinEvidence),
            (!self.is_poor(), Action::Keep, Reason::HeldHysteresis),
        ];
        let first = rules.into_iter().find(|(holds, ..)| *holds);
        first.map_or(
            (Action::Keep, Reason::ConsistentlyLow),
            |(_, action, reason)| (action, reason),
        )
    }

    fn enter(&self) -> (Action, Reason) {
        let is_flapping =
            self.history.state_changes > self.law.max_flap_rate * self.history.measured_rounds;
        let rules = [
            (!self.is_enough(), Reason::ThinEvidence),
            (!self.is_poor(), Reason::BelowDutyCycle),
            (self.seen.back_office, Reason::BackOffice),
            (self.is_healthy(), Reason::HealthyPath),
            (is_flapping, Reason::Flapping),
            (self.round < self.before.hold_until, Reason::GivenBack),
            (self.is_suppressed, Reason::HeldDamping),
            (self.is_frozen, Reason::HeldIncompleteInput),
        ];
        let first = rules.into_iter().find(|(holds, _)| *holds);
        first.map_or((Action::Enter, Reason::ConsistentlyLow), |(_, reason)| {
            (Action::None, reason)
        })
    }

    /// Decides: the state that this round leaves, and why. The cap has room for it or not; `pop` is its PoP's name.
    fn step(&self, has_room: bool, pop: &str) -> (State, Decided) {
        let (mut action, mut reason) = self.asks();
        if action == Action::Enter && !has_room {
            (action, reason) = (Action::None, Reason::Capped);
        }
        if let Some(word) = self.word {
            reason = Reason::Override;
            action = match (self.is_chosen(), word.bbr) {
                (false, false) => Action::None,
                (false, true) => Action::Enter,
                (true, true) => Action::Keep,
                (true, false) => Action::Leave,
            };
        }
        let after = self.after(action, reason, pop);
        let decided = Decided {
            action: f64::from(action as u8),
            algorithm: after.selected_since > 0 && !after.held_out,
            reason: f64::from(reason as u8),
            ..self.history.clone()
        };
        (after, decided)
    }

    fn after(&self, action: Action, reason: Reason, pop: &str) -> State {
        let (before, law, damping) = (self.before, self.law, &self.policy.congestion_damping);
        let (held_out, baseline_rate, selected_since) = match action {
            // The baseline is the newest rounds' rate, as is the rate compared with it: paths change by themselves
            // within hours.
            Action::Enter => (
                holdout::is_held_out(pop, self.seen, law.holdout_share),
                self.seen.recent_rate,
                self.round,
            ),
            Action::Keep => (before.held_out, before.baseline_rate, before.selected_since),
            Action::None | Action::Leave => (false, f64::NAN, 0),
        };
        let hold_until = match (action, reason) {
            (Action::Leave, Reason::NotHelped) => self.round + law.give_back_hold_s,
            _ => before.hold_until,
        };
        let waits = hold_until > self.round;
        let penalty = match action {
            Action::Enter | Action::Leave => damping.charged(self.penalty),
            Action::None | Action::Keep => self.penalty,
        };
        // As in routers: what is below half of the reuse limit is forgotten.
        let is_forgotten = penalty < damping.reuse_below / 2.0;
        // Those that were given back count on: else only the helped would say how prefixes differ.
        let counts = action == Action::Keep || waits;
        State {
            held_out: held_out && !self.word.is_some_and(|word| word.bbr),
            baseline_rate,
            selected_since,
            hold_until: if waits { hold_until } else { 0 },
            penalty: if is_forgotten { 0.0 } else { penalty },
            suppressed: self.is_suppressed || penalty > damping.suppress_above,
            trial_growth: if counts {
                self.seen.trial_growth
            } else {
                f64::NAN
            },
        }
    }
}
