//! The holdout: which chosen prefixes keep the kernel's default, so that the others' benefit is a difference.

use sha2::{Digest, Sha256};

use super::Seen;

/// Says whether a chosen prefix does: by a hash of its PoP and its first address. Permanently, so that a prefix that comes
/// back is again on the same side.
pub(super) fn is_held_out(pop: &str, seen: &Seen, share: f64) -> bool {
    let found = Sha256::new()
        .chain_update(b"springtide congestion holdout\0")
        .chain_update(pop)
        .chain_update(b"\0")
        .chain_update(seen.high.to_be_bytes())
        .chain_update(seen.low.to_be_bytes())
        .finalize();
    let hash = found[..8]
        .iter()
        .fold(0.0, |hash, &byte| hash * 256.0 + f64::from(byte));
    hash < share * 64_f64.exp2()
}

#[cfg(test)]
mod tests {
    use super::{Seen, is_held_out};
    use crate::step::columns::Columns;

    #[test]
    fn a_prefix_stays_on_its_side() {
        let mut seen = Seen::unknown();
        let held = (0..40_u64).filter(|place| {
            seen.low = 0xFFFF_CB00_0000 | place << 8;
            is_held_out("ams", &seen, 0.1)
        });
        assert_eq!(held.collect::<Vec<_>>(), [2, 9]);
    }
}
