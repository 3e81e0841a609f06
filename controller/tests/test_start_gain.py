"""Waits of slow start, against a sender simulated segment by segment."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide.laws.start.gain import gain_us, pauses_us, transfer_us

sizes = st.integers(1, 20_000_000)
rtts = st.floats(100, 2e6)
rates = st.floats(10_000, 1e10)
windows = st.integers(10, 1000)
segments = st.sampled_from([536, 1220, 1448, 8948])


def simulated_us(size: int, rtt_us: float, rate: float, window: int, mss: int) -> float:
    """Segments that leave as the window lets them, are served one by one at the rate, and acknowledged a round trip
    after that; each acknowledgement lets one more leave than it acknowledges. The request took the round trip's other
    half."""
    left, free_at, now, last = size, 0.0, 0.0, 0.0
    acknowledged: deque[float] = deque()
    may_leave = window
    while left > 0:
        while may_leave > 0 and left > 0:
            length = min(mss, left)
            left -= length
            may_leave -= 1
            free_at = max(free_at, now) + length / rate * 1e6
            last = free_at
            acknowledged.append(free_at + rtt_us)
        if left > 0:
            now = acknowledged.popleft()
            may_leave += 2
    return rtt_us + last


@given(size=st.integers(1, 3_000_000), rtt=rtts, rate=rates, window=windows, mss=segments)
def test_it_is_what_a_simulated_sender_takes(size: int, rtt: float, rate: float, window: int, mss: int) -> None:
    """But for the first segment of each flight, which is served before its acknowledgement travels."""
    model = float(transfer_us(size, rtt, rate, window, mss))
    real = simulated_us(size, rtt, rate, window, mss)
    flights = max(0.0, np.ceil(np.log2(size / (window * mss) + 1)))
    assert model <= real * (1 + 1e-9)
    assert real <= (model + flights * mss / rate * 1e6) * (1 + 1e-9)


@given(size=sizes, rtt=rtts, rate=rates, window=windows, mss=segments, factor=st.floats(1, 10))
def test_the_gain_is_never_negative_and_grows(
    size: int, rtt: float, rate: float, window: int, mss: int, factor: float
) -> None:
    gain = gain_us(size, rtt, rate, window, mss)
    slack = 1e-9 * (gain + rtt)
    assert gain >= 0
    assert gain_us(size, rtt, rate, 10, mss) == 0
    assert gain_us(size, rtt, rate, int(window * factor), mss) >= gain - slack
    # No more than what the default waits, and never below what no sender can go below.
    assert gain <= pauses_us(size, rtt, rate, 10, mss)
    assert transfer_us(size, rtt, rate, window, mss) >= rtt + size / rate * 1e6 - slack
    # With a window that fills the pipe it grows with the rate, the round trip and the size.
    fills = np.ceil(rate * rtt / 1e6 * factor**2 / mss) + 10
    whole = gain_us(size, rtt, rate, fills, mss)
    assert gain_us(size, rtt, rate * factor, fills, mss) >= whole - slack
    assert gain_us(size, rtt * factor, rate, fills, mss) >= whole - slack
    assert gain_us(int(size * factor), rtt, rate, fills, mss) >= whole - slack


def test_what_ten_segments_carry_gains_nothing() -> None:
    assert gain_us(14_480, 1e6, 1e9, 400, 1448) == 0
    assert gain_us(14_481, 1e6, 1e9, 400, 1448) > 0


@pytest.mark.parametrize(
    ("rate_mbit", "rtt_ms", "default_ms", "limit_ms"),
    [(50, 102, 318, 119), (77, 102, 314, 114), (200, 150, 456, 162)],
)
def test_it_is_what_real_connections_took_in_the_lab(
    rate_mbit: float, rtt_ms: float, default_ms: float, limit_ms: float
) -> None:
    """100 kB, p50 of connections over emulated paths on which nothing was lost; with 400 segments at the rate."""
    rate = rate_mbit * 125_000
    assert transfer_us(100_000, rtt_ms * 1000, rate, 10, 1448) / 1000 == pytest.approx(default_ms, rel=0.02)
    assert transfer_us(100_000, rtt_ms * 1000, rate, 400, 1448) / 1000 == pytest.approx(limit_ms, rel=0.06)
