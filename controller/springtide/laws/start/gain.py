"""The time that a start at the proved rate saves, over arrays: springtide-core's arithmetic (core/src/gain.rs)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from springtide import _core

Floats = NDArray[np.float64]


def pauses_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """Time that a sender waits in all for acknowledgements while it sends `size` bytes, us; arrays broadcast.

    `rate` (bytes/s), `rtt_us`, `mss` (bytes) and `window` (segments) are positive.
    """
    return _of("pauses", size, rtt_us, rate, window, mss)


def transfer_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """From a request to the last byte of its answer, us; with a window that fills the pipe RTT + size / rate."""
    return _of("transfer", size, rtt_us, rate, window, mss)


def gain_us(size: ArrayLike, rtt_us: ArrayLike, rate: ArrayLike, window: ArrayLike, mss: ArrayLike) -> Floats:
    """Time that a start with `window` segments saves of a transfer that starts with the kernel's default, us; never
    negative."""
    return _of("gain", size, rtt_us, rate, window, mss)


def _of(what: Literal["pauses", "transfer", "gain"], *arrays: ArrayLike) -> Floats:
    alike = np.broadcast_arrays(*(np.asarray(one, np.float64) for one in arrays))
    out = np.empty(alike[0].size)
    _core.start_us(what, [one.ravel() for one in alike], out)
    return out.reshape(alike[0].shape)
