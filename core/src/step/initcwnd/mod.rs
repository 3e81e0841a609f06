//! A window for edges that only have routes: the initial congestion window of an ordered pair of PoPs (Riptide III-B).
//!
//! In the order in which they act:
//!
//! 1. **observe**: the combined window of the connections that earned it, given enough of them;
//! 2. **smooth** with the last value: a rise slowly, a fall at once; **bound** by cmin and cmax. That is the history of
//!    the next round. It is bounded because Riptide III-B stores the bounded value: one of 1,000 segments behind a cmax
//!    of 100 would hold a collapsed path at cmax for many rounds. Without evidence the last value stays until `ttl_s`
//!    after it;
//! 3. **limit** what is made of it: half of it where the profile is careful, the receiver's window, and the loss guard's
//!    ceiling ([`guard`]): where loss was seen the window falls at once, and rises by judged steps only;
//! 4. **publish** calmly: a pair that has rarely been measured gets nothing yet, a small change is not worth a route, and
//!    one that keeps changing may only fall. A pair whose turn it is to be off, in an experiment, gets nothing, whatever
//!    was learnt. An operator's override precedes all of it.

mod guard;
mod rows;

use super::columns::ColumnMut;
use super::damping::Damping;
use super::round::{Part, Paths, Row};
use super::words::{Action, reasons};

use self::guard::Judged;
pub use self::rows::{Decided, Override, Seen, State};

/// The operator's settings for windows.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Policy {
    /// Section `initcwnd`.
    pub initcwnd: Initcwnd,
    /// Section `damping`.
    pub damping: Damping,
}

/// Section `initcwnd`; the meaning of each key stands in policy.yaml.
#[derive(Clone, Debug, serde::Deserialize)]
#[expect(missing_docs, reason = "policy.yaml says what they mean")]
pub struct Initcwnd {
    pub history_weight: f64,
    pub falling_history_weight: f64,
    pub collapse: f64,
    pub cmin: f64,
    pub cmax: f64,
    pub min_connections: f64,
    pub ttl_s: i64,
    pub careful: bool,
    pub receiver_cap: bool,
    pub loss_bound: f64,
    pub loss_default_bound: f64,
    pub loss_min_connections: f64,
    pub loss_step: f64,
    pub loss_step_rounds: f64,
    pub loss_cut: f64,
    pub loss_hold_s: i64,
    pub hysteresis: f64,
    pub duty_rounds: f64,
}

reasons! {
    /// The smoothed value.
    Learnt "learnt" "the earned windows of the round, smoothed, inside initcwnd.cmin and initcwnd.cmax",
    /// It is above cmax.
    ClampedToCmax "clamped_to_cmax" "initcwnd.cmax",
    /// It is below cmin.
    ClampedToCmin "clamped_to_cmin" "initcwnd.cmin",
    /// Half of it.
    Careful "careful" "initcwnd.careful: half of what was learnt",
    /// The receiver's window holds no more.
    ReceiverLimited "receiver_limited" "initcwnd.receiver_cap",
    /// Harm.
    LossGuard "loss_guard" "initcwnd.loss_bound: more first flights lost something than random loss explains",
    /// A ceiling.
    LossGuardHold "loss_guard_hold"
        "a ceiling since loss was seen: initcwnd.loss_min_connections, initcwnd.loss_hold_s",
    /// A step beyond what was judged clean.
    LossGuardStep "loss_guard_step" "initcwnd.loss_step below a ceiling",
    /// The change is too small.
    HeldHysteresis "held_hysteresis" "initcwnd.hysteresis",
    /// There were too many changes.
    HeldDamping "held_damping" "damping.suppress_above, until damping.reuse_below",
    /// Too few connections earned their window.
    HeldThinEvidence "held_thin_evidence" "initcwnd.min_connections, then initcwnd.ttl_s",
    /// None did.
    HeldNoEvidence "held_no_evidence" "initcwnd.ttl_s",
    /// Too little of the round arrived.
    HeldIncompleteInput "held_incomplete_input"
        "completeness: too little of the round arrived, the last decisions stay in force",
    /// The pair was rarely measured.
    BelowDutyCycle "below_duty_cycle" "initcwnd.duty_rounds within initcwnd.duty_window_rounds",
    /// An operator said so.
    Override "override" "an operator's override in the policy",
    /// The evidence is too old.
    Expired "expired" "initcwnd.ttl_s",
    /// Too few connections earned their window, ever.
    ThinEvidence "thin_evidence" "initcwnd.min_connections",
    /// None ever did.
    NoEvidence "no_evidence" "only connections that earned their window count",
    /// The pair's turn is to be off.
    Switchback "switchback" "experiment.kind: switchback, which turns pairs on and off to measure the benefit",
    /// All pairs are off.
    DisableTest "disable_test" "experiment.disable_every_days: all pairs are off for experiment.disable_for_s",
}

/// Windows of pairs, as a part of a decision.
#[derive(Debug)]
pub enum Windows {}

impl Part for Windows {
    type Policy = Policy;
    type Seen = Seen;
    type State = State;
    type Override = Override;
    type Decided = Decided;
    const ACTIONS: &'static [&'static str] = Action::NAMES;
    const REASONS: &'static [(&'static str, &'static str)] = Reason::ALL;

    fn decide(round: i64, policy: &Policy, paths: &Paths<'_>, out: &mut [ColumnMut<'_>]) {
        paths.write::<Self>(out, |_, row| Case::new(round, policy, row).step());
    }
}

/// One pair in one round: what a step reads.
struct Case<'a> {
    round: i64,
    policy: &'a Policy,
    law: &'a Initcwnd,
    seen: &'a Seen,
    before: &'a State,
    word: Option<&'a Override>,
    is_frozen: bool,
    /// Window in use, within the policy's bounds of now: these hold whatever else would keep a value as it is.
    current: f64,
    /// Last smoothed value, unless its evidence is too old; else NaN.
    alive: f64,
    /// The round's window; NaN without sufficient evidence.
    observed: f64,
    penalty: f64,
    is_suppressed: bool,
}

/// A window, and why.
#[derive(Clone, Copy)]
struct Found {
    window: f64,
    reason: Reason,
}

impl<'a> Case<'a> {
    fn new(round: i64, policy: &'a Policy, row: &'a Row<Windows>) -> Self {
        let (law, seen, before) = (&policy.initcwnd, &row.seen, &row.before);
        let is_sufficient = !row.is_frozen
            && seen.connections_earned >= law.min_connections
            && seen.window.is_finite()
            && seen.window > 0.0;
        let is_alive = before.last_evidence > 0 && round < before.last_evidence + law.ttl_s;
        let penalty = policy.damping.decayed(before.penalty, round - row.decided);
        Self {
            round,
            policy,
            law,
            seen,
            before,
            word: row.word.as_ref(),
            is_frozen: row.is_frozen,
            current: law.bound(before.initcwnd),
            alive: if is_alive {
                before.smoothed_cwnd
            } else {
                f64::NAN
            },
            observed: if is_sufficient { seen.window } else { f64::NAN },
            penalty,
            is_suppressed: before.suppressed && penalty >= policy.damping.reuse_below,
        }
    }

    fn is_measured(&self) -> bool {
        self.observed.is_finite()
    }

    fn is_used(&self) -> bool {
        self.before.initcwnd > 0.0
    }

    /// Decides the pair's window: the state that this round leaves, and why.
    fn step(&self) -> (State, Decided) {
        let mut after = self.before.clone();
        let judged = guard::judge(self, &mut after);
        let learnt = self.learn();
        let limited = self.guarded(self.limit(learnt), &judged, &after);
        let rounds = self.before.measured_rounds + f64::from(u8::from(self.is_measured()));
        let found = self.publish(learnt, limited, &judged, rounds);

        let in_use = self.before.initcwnd;
        // Steps are few by themselves: each needs a judgement, and what they end in a hold that grows.
        let is_step = matches!(found.reason, Reason::LossGuardStep) && found.window > in_use;
        let is_change = self.is_used() && found.window > 0.0 && found.window != in_use && !is_step;
        let damping = &self.policy.damping;
        after.penalty = if is_change {
            damping.charged(self.penalty)
        } else {
            self.penalty
        };
        after.suppressed =
            self.is_suppressed || (is_change && after.penalty > damping.suppress_above);
        if found.window != in_use {
            // Another window is another trial.
            (
                after.trial_rounds,
                after.trial_young,
                after.trial_young_lossy,
            ) = (0.0, 0.0, 0.0);
        }
        after.initcwnd = found.window;
        after.smoothed_cwnd = learnt.window;
        after.measured_rounds = rounds;
        if self.is_measured() {
            after.last_evidence = self.round;
        }
        let decided = self.decided(found, limited, &judged, &after);
        (after, decided)
    }

    fn decided(&self, found: Found, limited: Found, judged: &Judged, after: &State) -> Decided {
        let action = Action::of(self.before.initcwnd, found.window);
        Decided {
            action: f64::from(action as u8),
            reason: f64::from(found.reason as u8),
            observed_cwnd: if self.is_measured() {
                self.observed
            } else {
                self.seen.mean_cwnd
            },
            previous_initcwnd: self.before.initcwnd,
            previous_cwnd: self.alive,
            target_cwnd: limited.window,
            ceiling_initcwnd: judged.ceiling.unwrap_or(0.0),
            expires_at: match after.last_evidence {
                0 => 0,
                seen => seen + self.law.ttl_s,
            },
        }
    }

    /// Smooths and bounds: the history for the next round (NaN is none), and why it is what it is.
    fn learn(&self) -> Found {
        let law = self.law;
        if self.is_measured() {
            let smoothed = law.smoothed(self.observed, self.alive);
            let reason = if smoothed > law.cmax {
                Reason::ClampedToCmax
            } else if smoothed < law.cmin {
                Reason::ClampedToCmin
            } else {
                Reason::Learnt
            };
            return Found {
                window: law.bound(smoothed),
                reason,
            };
        }
        let has_some = self.seen.connections_earned > 0.0;
        let reason = match (self.alive.is_finite(), has_some) {
            (true, _) if self.is_frozen => Reason::HeldIncompleteInput,
            (true, true) => Reason::HeldThinEvidence,
            (true, false) => Reason::HeldNoEvidence,
            (false, true) => Reason::ThinEvidence,
            (false, false) => Reason::NoEvidence,
        };
        Found {
            // Bounded again: the policy may have become narrower since.
            window: law.bound(self.alive),
            reason,
        }
    }

    /// Limits it by the careful profile, and by what the receiver's window holds.
    fn limit(&self, learnt: Found) -> Found {
        let law = self.law;
        let mut found = learnt;
        if law.careful && found.window > law.cmin {
            found = Found {
                window: (found.window / 2.0).max(law.cmin),
                reason: Reason::Careful,
            };
        }
        let receiver = self.seen.receiver_cwnd;
        if law.receiver_cap && receiver < found.window && found.window > law.cmin {
            found = Found {
                window: receiver.max(law.cmin),
                reason: Reason::ReceiverLimited,
            };
        }
        found
    }

    /// Limits it by the loss guard's ceiling.
    fn guarded(&self, found: Found, judged: &Judged, after: &State) -> Found {
        match judged.ceiling {
            Some(ceiling) if ceiling < found.window => Found {
                window: ceiling,
                reason: if judged.harm {
                    Reason::LossGuard
                } else if judged.clean && ceiling > after.clean_initcwnd {
                    Reason::LossGuardStep
                } else {
                    Reason::LossGuardHold
                },
            },
            _ => found,
        }
    }

    /// Publishes calmly: the window that is set, 0 is none.
    fn publish(&self, learnt: Found, limited: Found, judged: &Judged, rounds: f64) -> Found {
        let mut found = if learnt.window.is_finite() {
            let target = Found {
                window: (limited.window + 0.5).floor(),
                reason: limited.reason,
            };
            if self.is_used() {
                self.calm(target, judged)
            } else if rounds < self.law.duty_rounds {
                Found {
                    window: 0.0,
                    reason: Reason::BelowDutyCycle,
                }
            } else {
                target
            }
        } else if self.is_used() {
            Found {
                window: 0.0,
                reason: Reason::Expired,
            }
        } else {
            Found {
                window: 0.0,
                reason: limited.reason,
            }
        };
        if found.window > 0.0 && self.seen.turn > 0.0 {
            found = Found {
                window: 0.0,
                reason: if self.seen.turn > 1.0 {
                    Reason::DisableTest
                } else {
                    Reason::Switchback
                },
            };
        }
        self.word.map_or(found, |word| Found {
            window: word.window,
            reason: Reason::Override,
        })
    }

    /// Keeps the window in use where the change is not worth it, or comes too often.
    fn calm(&self, target: Found, judged: &Judged) -> Found {
        let current = self.current;
        let stays = |reason| Found {
            window: current,
            reason,
        };
        let is_too_high = judged.ceiling.is_some_and(|ceiling| current > ceiling);
        let is_step = matches!(target.reason, Reason::LossGuardStep);
        let change = (target.window - current).abs();
        if is_too_high {
            target
        } else if self.is_frozen {
            stays(Reason::HeldIncompleteInput)
        } else if target.window == current || judged.harm {
            target
        } else if !is_step && change < self.law.smallest_change(current) {
            stays(Reason::HeldHysteresis)
        } else if target.window > current && self.is_suppressed {
            stays(Reason::HeldDamping)
        } else {
            target
        }
    }
}

impl Initcwnd {
    /// Exponentially weighted moving average with a weight of its own for falls; a collapse is followed at once.
    ///
    /// Riptide's text gives alpha to the history, its Table I to the newest data: these weights are the history's.
    fn smoothed(&self, observed: f64, previous: f64) -> f64 {
        if previous.is_nan() || observed <= self.collapse * previous {
            return observed;
        }
        let weight = if observed > previous {
            self.history_weight
        } else {
            self.falling_history_weight
        };
        weight * previous + (1.0 - weight) * observed
    }

    /// Within cmin and cmax; NaN stays.
    fn bound(&self, window: f64) -> f64 {
        if window.is_nan() {
            window
        } else {
            window.max(self.cmin).min(self.cmax)
        }
    }

    /// Segments by which a window must differ from the one in use to be published.
    #[must_use]
    pub fn smallest_change(&self, window: f64) -> f64 {
        (self.hysteresis * window).ceil().max(1.0)
    }

    /// Segments that one more round like the one that showed `observed` leads to, before any limit.
    #[must_use]
    pub fn following(&self, observed: f64, smoothed: f64) -> f64 {
        let next = self.smoothed(observed, smoothed);
        (self.bound(next) + 0.5).floor()
    }
}
