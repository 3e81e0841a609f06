"""The law of starts: what always holds, whatever it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from springtide._core import MAX_RATE
from springtide.laws.columns import same
from springtide.laws.start.evidence import OBSERVED
from springtide.laws.start.law import decide

from testkit.start_law import Loop, Rows, good, group, policy, proved, row, trains, well

RATES = st.floats(1e3, 1e9) | st.sampled_from([0.0, 2.0**48, float("nan"), float("inf")])
COUNTS = st.integers(0, 400)


@st.composite
def observed(draw: st.DrawFn) -> Rows:
    rows = []
    for name in draw(st.sets(st.sampled_from("abcd"), min_size=1)):
        one = row(name)
        for column in OBSERVED.names or ():
            kind = OBSERVED[column].kind
            if kind == "f":
                one[column] = draw(RATES)
            elif kind == "u" and column != "ip_version":
                one[column] = draw(COUNTS)
        one["mss"] = draw(st.sampled_from([1448.0, 1208.0, float("nan")]))
        one["min_rtt_us"] = draw(st.sampled_from([1e4, 1e5, 3e5, float("nan")]))
        rows.append(one)
    return np.concatenate(rows)


HISTORIES = st.lists(observed(), min_size=1, max_size=12)
GROUPS = group("a", "b", "c", "d")


@given(HISTORIES, st.booleans(), st.integers(10, 400))
@settings(max_examples=150, deadline=None)
def test_nothing_is_above_its_bounds_and_nothing_rises_unjudged(history: list[Rows], careful: bool, cmax: int) -> None:
    law = policy(careful=careful, cmax=cmax, min_connections=1, trial_flights=5)
    loop = Loop(law, GROUPS)
    before: dict[bytes, Any] = {}
    for seen in history:
        decided = loop.round(seen)
        for one in decided:
            last = before.get(bytes(one["destination"]))
            for kind in ("", "trial_"):
                assert one[f"{kind}window"] == 0 or 10 <= one[f"{kind}window"] <= cmax
                assert (one[f"{kind}window"] > 0) == (one[f"{kind}connection_rate"] > 0)
                assert one[f"{kind}path_rate"] >= one[f"{kind}connection_rate"] or one[f"{kind}path_rate"] > 0
                assert one[f"{kind}connection_rate"] <= MAX_RATE
                assert one[f"{kind}path_rate"] <= MAX_RATE
            for name in ("window", "connection_rate", "path_rate"):
                old = 0 if last is None else last[name]
                if one[name] > old:
                    assert last is not None
                    assert last["trial_permille"] > 0
                    assert one[name] <= last[f"trial_{name}"]
                    # It was judged: by its own flights, or the group's.
                    assert last["trial_borrowed"] or one["flights_1"] + last["trial_flights"] >= 3
        before = {bytes(one["destination"]): one.copy() for one in decided}


@given(HISTORIES, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_same_rows_whatever_their_order(history: list[Rows], random: Any) -> None:
    loop = Loop(policy(min_connections=1, trial_flights=5), GROUPS)
    for seen in history:
        last, now = loop.last.copy(), loop.now
        decided = loop.round(seen)
        mixed = [random.sample(range(len(rows)), len(rows)) for rows in (seen, last, GROUPS)]
        again = decide(now, loop.policy, seen[mixed[0]], last[mixed[1]], GROUPS[mixed[2]])
        assert same(decided, again)


@given(HISTORIES)
@settings(max_examples=60, deadline=None)
def test_frozen_keeps_what_is_given(history: list[Rows]) -> None:
    loop = Loop(policy(min_connections=1, trial_flights=5), GROUPS)
    for seen in history:
        loop.round(seen)
        last, now = loop.last.copy(), loop.now
        found = decide(now, loop.policy, seen, last, GROUPS, ("ams",))
        by_name = {bytes(one["destination"]): one for one in last}
        for one in found:
            old = by_name.get(bytes(one["destination"]))
            if old is None or now >= int(old["last_evidence"]) + loop.policy.start.ttl_s:
                assert one["window"] == 0
                continue
            for name in ("window", "connection_rate", "path_rate", "trial_window", "trial_permille", "share_log2"):
                assert one[name] == old[name] or (np.isnan(one[name]) and np.isnan(old[name]))


@pytest.mark.parametrize("name", ["path_rate", "share_rate", "reached_rate", "train_rate"])
def test_no_rate_of_a_broken_row_is_decided_on(name: str) -> None:
    loop = Loop(policy())
    for _ in range(12):
        values: dict[str, Any] = {"path_rate": 2e6, "path_buckets": 10, "reached_rate": 1e6, "reached_connections": 30}
        values |= {"share_rate": 1e6, "share_connections": 20, **trains(2e6), name: 2.0**48}
        found = loop.round(row(connections=100, **values, **good()))
        for column in ("connection_rate", "path_rate", "trial_connection_rate", "trial_path_rate"):
            assert found[column][0] <= MAX_RATE


def test_what_is_counted_over_rounds_stops_at_its_highest() -> None:
    loop = Loop(policy())
    loop.in_use(1e6)
    for _ in range(4):
        # A broken row's, of which none is lost: the values stay in use.
        found = loop.round(proved(1e6, **well(flights_0=100, segments_0=2**32 - 1)))
    assert found["window"][0] > 0
    assert found["used_segments"][0] == 2**32 - 1


@pytest.mark.parametrize(("permille", "stays"), [(780, True), (779, False), (950, True)])
def test_a_part_that_is_met_exactly_is_met(permille: int, stays: bool) -> None:
    """Parts of a thousand come out of the store as numbers of four bytes."""
    loop = Loop(policy())
    before = loop.in_use(1e6)["connection_rate"][0]
    values = {**well(flights_0=100), "carried_0": float(np.float32(permille / 1000))}
    found = loop.round(proved(1e6, **values))
    assert (found["connection_rate"][0] >= before) == stays
