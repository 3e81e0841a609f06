"""A sender in slow start, segment by segment: what a connection's tcp_info shows, independent of the code that reads
it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from testkit.proto import Value
from testkit.traffic import MSS

UNSET = 2**31 - 1


@dataclass
class Sender:
    """Tcp_info's members after `send`. It grows as in tcp_slow_start and tcp_is_cwnd_limited: by the segments that are
    acknowledged, all at once or one by one, while the window is below twice the most that were on their way."""

    window: int
    at_once: bool = True
    ssthresh: int = UNSET
    sent: int = 0
    again: int = 0
    handshake: int = 0
    most: int = field(default=0, init=False)

    def send(self, segments: int) -> Sender:
        """A piece of so many segments, in as many flights as the window needs."""
        while segments > 0:
            flight = min(segments, self.window)
            self.most = max(self.most, flight) if flight == segments else flight
            for acknowledged in [flight] if self.at_once else [1] * flight:
                full = flight == self.window
                if self.window < self.ssthresh and (full or self.window < 2 * self.most):
                    self.window += acknowledged
            self.sent += flight
            segments -= flight
        return self

    def lose(self) -> Sender:
        """One segment of a flight, found and sent again."""
        self.again += 1
        self.sent += 1
        self.window = self.ssthresh = max(2, self.window * 7 // 10)
        return self

    def info(self, algorithm: str | None = "cubic") -> dict[str, Value]:
        """For `Socket.at`; None: not reported, as in a close record."""
        named: dict[str, Value] = {} if algorithm is None else {"congestion_algorithm": algorithm}
        return {
            **named,
            "snd_cwnd": self.window,
            "snd_ssthresh": self.ssthresh,
            "data_segs_out": self.sent,
            "total_retrans": self.again + self.handshake,
            "bytes_sent": self.sent * MSS,
            "bytes_retrans": self.again * MSS,
        }


def mixed(window: int, pieces: Iterable[int], *, at_once: bool) -> Sender:
    made = Sender(window, at_once)
    for segments in pieces:
        made.send(segments)
    return made
