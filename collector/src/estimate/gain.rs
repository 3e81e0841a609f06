//! What a start at the proved rate saves: how long slow start waits. Pure arithmetic.
//!
//! The controller computes the same (`controller/springtide/laws/start/gain.py` and `values.py`); `testkit/start_gain.json`
//! is for both.

/// The kernel's initial window, segments (RFC 6928; TCP_INIT_CWND in include/net/tcp.h).
pub(super) const KERNEL_DEFAULT: f64 = 10.0;
/// Policy's defaults: the largest window, segments; and the largest as a multiple of what the path holds.
const LARGEST_WINDOW: f64 = 400.0;
const HEADROOM: f64 = 1.25;
/// Larger than any path's, so that only round trips are left.
pub(super) const ENDLESS_RATE: f64 = 1e11;
/// From ten segments of one byte to more than 2^63.
const DOUBLINGS: usize = 64;

/// A path, as a connection meets it. All are positive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Round trip without queues, microseconds.
    pub rtt_us: f64,
    /// Bytes a second.
    pub rate: f64,
    /// Bytes of a segment.
    pub mss: f64,
}

impl Path {
    /// How long a sender of `size` bytes waits in all for acknowledgements that begins with `window` segments,
    /// microseconds: slow start at its best, without loss, delayed acknowledgements and early exit. Each flight is twice the
    /// one before, and one begins every round trip; from the first that fills the pipe on nobody waits.
    pub(super) fn pauses_us(self, size: f64, window: f64) -> f64 {
        let (mut left, mut flight, mut pause) = (size, window * self.mss, 0.0);
        for _ in 0..DOUBLINGS {
            if left <= flight || flight >= self.rate * self.rtt_us / 1e6 {
                break;
            }
            pause += self.rtt_us - flight / self.rate * 1e6;
            left -= flight;
            flight *= 2.0;
        }
        pause
    }

    /// From a request to the last byte of its answer of `size` bytes, microseconds.
    pub(super) fn transfer_us(self, size: f64, window: f64) -> f64 {
        self.rtt_us + size / self.rate * 1e6 + self.pauses_us(size, window)
    }

    /// What a start with `window` segments saves of a transfer that starts with the kernel's default, microseconds; never
    /// negative.
    pub(super) fn gain_us(self, size: f64, window: f64) -> f64 {
        (self.pauses_us(size, KERNEL_DEFAULT) - self.pauses_us(size, window)).max(0.0)
    }

    /// The window that the law would give, segments: what the rate carries in a round trip, within the policy's bounds and
    /// the receiver's (bytes).
    pub(super) fn window(self, receiver: Option<f64>) -> f64 {
        let pipe = self.rate * self.rtt_us / 1e6 / self.mss;
        let window = (pipe - 1e-6)
            .ceil()
            .min((HEADROOM * pipe).max(KERNEL_DEFAULT));
        let receiver = receiver.map_or(f64::INFINITY, |bytes| bytes / self.mss);
        window
            .min(receiver)
            .floor()
            .clamp(KERNEL_DEFAULT, LARGEST_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{KERNEL_DEFAULT, Path};

    #[test]
    fn it_is_what_the_controller_computes() {
        let text = include_str!("../../../testkit/start_gain.json");
        let document: Value = serde_json::from_str(text).unwrap();
        let vectors = document["vectors"].as_array().unwrap();
        assert!(vectors.len() > 20);
        for vector in vectors {
            let number = |name: &str| vector[name].as_f64().unwrap();
            let path = Path {
                rtt_us: number("rtt_us"),
                rate: number("rate_bytes_per_s"),
                mss: number("mss"),
            };
            let (size, window) = (number("size_bytes"), number("window"));
            for (name, found) in [
                ("default_us", path.transfer_us(size, KERNEL_DEFAULT)),
                ("start_us", path.transfer_us(size, window)),
                ("gain_us", path.gain_us(size, window)),
            ] {
                let wanted = number(name);
                assert!(
                    (found - wanted).abs() <= 1e-9 * wanted + 1e-6,
                    "{}: {name} is {found}",
                    vector["name"]
                );
            }
        }
    }

    #[test]
    fn a_window_is_what_the_path_holds_within_bounds() {
        let path = |rate: f64| Path {
            rtt_us: 100_000.0,
            rate,
            mss: 1448.0,
        };
        for (rate, receiver, window) in [
            (6_250_000.0, None, 400.0),
            (2_500_000.0, None, 173.0),
            (2_500_000.0, Some(65_536.0), 45.0),
            (2_500_000.0, Some(1000.0), 10.0),
            (1000.0, None, 10.0),
        ] {
            let found = path(rate).window(receiver);
            assert!(
                (found - window).abs() < 1e-9,
                "{rate} {receiver:?}: {found}"
            );
        }
    }
}
