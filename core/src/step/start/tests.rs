//! Properties of every step, whatever a path shows.

use proptest::prelude::*;

use super::group::Group;
use super::losses::Flights;
use super::{At, Enforce, Outcome, Policy, Rules, Seen, Start, State, step};
use crate::gain::Path;
use crate::step::columns::Columns;
use crate::step::damping::Damping;

const ROUND: i64 = 1_767_312_000;
const INTERVAL_S: i64 = 300;
const RTT_US: f64 = 100_000.0;

fn policy() -> Policy {
    Policy {
        start: Start {
            careful: false,
            min_connections: 3.0,
            history_weight: 0.8,
            collapse: 0.5,
            pace_gain: 0.95,
            headroom: 1.25,
            cmax: 400.0,
            ttl_s: 3600,
            hysteresis: 0.25,
            duty_rounds: 2.0,
            trial_permille: 100.0,
            trial_flights: 20.0,
            trial_rounds: 1.0,
            step: 1.5,
            step_gain: 0.02,
            slower: 0.1,
            loss_bound: 0.12,
            loss_segments: 0.02,
            loss_default_bound: 0.2,
            cut: 0.8,
            hold_s: 900,
            group_units: 3.0,
            group_quantile: 0.25,
        },
        damping: Damping {
            half_life_s: 1800.0,
            suppress_above: 2.5,
            reuse_below: 0.75,
            max_suppress_s: 3600.0,
        },
        enforce: Enforce {
            brake_lost_permille: 400.0,
            brake_connections: 20.0,
            max_trial_permille: 500.0,
        },
        rules: Rules::default(),
    }
}

/// The group of a path that has none.
fn nobody() -> Group {
    Group::of(&mut [], 0.25, Flights::default())
}

/// A path over rounds, without a group.
struct Loop {
    policy: Policy,
    state: State,
    round: i64,
}

impl Loop {
    fn new() -> Self {
        Self {
            policy: policy(),
            state: State::zeros(),
            round: ROUND,
        }
    }

    fn at(&self) -> At<'_> {
        At {
            round: self.round,
            decided: self.round - INTERVAL_S,
            policy: &self.policy,
            is_frozen: false,
            is_overridden: false,
        }
    }

    fn decide(&self, seen: &Seen) -> (State, Outcome) {
        step(&self.at(), seen, &self.state, &nobody(), None)
    }

    fn round(&mut self, seen: &Seen) -> Outcome {
        let (state, outcome) = self.decide(seen);
        self.state = state;
        self.round += INTERVAL_S;
        outcome
    }
}

fn nothing() -> Seen {
    Seen {
        mss: 1448.0,
        min_rtt_us: RTT_US,
        ..Seen::unknown()
    }
}

/// Connections that met the path at this rate, and first flights of which all was carried.
fn met(rate: f64) -> Seen {
    Seen {
        connections: 100.0,
        share_rate: rate,
        share_connections: 20.0,
        path_rate: 2.0 * rate,
        path_buckets: 10.0,
        flights_0: 200.0,
        segments_0: 16_000.0,
        flights_1: 30.0,
        segments_1: 2400.0,
        t100_0_us: 300_000.0,
        t100_1_us: 200_000.0,
        ..nothing()
    }
}

fn rates() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 3.0..9.0, 1 => Just(f64::NAN), 1 => Just(14.0)]
        .prop_map(|log10: f64| 10_f64.powf(log10))
}

fn counts() -> impl Strategy<Value = f64> {
    (0..400_u16).prop_map(f64::from)
}

prop_compose! {
    fn flights()(flights in counts(), lossy in counts(), resent in counts(), each in 1..100_u16) -> [f64; 4] {
        [flights, lossy.min(flights), resent, flights * f64::from(each)]
    }
}

prop_compose! {
    fn shown()(
        rates in proptest::array::uniform5(rates()),
        number in proptest::array::uniform6(counts()),
        arms in [flights(), flights()],
        parts in proptest::array::uniform4(prop_oneof![Just(f64::NAN), 0.0..1.0, Just(1.0)]),
        times in proptest::array::uniform4(prop_oneof![Just(f64::NAN), 5e4..2e6]),
    ) -> Seen {
        let [share, reached, path, train, low] = rates;
        let [connections, shares, reaches, trains, held_out, held_out_lossy] = number;
        let [used, tried] = arms;
        Seen {
            connections,
            share_rate: share, share_connections: shares,
            reached_rate: reached, reached_connections: reaches,
            path_rate: path, path_buckets: 10.0,
            trains, train_rate: train, train_low_rate: train.min(low),
            flights_0: used[0], lossy_0: used[1], resent_0: used[2], segments_0: used[3],
            flights_1: tried[0], lossy_1: tried[1], resent_1: tried[2], segments_1: tried[3],
            carried_0: parts[0], path_carried_0: parts[1], carried_1: parts[2], path_carried_1: parts[3],
            t50_0_us: times[0] / 2.0, t100_0_us: times[0], t50_1_us: times[1] / 2.0, t100_1_us: times[1],
            default_flights: held_out, default_lossy: held_out_lossy.min(held_out),
            ..nothing()
        }
    }
}

fn histories() -> impl Strategy<Value = Vec<Seen>> {
    proptest::collection::vec(shown(), 1..16)
}

/// Compares what is NaN as equal.
fn text(state: &State) -> String {
    format!("{state:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn nothing_rises_but_what_was_on_trial(history in histories()) {
        let mut path = Loop::new();
        for seen in &history {
            let before = path.state.clone();
            path.round(seen);
            let (old, tried, new) = (before.used(), before.tried(), path.state.used());
            if new.above(old, 0.0) {
                prop_assert!(before.trial_permille > 0.0);
                prop_assert!(!new.above(tried.most(old), 0.0));
            }
        }
    }

    #[test]
    fn a_rise_is_never_above_what_is_proved_or_a_step_beyond_what_is_in_use(history in histories()) {
        let mut path = Loop::new();
        for seen in &history {
            let before = path.state.clone();
            let outcome = path.round(seen);
            let law = &path.policy.start;
            let begins = path.state.trial_connection_rate > 0.0
                && path.state.trial_connection_rate > before.trial_connection_rate
                && path.state.trial_rounds == 0.0;
            if begins {
                let asked = law.step * outcome.proved_share.max(path.state.connection_rate);
                prop_assert!(path.state.trial_connection_rate <= asked + 1.0);
            }
        }
    }

    #[test]
    fn no_trial_begins_that_would_take_longer_than_the_default_did(history in histories()) {
        let mut path = Loop::new();
        for seen in &history {
            let before = path.state.trial_window;
            path.round(seen);
            let state = &path.state;
            if before == 0.0 && state.trial_window > 0.0 && state.default_t100_us > RTT_US && state.default_timed_at > 0 {
                let at = Path { rtt_us: RTT_US, rate: state.trial_connection_rate, mss: 1448.0 };
                prop_assert!(at.transfer_us(100_000.0, state.trial_window) <= state.default_t100_us + 1.0);
            }
        }
    }

    #[test]
    fn a_round_decided_twice_is_the_same(history in histories()) {
        let mut path = Loop::new();
        for seen in &history {
            let (first, again) = (path.decide(seen).0, path.decide(seen).0);
            prop_assert_eq!(text(&first), text(&again));
            path.round(seen);
        }
    }

    #[test]
    fn frozen_keeps_what_is_given(history in histories(), last in shown()) {
        let mut path = Loop::new();
        history.iter().for_each(|seen| { path.round(seen); });
        let at = At { is_frozen: true, ..path.at() };
        let (kept, _) = step(&at, &last, &path.state, &nobody(), None);
        prop_assert_eq!(kept.used(), path.state.used());
        prop_assert_eq!(kept.tried(), path.state.tried());
    }

    #[test]
    fn more_loss_never_leaves_more(rate in 1e6..2e7, lossy in 0..200_u16, more in 0..200_u16, again in 1.0..60.0) {
        let mut path = Loop::new();
        (0..6).for_each(|_| { path.round(&met(rate)); });
        prop_assert!(path.state.window > 0.0);
        let lost = |lossy: u16| {
            let lossy = f64::from(lossy.min(200));
            path.decide(&Seen { lossy_0: lossy, resent_0: lossy * again, ..met(rate) }).0.used()
        };
        prop_assert!(!lost(lossy.saturating_add(more)).above(lost(lossy), 0.0));
    }

    #[test]
    fn what_is_not_seen_any_more_expires(history in histories()) {
        let mut path = Loop::new();
        history.iter().for_each(|seen| { path.round(seen); });
        (0..13).for_each(|_| { path.round(&nothing()); });
        prop_assert_eq!((path.state.window, path.state.trial_permille), (0.0, 0.0));
    }
}

#[test]
fn a_path_that_shows_nothing_gets_nothing() {
    let mut path = Loop::new();
    for _ in 0..10 {
        path.round(&nothing());
    }
    assert!(!path.state.used().is_some() && !path.state.tried().is_some());
}

#[test]
fn what_is_proved_is_tried_and_then_in_use() {
    let mut path = Loop::new();
    for _ in 0..2 {
        path.round(&met(5e6));
    }
    assert!(!path.state.used().is_some() && path.state.tried().is_some());
    path.round(&met(5e6));
    assert!((path.state.connection_rate - 0.95 * 5e6).abs() < 1.0);
    assert_eq!(path.state.window, 346.0);
}
