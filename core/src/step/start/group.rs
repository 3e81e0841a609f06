//! Groups: paths that resemble each other lend each other what they have proved.

use super::losses::Flights;

/// A group's paths that have evidence of their own, and what its borrowers have on trial or in use together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Number of paths with evidence.
    pub paths: f64,
    /// Low quantile of their shares, log2 of bytes/s.
    pub low: f64,
    /// First flights of all that borrow.
    pub borrowers: Flights,
}

impl Group {
    /// Makes a group of its paths' shares, which it sorts.
    pub(super) fn of(shares: &mut [f64], quantile: f64, borrowers: Flights) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no fleet has 2^52 paths")]
        let paths = shares.len() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a quantile is within 0 and 1, and a cast of less than 0 is 0"
        )]
        let at = (quantile * (paths - 1.0)).floor() as usize;
        let low = if shares.is_empty() {
            f64::NAN
        } else {
            *shares.select_nth_unstable_by(at, f64::total_cmp).1
        };
        Self {
            paths,
            low,
            borrowers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Group;
    use crate::step::start::losses::Flights;

    #[test]
    fn a_group_lends_what_three_of_four_carry() {
        let of = |shares: &[f64]| Group::of(&mut shares.to_vec(), 0.25, Flights::default()).low;
        assert!((of(&[20.0, 23.0, 19.8, 20.2, 21.0]) - 20.0).abs() < 1e-9);
        assert!((of(&[20.0]) - 20.0).abs() < 1e-9);
        assert!(of(&[]).is_nan());
    }
}
