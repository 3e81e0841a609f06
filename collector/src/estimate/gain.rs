//! The window that the controller's law would give, by the policy's defaults.

pub(super) use springtide_core::gain::{KERNEL_DEFAULT, Path};

/// Policy's defaults: the largest window, segments; and the largest as a multiple of what the path holds.
const LARGEST_WINDOW: f64 = 400.0;
const HEADROOM: f64 = 1.25;
/// Larger than any path's, so that only round trips are left.
pub(super) const ENDLESS_RATE: f64 = 1e11;

/// Segments; the receiver's bound is in bytes.
pub(super) fn window(path: Path, receiver: Option<f64>) -> f64 {
    path.window(path.rate, receiver, HEADROOM, LARGEST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::{Path, window};

    #[test]
    fn a_window_is_what_the_path_holds_within_bounds() {
        for (rate, receiver, segments) in [
            (6_250_000.0, None, 400.0),
            (2_500_000.0, None, 173.0),
            (2_500_000.0, Some(65_536.0), 45.0),
            (2_500_000.0, Some(1000.0), 10.0),
            (1000.0, None, 10.0),
        ] {
            let path = Path {
                rtt_us: 100_000.0,
                rate,
                mss: 1448.0,
            };
            let found = window(path, receiver);
            assert!(
                (found - segments).abs() < 1e-9,
                "{rate} {receiver:?}: {found}"
            );
        }
    }
}
