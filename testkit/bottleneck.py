"""A path with a short queue, packet by packet, and what polls and close records show of connections across it.

It knows nothing of how anything is judged: packets arrive, wait, are served or dropped; what is lost is sent again a
round trip later; the counters are the sender's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MSS = 1448


@dataclass(frozen=True)
class Path:
    rate_mbit: float
    rtt_s: float
    queue_packets: int
    # The rate of the sender's own interface, from which a burst leaves.
    line_mbit: float = 1000.0
    # Packets lost to others' traffic.
    noise: float = 0.0


@dataclass
class Counters:
    """A sender's, at one moment."""

    at: float
    acked: int = 0
    sent: int = 0
    again: int = 0
    segs_in: int = 1
    rto: int = 0


@dataclass
class Transfer:
    """A connection that sends `segments` and closes; `history` has its counters after each round trip."""

    opened: float
    history: list[Counters] = field(default_factory=list)

    def at(self, moment: float) -> Counters:
        return [one for one in self.history if one.at <= moment][-1]


def burst(packets: int, path: Path, chance: random.Random) -> int:
    """Packets of a burst into an empty queue that arrive."""
    service, gap = MSS * 8 / path.rate_mbit / 1e6, MSS * 8 / path.line_mbit / 1e6
    free_at, arrived = 0.0, 0
    for number in range(packets):
        now = number * gap
        if max(0.0, free_at - now) / service > path.queue_packets or chance.random() < path.noise:
            continue
        free_at = max(free_at, now) + service
        arrived += 1
    return arrived


def transfer(opened: float, segments: int, window: int, path: Path, chance: random.Random) -> Transfer:
    """Slow start from a window; a loss halves it, a flight of which nothing arrives is a timeout."""
    now = Counters(opened + path.rtt_s)
    found = Transfer(opened, [Counters(opened), now])
    missing, resend, size = segments, 0, window
    while missing:
        flight = min(size, missing)
        arrived = burst(flight, path, chance)
        again = min(resend, flight)
        lost = flight - arrived
        timeout = arrived == 0
        now = Counters(
            now.at + path.rtt_s + timeout * max(0.2, 2 * path.rtt_s),
            now.acked + arrived * MSS,
            now.sent + flight * MSS,
            now.again + again * MSS,
            now.segs_in + arrived,
            now.rto + timeout,
        )
        found.history.append(now)
        missing, resend = missing - arrived, resend - again + lost
        size = max(2, size // 2) if lost else min(2 * size, 1000)
    return found


def records(
    one: Transfer, host: str, cookie: int, every_s: float, phase_s: float, until: float, to: str, **more: Any
) -> Iterator[dict[str, Any]]:
    """Its samples: a poll each `every_s`, and its close."""
    number = int((one.opened - phase_s) // every_s) + 1
    end = one.history[-1].at
    while phase_s + number * every_s < min(end, until):
        moment = phase_s + number * every_s
        yield sample(host, cookie, moment, number, one.at(moment), to, **more)
        number += 1
    if end < until:
        closed = {"kind": "CLOSE", "state": "CLOSE"}
        yield sample(host, cookie, end, number, one.history[-1], to, **{**more, **closed})


def sample(host: str, cookie: int, at: float, poll: int, now: Counters, to: str, **more: Any) -> dict[str, Any]:
    """A row of tcp_samples. Polls of a host have the same number at the same moment."""
    return {
        "time_unix_us": int(at * 1e6),
        "host": host,
        "pop": host[:3],
        "boot_id": "b",
        "netns": 1,
        "poll_sequence": poll,
        "cookie": cookie,
        "kind": "POLL",
        "state": "ESTABLISHED",
        "src_ip": "::ffff:10.77.1.1",
        "src_port": 443,
        "dst_ip": to,
        "dst_port": 1024 + cookie % 60_000,
        "family": 2,
        "snd_mss": MSS,
        "rtt": 20_000,
        "bytes_acked": now.acked,
        "bytes_sent": now.sent,
        "bytes_retrans": now.again,
        "segs_in": now.segs_in,
        "total_rto": now.rto,
        "dsack_dups": 0,
        "copied_segments": 0,
        **more,
    }
