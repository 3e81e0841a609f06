"""One TCP connection over a path of known rate, round-trip time and queue, packet by packet: the counters that its
kernel would show, and the truth beside them, which no counter shows.

The sender is Linux's in what the counters depend on. Slow start and congestion avoidance grow only a window that was
filled (tcp_is_cwnd_limited); it decays while less is used and after idle times (tcp_cwnd_application_limited,
tcp_cwnd_restart). Rate samples, and which of them is kept, are the kernel's (net/ipv4/tcp_rate.c); time with data
outstanding is in jiffies. Every packet is acknowledged by itself, and lost ones are found after three later ones or by
a timeout.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

MSS = 1448
INFINITE = 2**31 - 1
JIFFY_S = 0.004
LEAST_RTO_S = 0.2
JITTER_S = 0.0001


@dataclass
class Path:
    """Bytes a second, seconds, packets. Where the rate falls: from when on, and to what."""

    rate: float
    rtt: float
    queue: int
    collapse_at: float = float("inf")
    collapsed_rate: float = 0.0
    free_at: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def carry(self, now: float) -> float | None:
        """When the acknowledgement of a packet sent now arrives; None if the queue is full."""
        packet_s = MSS / (self.collapsed_rate if now >= self.collapse_at else self.rate)
        if self.free_at - now > self.queue * packet_s:
            return None
        self.free_at = max(self.free_at, now) + packet_s
        # Less than lets packets overtake each other, and enough that no two samples are the same to the byte.
        return self.free_at + self.rtt + self.chance.uniform(0.0, JITTER_S)


@dataclass
class _Sent:
    segment: int
    number: int
    at: float
    first_at: float
    delivered: int
    delivered_at: float
    app_limited: bool


class Sender:
    """`write` and `run` in the order of time; `info` is what a poll then sees."""

    def __init__(self, path: Path, initcwnd: int, *, slow_start_after_idle: bool = True) -> None:
        self.path, self.initcwnd, self.idle_restart = path, initcwnd, slow_start_after_idle
        self.now = 0.0
        self.cwnd, self.ssthresh = initcwnd, INFINITE
        self.written = self.sent = self.una = self.numbered = 0
        self.flight: dict[int, _Sent] = {}
        self.lost: list[int] = []
        self.got: set[int] = set()
        self.acks: list[tuple[float, int, _Sent]] = []
        self.recovering_until = -1
        self.retransmitted = self.timeouts = 0
        # Rate samples.
        self.delivered = self.app_limited = 0
        self.delivered_at = self.first_at = 0.0
        self.rate = 0.0
        self.rate_app_limited = False
        # Round-trip times.
        self.srtt = self.rttvar = 0.0
        self.min_rtt = float("inf")
        # Use of the window.
        self.credit = 0.0
        self.filled = False
        self.most_out = self.used = 0
        self.usage_until = 0
        self.filled_at = self.last_sent_at = self.timer_from = 0.0
        self.busy = 0.0
        self.busy_from: float | None = None
        # The truth: when each segment first arrived.
        self.arrivals: list[float] = []

    @property
    def rto(self) -> float:
        return max(LEAST_RTO_S, self.srtt + 4 * self.rttvar) if self.srtt else 1.0

    def write(self, at: float, segments: int) -> None:
        """The application gives the socket this much to send."""
        self.run(at)
        if self.written == self.sent and not self.lost and len(self.flight) < self.cwnd:
            self.app_limited = max(1, self.delivered + len(self.flight))
        idle = at - self.last_sent_at
        if self.idle_restart and not self.flight and self.sent and idle > self.rto:
            self.ssthresh = self._remembered()
            least = min(self.initcwnd, self.cwnd)
            while (idle := idle - self.rto) > 0 and self.cwnd > least:
                self.cwnd >>= 1
            self.cwnd = max(self.cwnd, least)
            self.filled_at, self.used = at, 0
        if self.busy_from is None:
            self.busy_from = at // JIFFY_S * JIFFY_S
        self.written += segments
        self._transmit()

    def run(self, until: float) -> None:
        while True:
            ack_at = self.acks[0][0] if self.acks else float("inf")
            timer_at = self.timer_from + self.rto if self.flight or self.lost else float("inf")
            if min(ack_at, timer_at) > until:
                self.now = until
                return
            self.now = min(ack_at, timer_at)
            if ack_at <= timer_at:
                self._acknowledged(heapq.heappop(self.acks)[2])
            else:
                self._timed_out()

    def info(self) -> dict[str, Any]:
        """As tcp_info has it: segments, bytes, microseconds, bytes a second."""
        busy = self.busy + (0.0 if self.busy_from is None else self.now // JIFFY_S * JIFFY_S - self.busy_from)
        measured = self.min_rtt < float("inf")
        return {
            "snd_cwnd": self.cwnd,
            "snd_mss": MSS,
            "snd_ssthresh": self.ssthresh,
            "rtt": int(self.srtt * 1e6),
            "min_rtt": int(self.min_rtt * 1e6) if measured else 2**32 - 1,
            "delivery_rate": int(self.rate),
            "delivery_rate_app_limited": self.rate_app_limited,
            "bytes_acked": self.una * MSS,
            "bytes_sent": (self.sent + self.retransmitted) * MSS,
            "bytes_retrans": self.retransmitted * MSS,
            "total_retrans": self.retransmitted,
            "total_rto": self.timeouts,
            "dsack_dups": 0,
            "copied_segments": 0,
            "busy_time": int(busy * 1e6),
        }

    def carried(self, since: float, until: float) -> int:
        """The truth: the most segments that arrived within one unloaded round trip, of those in [since, until)."""
        times = [at for at in self.arrivals if since <= at < until]
        return max((n + 1 - bisect_left(times, at - self.path.rtt - 1e-9) for n, at in enumerate(times)), default=0)

    def _remembered(self) -> int:
        """tcp_current_ssthresh"""
        recovering = self.recovering_until >= 0
        return self.ssthresh if recovering else max(self.ssthresh, self.cwnd * 3 // 4)

    def _transmit(self) -> None:
        out = False
        while len(self.flight) < self.cwnd and (self.lost or self.sent < self.written):
            out = True
            if self.lost:
                segment = self.lost.pop(0)
                if segment in self.got:
                    continue
                self.retransmitted += 1
            else:
                segment = self.sent
                self.sent += 1
            if not self.flight:
                self.first_at = self.delivered_at = self.timer_from = self.now
            sent = _Sent(
                segment, self.numbered, self.now, self.first_at, self.delivered, self.delivered_at, self.app_limited > 0
            )
            self.numbered += 1
            self.flight[sent.number] = sent
            self.last_sent_at = self.now
            arrives = self.path.carry(self.now)
            if arrives is not None:
                heapq.heappush(self.acks, (arrives, sent.number, sent))
        if out:
            self._validate(filled=len(self.flight) >= self.cwnd and self.sent < self.written)

    def _validate(self, *, filled: bool) -> None:
        """tcp_cwnd_validate"""
        packets = len(self.flight)
        if self.una >= self.usage_until or filled or (not self.filled and packets > self.most_out):
            self.filled, self.most_out, self.usage_until = filled, packets, self.sent
        if self._limited():
            self.used, self.filled_at = 0, self.now
            return
        self.used = max(self.used, packets)
        if self.idle_restart and self.now - self.filled_at >= self.rto:
            if self.recovering_until < 0:
                used = max(self.used, self.initcwnd)
                if used < self.cwnd:
                    self.ssthresh = self._remembered()
                    self.cwnd = (self.cwnd + used) >> 1
                self.used = 0
            self.filled_at = self.now

    def _limited(self) -> bool:
        return self.filled or (self.cwnd < self.ssthresh and self.cwnd < 2 * self.most_out)

    def _acknowledged(self, sent: _Sent) -> None:
        if self.flight.pop(sent.number, None) is None and sent.segment in self.got:
            return
        self.timer_from = self.now
        if sent.segment not in self.got:
            self.got.add(sent.segment)
            self.arrivals.append(self.now)
            while self.una in self.got:
                self.got.discard(self.una) if self.una < sent.segment - 10_000 else None
                self.una += 1
        self._measure(self.now - sent.at)
        self.delivered += 1
        self._sample(sent)
        self._find_lost(sent.number)
        if self.recovering_until >= 0 and sent.number >= self.recovering_until:
            self.recovering_until = -1
        if self.recovering_until < 0 and self._limited():
            self.credit += 1.0 if self.cwnd < self.ssthresh else 1.0 / self.cwnd
            grown, self.credit = int(self.credit), self.credit % 1.0
            self.cwnd += grown
        if self.una == self.written and self.busy_from is not None:
            self.busy += self.now // JIFFY_S * JIFFY_S - self.busy_from
            self.busy_from = None
        self._transmit()

    def _measure(self, rtt: float) -> None:
        self.min_rtt = min(self.min_rtt, rtt)
        if not self.srtt:
            self.srtt, self.rttvar = rtt, rtt / 2
        self.rttvar += (abs(rtt - self.srtt) - self.rttvar) / 4
        self.srtt += (rtt - self.srtt) / 8

    def _sample(self, sent: _Sent) -> None:
        """tcp_rate_skb_delivered and tcp_rate_gen: the last rate is kept while the application sends less."""
        self.first_at = sent.at
        interval = max(sent.at - sent.first_at, self.now - sent.delivered_at)
        if self.app_limited and self.delivered > self.app_limited:
            self.app_limited = 0
        self.delivered_at = self.now
        if interval < self.min_rtt:
            return
        rate = (self.delivered - sent.delivered) * MSS / interval
        if not sent.app_limited or rate >= self.rate:
            self.rate, self.rate_app_limited = rate, sent.app_limited

    def _find_lost(self, newest: int) -> None:
        # In the order in which they were sent.
        gone = list(takewhile(lambda number: number < newest - 2, self.flight))
        self.lost += [self.flight.pop(number).segment for number in gone]
        if gone and self.recovering_until < 0:
            self.recovering_until = self.numbered
            self.cwnd = self.ssthresh = max(2, self.cwnd * 7 // 10)

    def _timed_out(self) -> None:
        self.timeouts += 1
        self.lost = sorted({*self.lost, *(sent.segment for sent in self.flight.values())})
        self.flight.clear()
        self.ssthresh, self.cwnd = max(2, self.cwnd * 7 // 10), 1
        self.recovering_until = self.numbered
        self.timer_from = self.now
        self._transmit()
