//! History: how consistently a prefix was low in the rounds of the window.
//!
//! A round without enough evidence is neither low nor not. By how much low rounds exceed a share of the measured ones is
//! Page's cumulative sum (Biometrika 41, 1954): over the newest rounds, over as many of them as show most. What is clear
//! is seen soon, what is less clear later, and what lies further back than a change is no longer in it.

use super::{Congestion, Decided, Seen};
use crate::step::columns::Columns;

/// A round in millionths: sums are of whole numbers, which doubles add exactly.
const ROUND: f64 = 1e6;

/// Counts by the masks, whose first bit is the newest round: what a decision shows, but for what it decides.
pub(super) fn counted(seen: &Seen, law: &Congestion) -> Decided {
    let mask = |first: u64, second: u64| u128::from(second) << 64 | u128::from(first);
    let window = u128::MAX.unbounded_shr(128_u32.saturating_sub(law.window_rounds));
    let measured = mask(seen.measured_0, seen.measured_1) & window;
    let low = mask(seen.low_0, seen.low_1) & measured;
    let mut lows = Excess::over(law.enter_duty);
    let mut goods = Excess::over(1.0 - law.leave_duty);
    let (mut changes, mut was_low) = (0, None);
    let mut left = measured;
    while left != 0 {
        let is_low = low >> left.trailing_zeros() & 1 != 0;
        left &= left - 1;
        lows.count(is_low);
        goods.count(!is_low);
        changes += u32::from(was_low.is_some_and(|was| was != is_low));
        was_low = Some(is_low);
    }
    Decided {
        measured_rounds: f64::from(measured.count_ones()),
        low_rounds: f64::from(low.count_ones()),
        state_changes: f64::from(changes),
        low_excess: lows.most / ROUND,
        good_excess: goods.most / ROUND,
        ..Decided::zeros()
    }
}

/// By how much some rounds exceed a share of all, from the newest on.
struct Excess {
    share: f64,
    sum: f64,
    most: f64,
}

impl Excess {
    fn over(share: f64) -> Self {
        Self {
            share: (share * ROUND).round_ties_even(),
            sum: 0.0,
            most: 0.0,
        }
    }

    fn count(&mut self, is_one: bool) {
        self.sum += if is_one { ROUND } else { 0.0 } - self.share;
        self.most = self.most.max(self.sum);
    }
}
