"""The bench of the pipeline replays rows like the captured ones."""

from __future__ import annotations

from collections import Counter

from bench.pipeline.traffic import captured, replay, sample_type
from testkit.proto import FIELDS


def test_replayed_rows_are_the_captured_ones_as_they_live_on() -> None:
    rows = []
    for batch in replay(sockets=400, polls=3):
        end, position = len(batch.envelope), 0
        while position < end:
            # Each row comes after a tag and a length of one or two bytes.
            length, start = batch.envelope[position + 1], position + 2
            if length >= 0x80:
                length, start = length & 0x7F | batch.envelope[position + 2] << 7, position + 3
            row = sample_type()()
            row.ParseFromString(batch.envelope[start : start + length])
            rows.append(row)
            position = start + length
    polls = [row for row in rows if row.kind == 1]
    assert len(polls) == 1200
    assert Counter(row.poll_sequence for row in polls) == {1000: 400, 1001: 400, 1002: 400}
    # Fields of a capture's sockets, and no others.
    assert {field.name for row in polls for field, _ in row.ListFields()} <= set(FIELDS)
    assert {row.congestion_algorithm for row in polls} == {sample["congestion_algorithm"] for sample in captured()}
    # Counters only grow, and about half of the sockets are idle.
    lives: dict[int, list[int]] = {}
    for row in polls:
        lives.setdefault(row.cookie, []).append(row.bytes_acked)
    assert all(life == sorted(life) for life in lives.values())
    whole = [life for life in lives.values() if len(life) == 3]
    idle = sum(life[0] == life[-1] for life in whole)
    assert 0.4 < idle / len(whole) < 0.6
