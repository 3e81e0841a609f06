"""Traffic that the emulator carried of each TCP flow: the truth for comparison with the senders' kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Flow:
    """One direction of a connection (`ADDRESS:PORT`, IPv6 in brackets) in one interval of the wall clock.

    `most_bytes` is the most that one base round trip carried; bytes are TCP's payload, what was sent again included.
    `round_trip_bytes` and its squares are sums over base round trips, counted where they ended. They follow one
    another, each from the first segment after the one before.
    """

    src: str
    dst: str
    interval_end_s: int
    most_bytes: int
    round_trip_bytes: int
    round_trip_bytes_squared: int
    bytes: int
    lost_segments: int


def gather(lines: Iterable[str]) -> list[Flow]:
    """The emulator's records, those of one flow and interval taken together."""
    found: dict[tuple[str, str, int], Flow] = {}
    for line in lines:
        new = Flow(**json.loads(line))
        key = (new.src, new.dst, new.interval_end_s)
        old = found.get(key, Flow(*key, 0, 0, 0, 0, 0))
        found[key] = Flow(
            *key,
            max(old.most_bytes, new.most_bytes),
            old.round_trip_bytes + new.round_trip_bytes,
            old.round_trip_bytes_squared + new.round_trip_bytes_squared,
            old.bytes + new.bytes,
            old.lost_segments + new.lost_segments,
        )
    return list(found.values())
