"""What a start at the proved rate saves: how long slow start waits. Pure arithmetic.

The collector computes the same (`testkit/start_gain.json` is for both).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from springtide.laws.initcwnd.loss_guard import KERNEL_DEFAULT
from springtide.laws.start.shrink import Floats

# From 10 segments of one byte to more than 2^63.
_DOUBLINGS = 64


def pauses_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """How long a sender waits in all for acknowledgements while it sends `size` bytes, us; arrays broadcast.

    The model is slow start at its best: no loss, no delayed acknowledgement, no early exit (HyStart). The first flight
    is `window` segments of `mss` bytes, each one after it twice the one before, and one begins every round trip of
    `rtt_us`. The path carries `rate` bytes/s, so that flight i, of w(i) = window * mss * 2^i bytes, is over after
    w(i) / rate, and the sender waits for the rest of the round trip:

        pauses = sum of (rtt - w(i) / rate) over i = 0, 1, ... while w(i) < rate * rtt and the flights up to i carry
        less than size

    From the first flight on that fills the pipe nobody waits. With more flights the queue, and not the window, is what
    delays; that is the path's limit. Never negative; it grows with size, round trip and rate, and shrinks with window.

    `rate`, `rtt_us`, `mss` and `window` are positive. Round trips that a connection's handshake takes are not counted.
    """
    size, rtt_us, rate, flight = (
        np.asarray(one, np.float64) for one in (size, rtt_us, rate, np.multiply(window, mss, dtype=np.float64))
    )
    pause = np.zeros(np.broadcast_shapes(size.shape, rtt_us.shape, rate.shape, flight.shape))
    left = size
    for _ in range(_DOUBLINGS):
        waiting = (left > flight) & (flight < rate * rtt_us / 1e6)
        if not waiting.any():
            break
        pause = pause + np.where(waiting, rtt_us - flight / rate * 1e6, 0.0)
        left, flight = left - flight, 2 * flight
    return pause


def transfer_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """From a request to the last byte of its answer, us: a round trip, what the path takes to carry it, and the pauses.

    With a window that fills the pipe, RTT + size / rate: what no sender can go below."""
    limit: Floats = np.asarray(rtt_us, np.float64) + np.divide(size, rate) * 1e6
    return limit + pauses_us(size, rtt_us, rate, window, mss)


def gain_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """What a start with `window` segments (at least the kernel's default) at `rate` saves of a transfer that starts
    with the kernel's default, us; never negative. Over the round trip it is how many of these are saved.

    Where the window fills the pipe it grows with the rate: of a rate that is a lower bound it is a lower bound. What
    it leaves out (loss, early exits) makes the default slower than it says."""
    default = pauses_us(size, rtt_us, rate, KERNEL_DEFAULT, mss)
    # What floating point loses is no harm.
    saved: Floats = np.maximum(default - pauses_us(size, rtt_us, rate, window, mss), 0.0)
    return saved
