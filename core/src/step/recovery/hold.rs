//! Holds: after harm nothing is given for a time, which doubles.

/// Longest hold, seconds.
pub(super) const DAY_S: i64 = 86_400;

/// A hold; without one both are 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub until: i64,
    length: i64,
}

impl Hold {
    /// Gives what is remembered of one: nothing a day after its end.
    pub(super) fn left(until: i64, length: i64, round: i64) -> Self {
        if round < until + DAY_S {
            Self { until, length }
        } else {
            Self {
                until: 0,
                length: 0,
            }
        }
    }

    /// Gives the hold that begins now: twice as long as the one that is remembered.
    pub(super) fn next(self, round: i64, shortest: i64) -> Self {
        let length = (2 * self.length).max(shortest).min(DAY_S);
        Self {
            until: round + length,
            length,
        }
    }

    pub(super) fn both(self) -> (i64, i64) {
        (self.until, self.length)
    }
}
