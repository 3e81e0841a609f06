"""The bench of the round tables runs, at a size where its ratios mean nothing."""

from __future__ import annotations

from bench.rounds import measure


def test_the_bench_measures_what_it_says() -> None:
    result = measure(rows=8_000, prefixes=300, rounds=3)
    assert result["rows"] == 8_000
    # The round that was computed, and two like it.
    assert result["prefix_rows"] % 3 == 0
    assert result["pair_rows"] % 3 == 0
    assert result["rollup_ratio"] > 0
    assert result["peak_memory_gb"] > 0
