//! The loss guard: what loss has taught of a pair stays as a ceiling that is raised step by step.
//!
//! A round's young connections judge the window that they started with. **Harm**: clearly more of them lost any of their
//! first flight than random loss explains. The window falls at once to the last one that was judged clean, else to the
//! kernel's default. **Clean**: enough of them, over rounds in which the window was in use, and no more lost than may.
//! From then on nothing rises but by a step beyond the last clean window. While the hold lasts steps end at the ceiling;
//! after it they go on halfway towards the harmful window, then beyond it. No time lifts a ceiling, only steps do.
//!
//! Retransmission timeouts do not judge: what overflows a queue counts as lossy however it was recovered, and a timeout
//! without loss was spurious, or the acknowledgements' loss.

use super::{Case, Initcwnd, State};
use crate::gain::KERNEL_DEFAULT;
use crate::step::chance::{FEWEST_LOSSY, allowed_share, lower_bound};

/// Connections that suffice for no judgement are remembered up to this many times `loss_min_connections`: what comes later
/// must be able to change the share.
const MOST_TRIALS: f64 = 10.0;
/// Longest hold, seconds; and for how long a harm after one is a harm in vain.
const DAY_S: i64 = 86_400;

/// Verdict of young connections on the window.
pub(super) struct Judged {
    pub harm: bool,
    pub clean: bool,
    /// The largest window that may be set now, segments; None where there is no ceiling.
    pub ceiling: Option<f64>,
}

/// Connections, and those of them that lost anything.
#[derive(Clone, Copy)]
struct Young {
    count: f64,
    lossy: f64,
}

impl Young {
    const NONE: Self = Self {
        count: 0.0,
        lossy: 0.0,
    };

    /// Says whether clearly more lost anything than may.
    fn is_harm(self, bound: f64) -> bool {
        self.lossy >= FEWEST_LOSSY && lower_bound(self.lossy, self.count) > bound
    }
}

/// Judges the window in use, and writes what the guard remembers.
pub(super) fn judge(case: &Case, after: &mut State) -> Judged {
    let (law, before) = (case.law, case.before);
    let started = if case.is_used() {
        before.initcwnd
    } else {
        KERNEL_DEFAULT
    };
    let (young, trial) = counted(case);
    let rounds = before.trial_rounds + f64::from(u8::from(!case.is_frozen));
    let has_served = rounds >= law.loss_step_rounds;
    let is_enough = young.count > 0.0 && trial.count >= law.loss_min_connections && has_served;

    let (default, default_young_lossy) = (before.default_young, before.default_young_lossy);
    let bounds = [law.loss_bound, law.loss_default_bound];
    let most = allowed_share(started, lower_bound(default_young_lossy, default), bounds);
    let harm = young.is_harm(most) || (young.lossy > 0.0 && trial.is_harm(most));
    let most = allowed_share(started, default_young_lossy / default.max(1.0), bounds);
    let clean = is_enough && !harm && trial.lossy <= most * trial.count && started >= law.cmin;

    if is_enough && started <= KERNEL_DEFAULT {
        (after.default_young, after.default_young_lossy) = (trial.count, trial.lossy);
    }
    let is_little = trial.count < MOST_TRIALS * law.loss_min_connections;
    let kept = if !harm && !clean && has_served && is_little {
        trial
    } else {
        Young::NONE
    };
    after.trial_rounds = rounds;
    (after.trial_young, after.trial_young_lossy) = (kept.count, kept.lossy);
    if harm {
        remember_harm(case, started, after);
    } else if clean {
        remember_clean(law, started, after);
    }
    let highest = if harm {
        lowest(law, after)
    } else {
        highest(case, started, clean, after)
    };
    Judged {
        harm,
        clean,
        ceiling: (after.harmful_initcwnd > 0.0).then_some(highest),
    }
}

/// Young connections of the round, and all that are not yet judged.
fn counted(case: &Case) -> (Young, Young) {
    let (seen, before) = (case.seen, case.before);
    let young = if case.is_frozen {
        Young::NONE
    } else {
        let count = seen.young_connections;
        let lossy = seen.young_lossy_connections.min(count);
        Young { count, lossy }
    };
    let trial = Young {
        count: young.count + before.trial_young,
        lossy: young.lossy + before.trial_young_lossy,
    };
    (young, trial)
}

/// Remembers harm, and holds. Another harm in the hold is the same one; one after it, within a day: the ceiling was tried
/// without success.
fn remember_harm(case: &Case, started: f64, after: &mut State) {
    let (law, before) = (case.law, case.before);
    let (until, held_s) = (before.guard_until, before.guard_hold_s);
    let longer = if before.harmful_initcwnd <= 0.0 || case.round >= until + DAY_S {
        0
    } else if until > case.round {
        held_s
    } else {
        (2 * held_s).min(DAY_S)
    };
    after.guard_hold_s = longer.max(law.loss_hold_s);
    after.guard_until = case.round + after.guard_hold_s;
    after.harmful_initcwnd = started.max(law.cmin);
    if before.clean_initcwnd >= started {
        after.clean_initcwnd = 0.0;
    }
}

/// Remembers a clean window.
fn remember_clean(law: &Initcwnd, started: f64, after: &mut State) {
    let harmful = after.harmful_initcwnd;
    if started >= harmful {
        after.guard_hold_s = 0;
    }
    // Below a ceiling a smaller clean window takes nothing away; without one the last counts, as the path is now.
    after.clean_initcwnd = if harmful > 0.0 {
        after.clean_initcwnd.max(started)
    } else {
        started
    };
    // Steps have led up to cmax: there is nothing left to bound.
    if started >= harmful.max(law.cmax) {
        after.harmful_initcwnd = 0.0;
    }
}

/// The window that a fall leads to.
fn lowest(law: &Initcwnd, after: &State) -> f64 {
    law.bound(after.clean_initcwnd)
}

/// The largest window that may be set, if this round did no harm.
fn highest(case: &Case, started: f64, clean: bool, after: &State) -> f64 {
    let law = case.law;
    let lowest = lowest(law, after);
    let highest = next_step(law, lowest, after, after.guard_until > case.round);
    if clean && started >= lowest {
        highest
    } else if (lowest..=highest).contains(&case.current) {
        case.current
    } else {
        lowest
    }
}

/// The window to try after `clean` was judged so. Between it and the harmful one it is at most the middle.
fn next_step(law: &Initcwnd, clean: f64, after: &State, holds: bool) -> f64 {
    let harmful = after.harmful_initcwnd;
    let mut next = (clean * law.loss_step).floor().max(clean + 1.0);
    if harmful > clean {
        next = next.min(((clean + harmful + 1.0) / 2.0).floor());
    }
    if holds {
        next = next.min((law.loss_cut * harmful).floor().max(clean));
    }
    law.bound(next)
}
