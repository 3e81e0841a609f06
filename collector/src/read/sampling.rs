//! Chooses the connections to sample: always the same ones, in polls and in close records, on every
//! kernel and over restarts.

/// The bits of a cookie spread evenly: the finalizer of splitmix64 (Vigna, 2015). Cookies are counters.
#[inline(always)]
pub(crate) fn spread(cookie: u64) -> u64 {
    let x = (cookie ^ cookie >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// One socket in so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    one_in: u32,
}

impl Sampling {
    /// Every socket.
    pub const ALL: Self = Self { one_in: 1 };

    /// One in `one_in`; None for 0.
    pub fn one_in(one_in: u32) -> Option<Self> {
        (one_in > 0).then_some(Self { one_in })
    }

    /// Number of sockets that each sampled one represents.
    pub fn weight(self) -> u32 {
        self.one_in
    }

    /// Whether the socket with this spread cookie is sampled: whether the low half, as a fraction, is below 1 / weight.
    #[inline(always)]
    pub fn takes(self, spread: u64) -> bool {
        ((spread & 0xffff_ffff) * u64::from(self.one_in)) >> 32 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_n_is_taken() {
        for one_in in [1, 2, 3, 10, 1000] {
            let sampling = Sampling::one_in(one_in).unwrap();
            let sockets = 200_000_u32;
            let taken = (1..=u64::from(sockets))
                .filter(|&cookie| sampling.takes(spread(cookie)))
                .count() as f64;
            let share = f64::from(sockets) / f64::from(one_in);
            // Six standard deviations of a binomial count.
            assert!(
                (taken - share).abs() <= 6.0 * share.sqrt(),
                "1 in {one_in}: {taken}"
            );
        }
        assert_eq!(Sampling::one_in(0), None);
    }

    #[test]
    fn a_coarser_sample_is_part_of_a_finer_one() {
        let sampling = |one_in| Sampling::one_in(one_in).unwrap();
        for cookie in 1..100_000 {
            let spread = spread(cookie);
            assert!(!sampling(100).takes(spread) || sampling(10).takes(spread));
        }
    }

    #[test]
    fn the_choice_is_the_documented_one() {
        // splitmix64 with the seed 0 gives this first: the finalizer of its increment.
        assert_eq!(spread(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }
}
