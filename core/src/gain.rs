//! Time that a start at the proved rate saves: slow start's waits. Pure arithmetic.

/// The kernel's initial window, segments (RFC 6928; `TCP_INIT_CWND` in include/net/tcp.h).
pub const KERNEL_DEFAULT: f64 = 10.0;
/// From ten segments of one byte to more than 2^63.
const DOUBLINGS: usize = 64;

/// A path, as a connection meets it. All are positive.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Round trip without queues, microseconds.
    pub rtt_us: f64,
    /// Bytes a second.
    pub rate: f64,
    /// Bytes of a segment.
    pub mss: f64,
}

impl Path {
    /// Tells how long a sender of `size` bytes waits in all for acknowledgements that begins with `window` segments,
    /// microseconds.
    ///
    /// The model is slow start at its best: no loss, no delayed acknowledgement, no early exit (`HyStart`). The first
    /// flight is `window` segments, each one after it twice the one before, and one begins every round trip. Flight i,
    /// of w(i) = window * mss * 2^i bytes, is over after w(i) / rate, and the sender waits for the rest of the round
    /// trip:
    ///
    /// ```text
    /// pauses = sum of (rtt - w(i) / rate) over i = 0, 1, ... while w(i) < rate * rtt and the flights up to i carry
    /// less than size
    /// ```
    ///
    /// From the first flight that fills the pipe nobody waits: then the path is what delays. Never negative; it grows
    /// with size, round trip and rate, and shrinks with window. Handshakes are not counted.
    #[must_use]
    pub fn pauses_us(self, size: f64, window: f64) -> f64 {
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

    /// Tells how long it takes from a request to the last byte of its answer of `size` bytes, microseconds: a round
    /// trip, what the path takes to carry it, and the pauses. With a window that fills the pipe it is RTT + size / rate:
    /// no sender can go below.
    #[must_use]
    pub fn transfer_us(self, size: f64, window: f64) -> f64 {
        self.rtt_us + size / self.rate * 1e6 + self.pauses_us(size, window)
    }

    /// Tells what a start with `window` segments saves of a transfer that starts with the kernel's default,
    /// microseconds; never negative. Over the round trip it is how many of these are saved.
    ///
    /// Where the window fills the pipe it grows with the rate: a lower bound of the rate gives a lower bound of the gain.
    #[must_use]
    pub fn gain_us(self, size: f64, window: f64) -> f64 {
        (self.pauses_us(size, KERNEL_DEFAULT) - self.pauses_us(size, window)).max(0.0)
    }

    /// Sizes the window that a start at this rate needs, segments: what the rate carries in a round trip; at most
    /// `headroom` times what `together` (bytes/s) does, and what the receiver holds (bytes); within the kernel's default
    /// and `largest`.
    #[must_use]
    pub fn window(self, together: f64, receiver: Option<f64>, headroom: f64, largest: f64) -> f64 {
        let segments = |rate: f64| rate * self.rtt_us / 1e6 / self.mss;
        let receiver = receiver.map_or(f64::INFINITY, |bytes| bytes / self.mss);
        // Rounding errors add no segment.
        (segments(self.rate) - 1e-6)
            .ceil()
            .min((headroom * segments(together)).max(KERNEL_DEFAULT))
            .min(receiver)
            .floor()
            .clamp(KERNEL_DEFAULT, largest)
    }
}
