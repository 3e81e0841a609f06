"""A model of how fresh connections share a bottleneck: packets, a tail-drop queue, and what Linux's TCP does with them.

A pure function of its arguments, without chance: `completion(path, size, window, rate, at_once)`. Packets leave the
senders over links that are as good as infinitely fast, wait in one queue, are served at the path's rate, and are
acknowledged one round trip later. Senders do what Linux does: CUBIC's slow start with HyStart (tcp_cubic.c), SACK with
RACK's order of sending (RFC 8985; the path never reorders), proportional rate reduction (RFC 6937), a tail loss probe
after two round trips, and a timeout of at least 200 ms. A paced connection sends its first ten segments at once, as the
kernel does (tcp_update_skb_after_send). The others go at the smaller of its cap and twice its window a round trip (1.2
times outside of slow start). Its cap is lifted once `lift_bytes` are acknowledged. Left out: delayed acknowledgements,
the handshake, the receiver's window, random loss, jitter.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from statistics import median

SEGMENT = 1448
# On the wire: TCP with timestamps over IPv4.
WIRE = 1500
DEFAULT_WINDOW = 10
# Seconds between the connections of a group: what opening one takes.
APART_S = 0.001
BETA, CUBIC_C = 0.7, 0.4
HYSTART_LOW, HYSTART_SAMPLES = 16, 8
RTO_MIN_S = 0.2
NO_RATE = math.inf


@dataclass(frozen=True)
class Path:
    """`queue` in packets; `flows` are bulk connections beside it, which leave an equal share to each fresh one."""

    rate_mbit: float
    rtt_ms: float
    queue: int
    flows: int = 0

    def limit_ms(self, size: int, at_once: int = 1) -> float:
        """The least time of any sender: a round trip, and the time that the link takes for all of them."""
        return self.rtt_ms + at_once * size * 8 / self.rate_mbit / 1000

    def left(self, at_once: int) -> Path:
        """The path that bulk connections leave to `at_once` fresh ones: a share of the rate and a part of the queue.
        CUBIC's sawtooth (0.7 to 1 of what pipe and queue hold) keeps the rest filled, which lengthens the round
        trip."""
        if not self.flows:
            return self
        service_ms = WIRE * 8 / self.rate_mbit / 1000
        pipe = self.rtt_ms / service_ms
        standing = max(0, int((1 + BETA) / 2 * (pipe + self.queue) - pipe))
        share = self.rate_mbit * at_once / (at_once + self.flows)
        return Path(share, self.rtt_ms + standing * service_ms, max(1, self.queue - standing))


class _Sender:
    """One connection; times in s, windows in segments, sequence numbers are those of segments."""

    def __init__(self, at: float, size: int, window: int, cap: float, paced: bool, lift: int) -> None:
        self.at, self.size, self.cwnd = at, size, float(window)
        self.cap, self.paced, self.lift = cap, paced, lift
        self.first = 0 if window > DEFAULT_WINDOW else lift
        self.ssthresh = math.inf
        self.next, self.una, self.pipe = 0, 0, 0
        # The number of each segment's last sending (-1: delivered), and its time.
        self.sent = [0] * size
        self.sent_at = [0.0] * size
        # Sendings that are not known to have arrived, in their order: (number, segment).
        self.flying: deque[tuple[int, int]] = deque()
        self.lost: deque[int] = deque()
        self.number = self.delivered = self.resent = 0
        self.srtt = self.rttvar = 0.0
        self.min_rtt = math.inf
        self.recovery, self.recover_from, self.prr_delivered, self.prr_out = -1, 0, 0, 0
        self.pace_at, self.wake_at = 0.0, -1.0
        self.timer_at, self.armed, self.probed, self.backoff = math.inf, False, False, 1
        self.round_end, self.round_start, self.last_ack, self.samples, self.low = 0, at, at, 0, math.inf
        self.w_max, self.epoch = 0.0, -1.0
        self.done_at = math.inf
        # The first flights end with what was sent when the cap was over, or would have been; of a burst of more than
        # the default when the first round trip was.
        self.first_end, self.first_resent = -1, 0

    def pacing(self) -> float:
        """Segments a second."""
        if self.srtt <= 0:
            return self.cap
        gain = 2.0 if self.cwnd < self.ssthresh / 2 else 1.2
        return min(self.cap, gain * max(self.cwnd, self.pipe, 1.0) / self.srtt)

    def may_send(self) -> bool:
        return self.pipe < int(self.cwnd) and (bool(self.lost) or self.next < self.size)


class _Link:
    """The queue, the senders and the clock."""

    def __init__(self, path: Path, senders: list[_Sender]) -> None:
        self.rtt, self.queue = path.rtt_ms / 1000, path.queue
        self.service = WIRE * 8 / (path.rate_mbit * 1e6)
        self.free_at = 0.0
        self.senders = senders
        # (time, order, sender, what it is, number, segment); of acknowledgements and of timers.
        self.events: list[tuple[float, int, int, int, int, int]] = []
        self.order = 0

    def later(self, at: float, which: int, kind: int, number: int = 0, segment: int = 0) -> None:
        self.order += 1
        heappush(self.events, (at, self.order, which, kind, number, segment))

    def run(self) -> None:
        for which, one in enumerate(self.senders):
            self.later(one.at, which, _WAKE)
        left = len(self.senders)
        while left and self.events:
            now, _, which, kind, number, segment = heappop(self.events)
            one = self.senders[which]
            if one.una >= one.size:
                continue
            if kind == _ACK:
                self._acknowledged(now, one, number, segment)
                left -= one.una >= one.size
            elif kind == _TIMER:
                one.armed = False
                if now < one.timer_at:
                    # It was put off meanwhile.
                    one.armed = True
                    self.later(one.timer_at, which, _TIMER)
                    continue
                self._timed_out(now, one, which)
            self._send(now, one, which)

    def _send(self, now: float, one: _Sender, which: int) -> None:
        while one.may_send():
            if one.paced and one.pace_at > now + 1e-9:
                if one.wake_at != one.pace_at:
                    one.wake_at = one.pace_at
                    self.later(one.pace_at, which, _WAKE)
                return
            if one.lost:
                segment = one.lost.popleft()
                if one.sent[segment] < 0:
                    continue
                one.resent += 1
                one.first_resent += one.first_end < 0 or segment < one.first_end
            else:
                segment = one.next
                one.next += 1
            self._put(now, one, which, segment)
            if one.paced and one.number > DEFAULT_WINDOW:
                one.pace_at = max(one.pace_at, now) + 1.0 / one.pacing()

    def _put(self, now: float, one: _Sender, which: int, segment: int) -> None:
        one.number += 1
        one.pipe += 1
        one.prr_out += 1
        one.sent[segment], one.sent_at[segment] = one.number, now
        one.flying.append((one.number, segment))
        waiting = (self.free_at - now) / self.service
        if waiting < self.queue + 1:
            self.free_at = max(self.free_at, now) + self.service
            self.later(self.free_at + self.rtt, which, _ACK, one.number, segment)
        self._arm(now, one, which)

    def _arm(self, now: float, one: _Sender, which: int) -> None:
        rtt = one.srtt or self.rtt
        if one.recovery < 0 and not one.probed:
            wait = 2 * rtt + (0.2 if one.pipe == 1 else 0.002)
        else:
            wait = (rtt + max(4 * one.rttvar, RTO_MIN_S)) * one.backoff
        one.timer_at = now + wait
        if not one.armed:
            one.armed = True
            self.later(one.timer_at, which, _TIMER)

    def _timed_out(self, now: float, one: _Sender, which: int) -> None:
        if one.recovery < 0 and not one.probed and one.flying:
            # A tail loss probe: new data, else the last segment again.
            one.probed = True
            if one.next < one.size:
                segment = one.next
                one.next += 1
            else:
                segment = max(at for _, at in one.flying)
                one.resent += 1
                one.pipe -= 1
            self._put(now, one, which, segment)
            return
        one.backoff *= 2
        one.ssthresh = max(2.0, BETA * one.cwnd)
        one.cwnd, one.recovery, one.pipe = 1.0, -1, 0
        one.flying.clear()
        one.lost = deque(at for at in range(one.una, one.next) if one.sent[at] >= 0)
        one.pace_at = now

    def _acknowledged(self, now: float, one: _Sender, number: int, segment: int) -> None:
        if one.sent[segment] < 0:
            return
        is_last_sending = one.sent[segment] == number
        rtt = now - one.sent_at[segment] if is_last_sending else 0.0
        one.sent[segment] = -1
        one.delivered += 1
        if is_last_sending:
            one.pipe -= 1
            self._measured(one, rtt)
        one.backoff, one.probed = 1, False
        while one.una < one.size and one.sent[one.una] < 0:
            one.una += 1
        if one.una >= one.size:
            one.done_at = now
            return
        newly_lost = self._lose(one, number)
        if one.paced and one.cap < NO_RATE and one.delivered * SEGMENT >= one.lift:
            one.cap = NO_RATE
            one.first_end = -1
        if one.first_end < 0 and one.cap == NO_RATE and one.delivered * SEGMENT >= one.first:
            one.first_end = one.next
        if one.recovery >= 0 and one.una >= one.recovery:
            one.recovery = -1
            one.cwnd = min(one.cwnd, max(one.ssthresh, 2.0)) if one.cwnd > one.ssthresh else one.ssthresh
        if newly_lost and one.recovery < 0:
            one.recovery = one.next
            one.recover_from = max(1, one.pipe + newly_lost)
            one.w_max, one.epoch = one.cwnd, -1.0
            one.ssthresh = max(2.0, BETA * one.cwnd)
            one.prr_delivered = one.prr_out = 0
        if one.recovery >= 0:
            self._reduce(one)
        else:
            self._grow(now, one, rtt)

    def _lose(self, one: _Sender, number: int) -> int:
        """Takes for lost what was sent before a sending that arrived, and did not arrive itself."""
        newly = 0
        while one.flying and one.flying[0][0] <= number:
            before, at = one.flying.popleft()
            if one.sent[at] == before and before < number:
                one.lost.append(at)
                one.pipe -= 1
                newly += 1
        return newly

    def _measured(self, one: _Sender, rtt: float) -> None:
        one.min_rtt = min(one.min_rtt, rtt)
        if one.srtt:
            one.rttvar += (abs(rtt - one.srtt) - one.rttvar) / 4
            one.srtt += (rtt - one.srtt) / 8
        else:
            one.srtt, one.rttvar = rtt, rtt / 2

    def _reduce(self, one: _Sender) -> None:
        """Proportional rate reduction with the slow-start bound."""
        one.prr_delivered += 1
        if one.pipe > one.ssthresh:
            count = math.ceil(one.prr_delivered * one.ssthresh / one.recover_from) - one.prr_out
        else:
            count = min(int(one.ssthresh) - one.pipe, max(one.prr_delivered - one.prr_out, 1) + 1)
        one.cwnd = float(one.pipe + max(count, 1 if one.prr_out == 0 else 0))

    def _grow(self, now: float, one: _Sender, rtt: float) -> None:
        limited = one.next >= one.size and not one.lost
        if one.cwnd < one.ssthresh:
            self._hystart(now, one, rtt)
            if one.cwnd < one.ssthresh and not limited:
                one.cwnd += 1.0
            return
        if one.epoch < 0:
            one.epoch = now
            one.w_max = max(one.w_max, one.cwnd)
        k = ((one.w_max - one.cwnd) / CUBIC_C) ** (1 / 3) if one.w_max > one.cwnd else 0.0
        target = one.w_max + CUBIC_C * (now - one.epoch + one.srtt - k) ** 3
        friendly = 3 * (1 - BETA) / (1 + BETA)
        one.cwnd += max(friendly, min(target - one.cwnd, one.cwnd / 2)) / one.cwnd

    def _hystart(self, now: float, one: _Sender, rtt: float) -> None:
        """A round ends with the segment that was next when it began."""
        if one.una > one.round_end:
            one.round_end, one.round_start, one.last_ack = one.next, now, now
            one.samples, one.low = 0, math.inf
        if one.cwnd < HYSTART_LOW:
            return
        found = False
        if now - one.last_ack <= 0.002:
            one.last_ack = now
            threshold = one.min_rtt if one.paced else one.min_rtt / 2
            found = now - one.round_start > threshold
        if rtt > 0:
            if one.samples < HYSTART_SAMPLES:
                one.samples += 1
                one.low = min(one.low, rtt)
            elif one.low > one.min_rtt + min(max(one.min_rtt / 8, 0.004), 0.016):
                found = True
        if found:
            one.ssthresh = one.cwnd


_WAKE, _ACK, _TIMER = 0, 1, 2


@lru_cache(maxsize=200_000)
def completions(
    path: Path,
    size: int,
    window: int,
    rate: float | None,
    at_once: int = 1,
    lift_bytes: int = 60_000,
    is_young: bool = False,
) -> tuple[tuple[float, int, int], ...]:
    """A tuple for each of `at_once` fresh connections: ms from its request to its last byte, segments sent again, and
    those of them from its first flights.

    `size` in bytes, `window` in segments; `rate` in bytes/s is what they share equally, None is a burst, `NO_RATE` is
    paced without a cap. `is_young`: first flights are those of the first round trip, whatever was given."""
    left = path.left(at_once)
    segments = max(1, math.ceil(size / SEGMENT))
    cap = NO_RATE if rate is None or rate == NO_RATE else rate / at_once / SEGMENT
    paced = rate is not None
    senders = [
        _Sender(number * APART_S, segments, window, cap, paced, lift_bytes * (4 if at_once > 1 else 1))
        for number in range(at_once)
    ]
    for one in senders:
        one.first = 0 if is_young else one.first
    if paced:
        # The handshake has measured a round trip.
        for one in senders:
            one.srtt, one.rttvar, one.min_rtt = left.rtt_ms / 1000, left.rtt_ms / 2000, left.rtt_ms / 1000
    _Link(left, senders).run()
    return tuple(((one.done_at - one.at) * 1000, one.resent, one.first_resent) for one in senders)


def completion(path: Path, size: int, window: int, rate: float | None, at_once: int = 1) -> tuple[float, float]:
    """The median time of `at_once` fresh connections, ms, and the mean of segments sent again; see `completions`."""
    found = completions(path, size, window, rate, at_once)
    return median(ms for ms, *_ in found), sum(resent for _, resent, _ in found) / len(found)
