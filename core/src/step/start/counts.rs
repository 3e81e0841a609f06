//! Counts: what a round's first flights add to what is known of a path, and whether what is in use does harm.

use super::Case;
use super::losses::{self, Flights, Lost};
use super::rules::Rule;
use super::state::State;

/// Part of the default's starts that is remembered from round to round, and most flights of them,
/// in multiples of `trial_flights`: what comes later must be able to change it.
const DEFAULT_KEPT: f64 = 0.9;
const MOST_DEFAULT: f64 = 10.0;
/// Flights of values in use that are remembered, in multiples of `trial_flights`.
const MOST_USED: f64 = 10.0;
/// Times of the default's starts are remembered for so many times `ttl_s`.
const OLDEST_DEFAULT: i64 = 4;
/// A path carries all of a rate where it shows this part of it: with several at once the queue of what came before blurs
/// it. (Rows have parts in half of a double, where 0.95 is a little less.)
pub(super) const CARRIED: f64 = 0.95 - 1e-6;
/// Factor above what is in use up to which a rise is not a step.
pub(super) const STEP_UP: f64 = 1.1;

/// Parts that the path carried: of what a single connection is given, and of what all that start at once are. 1 where
/// that is all of it, NaN unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub single: f64,
    pub path: f64,
}

impl Carried {
    pub(super) fn any_whole(self) -> bool {
        self.single >= 1.0 || self.path >= 1.0
    }

    pub(super) fn any_below(self, part: f64) -> bool {
        self.single < part || self.path < part
    }
}

/// Counts of one path, and what they say by themselves.
pub(super) struct Counts {
    /// This round's first flights with the values in use, and on trial.
    pub round: [Flights; 2],
    /// Says whether values are in use, and on trial.
    pub is_used: bool,
    pub is_tried: bool,
    /// Losses of the kernel's default.
    pub default: Lost,
    /// Says whether this round's flights with the values in use send much again.
    now_much: bool,
    /// Says whether those on trial do.
    pub trial_much: bool,
    /// Says whether the trial gives clearly more than what is in use.
    pub is_more: bool,
    /// Parts carried of the values in use, and of those on trial.
    pub carried: [Carried; 2],
    /// The values in use do harm; so much that the path was full.
    pub harm: bool,
    pub flood: bool,
    /// The values in use lose what only the default's loss explains, which no held-out edge shows.
    pub leans: bool,
    /// An edge braked, for more than what the default loses.
    pub braked: bool,
    /// Enough of the round's flights went well with the values in use.
    pub sound: bool,
}

impl Counts {
    /// Counts a round's flights into `after`.
    pub(super) fn read(case: &Case, after: &mut State) -> Self {
        let (seen, before, law) = (case.seen, case.before, &case.policy.start);
        let round = if case.is_frozen {
            [Flights::default(); 2]
        } else {
            seen.flights()
        };
        let is_used = before.window > 0.0;
        let is_tried = before.trial_window > 0.0;
        // Some start with the default beside what is in use: a trial of nothing.
        let is_beside = is_used && before.trial_permille > 0.0 && !is_tried;
        let of_default = DefaultStarts::of(case, round, is_used, is_beside);
        let default = of_default.count(case, after);
        time_default(
            case,
            !is_used && round[0].flights >= law.min_connections,
            after,
        );
        count_used(case, round[0], after);
        count_trial(case, round, after);

        let used = after.used_flights();
        let (harm, flood) = does_harm(case, round[0], used, default);
        let is_unexplained = is_used && !harm && does_harm(case, round[0], used, Lost::NOTHING).0;
        // Where held-out edges show what it loses, if not in each round, nobody else need start with it.
        let is_unseen =
            seen.default_flights == 0.0 && (is_beside || before.default_at < case.decided);
        let mut counts = Self {
            round,
            is_used,
            is_tried,
            default,
            now_much: round[0].sends_much(default, law),
            trial_much: after.trial_flights().sends_much(default, law),
            is_more: before.trial_step
                || is_used && before.trial_connection_rate > STEP_UP * before.connection_rate,
            carried: [Arm::Used, Arm::Tried].map(|arm| carried(case, arm, round)),
            harm,
            flood,
            leans: if case.is_frozen {
                is_beside
            } else {
                is_unexplained && is_unseen && case.on(Rule::BesideDefault)
            },
            braked: !case.is_frozen && seen.braked > 0.0 && (is_used || is_tried),
            sound: false,
        };
        if counts.braked && counts.loses_as_default(case, of_default.all, after) {
            counts.braked = false;
            // The default's loss may have ended since: a share starts with the default again, and shows whether it has.
            let is_old = case.round >= after.default_at + law.ttl_s;
            counts.leans |= is_used && is_old && case.on(Rule::BesideDefault);
        }
        let went_well = !counts.now_much && !harm;
        counts.sound = is_used && round[0].flights >= law.min_connections && went_well;
        counts
    }

    /// Says whether an edge's brake says nothing. Edges brake what loses, whatever the default loses: where as many lose
    /// with it that edges brake by chance, and flights of this round and of all before show that no more of them lose.
    /// Few starts show the default's loss before there are values: half of what a trial needs says it.
    fn loses_as_default(&self, case: &Case, round: Flights, after: &State) -> bool {
        let policy = case.policy;
        let law = &policy.start;
        let default = if round.flights >= law.trial_flights {
            round
        } else {
            Flights {
                flights: after.default_flights,
                lossy: after.default_lossy.min(after.default_flights),
                ..Flights::default()
            }
        };
        let explains = case.on(Rule::BrakeExplained)
            && 2.0 * after.default_flights >= law.trial_flights
            && losses::brakes(
                default.share(),
                policy.enforce.brake_lost_permille / 1000.0,
                policy.enforce.brake_connections,
            );
        let most = default.at_most();
        let (used, tried) = (after.used_flights(), after.trial_flights());
        let of_used = !self.is_more
            && !self.now_much
            && !used.sends_much(self.default, law)
            && used.flights >= law.trial_flights
            && self.round[0].flights > 0.0
            && self.round[0].at_least() <= most
            && used.at_least() <= most;
        let of_trial = !self.is_more
            && !self.trial_much
            && tried.flights >= law.trial_flights
            && tried.at_least() <= most;
        explains
            && if self.is_tried {
                of_trial && (of_used || !self.is_used)
            } else {
                of_used
            }
    }
}

/// Flights of the round with the kernel's default: those on held-out edges, whose number and losses only are known, and
/// `own`, beside the values.
struct DefaultStarts {
    own: Flights,
    all: Flights,
}

impl DefaultStarts {
    /// Where nothing is in use the trial's others start with the default; and so do those of a trial of nothing.
    fn of(case: &Case, round: [Flights; 2], is_used: bool, is_beside: bool) -> Self {
        let own = match (is_used, is_beside) {
            (false, _) => round[0],
            (true, true) => round[1],
            (true, false) => Flights::default(),
        };
        let seen = case.seen;
        let (flights, lossy) = if case.is_frozen {
            (0.0, 0.0)
        } else {
            (seen.default_flights, seen.default_lossy)
        };
        let all = Flights {
            flights: own.flights + flights,
            lossy: own.lossy + lossy.min(flights),
            ..own
        };
        Self { own, all }
    }

    /// Counts them; gives what the default loses.
    fn count(&self, case: &Case, after: &mut State) -> Lost {
        let (own, all, before, law) = (self.own, self.all, case.before, &case.policy.start);
        let kept = if all.flights > 0.0 {
            DEFAULT_KEPT.min(MOST_DEFAULT * law.trial_flights / before.default_flights.max(1.0))
        } else {
            1.0
        };
        after.default_flights = kept * before.default_flights + all.flights;
        after.default_lossy = (kept * before.default_lossy + all.lossy).min(after.default_flights);
        if all.flights > 0.0 {
            after.default_at = case.round;
        }
        if own.lossy > 0.0 {
            let weight = if before.default_resent == 0.0 {
                // Where nothing is known yet, that is all of it.
                1.0
            } else {
                (own.lossy / after.default_lossy.max(1.0)).min(1.0)
            };
            after.default_resent += weight * (own.resent / own.lossy - before.default_resent);
        }
        Lost {
            share: after.default_lossy / after.default_flights.max(1.0),
            of_lossy: after.default_resent,
        }
    }
}

/// Notes how long first flights with the kernel's default last took, where this round's show it.
fn time_default(case: &Case, is_shown: bool, after: &mut State) {
    let (seen, before, law) = (case.seen, case.before, &case.policy.start);
    let newest = |took: f64| if is_shown && took > 0.0 { took } else { 0.0 };
    let (t50, t100) = (newest(seen.t50_0_us), newest(seen.t100_0_us));
    let is_new = t50 > 0.0 || t100 > 0.0;
    let at = if is_new {
        case.round
    } else {
        before.default_timed_at
    };
    let lives = case.round < at + OLDEST_DEFAULT * law.ttl_s;
    (
        after.default_timed_at,
        after.default_t50_us,
        after.default_t100_us,
    ) = match (lives, is_new) {
        (true, true) => (at, t50, t100),
        (true, false) => (at, before.default_t50_us, before.default_t100_us),
        (false, true) => (0, t50, t100),
        (false, false) => (0, 0.0, 0.0),
    };
}

/// Counts the round's flights with the values in use.
fn count_used(case: &Case, round: Flights, after: &mut State) {
    let (before, law) = (case.before, &case.policy.start);
    let is_worn = case.on(Rule::WornCounts) && before.used_flights > MOST_USED * law.trial_flights;
    after.set_used_flights(match before.window > 0.0 {
        true => round.after(before.used_flights(), if is_worn { 2.0 } else { 1.0 }),
        false => Flights::default(),
    });
}

/// Counts the round's flights on trial, and adds their time over the others', of 100 kB, else of 50.
fn count_trial(case: &Case, round: [Flights; 2], after: &mut State) {
    if case.before.trial_window <= 0.0 {
        after.set_trial_flights(Flights::default());
        after.trial_rounds = 0.0;
        return;
    }
    after.set_trial_flights(round[1].after(case.before.trial_flights(), 1.0));
    if case.is_frozen {
        return;
    }
    after.trial_rounds += 1.0;
    let weight = round[0].flights.min(round[1].flights);
    let is_time = |took: f64| took > 0.0 && took.is_finite();
    let mut times = case.seen.times_us().into_iter();
    if let Some((theirs, ours)) = times.find(|&(theirs, ours)| is_time(theirs) && is_time(ours)) {
        after.trial_log2_time += weight * (ours / theirs).log2();
        after.trial_times += weight;
    }
}

/// Says whether the values in use do harm, beside what the default loses, and whether that is a flood: by the round's
/// flights, or by all since the values are in use. Where none of the round's loses anything nothing does harm.
fn does_harm(case: &Case, round: Flights, used: Flights, default: Lost) -> (bool, bool) {
    let (before, law) = (case.before, &case.policy.start);
    if before.window <= 0.0 || round.lossy <= 0.0 {
        return (false, false);
    }
    let bound = losses::allowed_lossy(before.window, default.share, default.share, law);
    let now_much = round.sends_much(default, law);
    let flood = now_much && case.on(Rule::Flood) && round.is_flood(default);
    let all = used.sends_much(default, law) && used.too_many_lossy(bound);
    (
        flood || now_much && round.too_many_lossy(bound) || all,
        flood,
    )
}

#[derive(Clone, Copy, PartialEq)]
enum Arm {
    Used,
    Tried,
}

/// Gives what was carried of an arm's values; NaN where too few flights say it. Where none was limited by what a single
/// one is given, it gets no more than all of them together.
fn carried(case: &Case, arm: Arm, round: [Flights; 2]) -> Carried {
    let (seen, before, law) = (case.seen, case.before, &case.policy.start);
    let (values, single, path, flights) = match arm {
        Arm::Used => (
            before.used(),
            seen.carried_0,
            seen.path_carried_0,
            round[0].flights,
        ),
        Arm::Tried => (
            before.tried(),
            seen.carried_1,
            seen.path_carried_1,
            round[1].flights,
        ),
    };
    if flights < law.min_connections {
        return Carried {
            single: f64::NAN,
            path: f64::NAN,
        };
    }
    let of_all = if values.rate > 0.0 {
        path * values.path / values.rate
    } else {
        f64::NAN
    };
    let single = if single.is_nan() { of_all } else { single };
    let of = |part: f64| if part >= CARRIED { 1.0 } else { part };
    Carried {
        single: of(single),
        path: of(path),
    }
}
