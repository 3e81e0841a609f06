"""Needs of an installation, and that the page matches the code."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from springtide.policy import RetentionPolicy
from springtide.sizing import SHARD_TB, SOURCES, Measured, Traffic, page_tables, size

from testkit.home import Home

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "sizing.md"
KEEP = RetentionPolicy()
UNBOUNDED = 1 << 20


def test_the_page_shows_what_the_code_computes() -> None:
    assert page_tables() in PAGE.read_text(), "write the tables of springtide.sizing.page_tables() into the page"


def test_every_figure_has_its_source() -> None:
    assert set(SOURCES) == {field.name for field in fields(Measured)}


def test_rows_and_bytes_by_hand() -> None:
    traffic = Traffic(pops=2, edges=10, connections=3_000, closes_per_s=20, poll_s=30)
    found = size(traffic, Measured(bytes_per_row=25, wire_bytes_per_row=100), KEEP, UNBOUNDED)
    # 10 edges x (3,000 / 30 s + 20 /s); a week of them at 25 bytes; 3 days of Kafka at 100.
    assert found.rows_per_s == 1_200
    assert found.samples_tb == round(1_200 * 86_400 * 7 * 25 / 1e12, 2)
    assert found.kafka_mb_per_s == 0.1
    assert found.kafka_tb == round(1_200 * 86_400 * 3 * 100 / 1e12, 2)
    assert (found.shards, found.nodes, found.sampling) == (1, 1, 1)


def test_edges_that_pace_add_paths_and_starts_by_hand() -> None:
    plain = Traffic(pops=2, edges=10, connections=3_000, closes_per_s=20, poll_s=30, prefixes=500)
    found = size(
        replace(plain, start_prefixes=400), Measured(bytes_per_path=1000, bytes_per_start_decision=100), KEEP, UNBOUNDED
    )
    before = size(plain, Measured(), KEEP, UNBOUNDED)
    # 288 rounds a day: 4 pairs and 1,000 prefixes for 90 days; 4 pairs and 800 prefixes for 400 days.
    assert found.rounds_tb == pytest.approx(before.rounds_tb + 288 * 90 * 1004 * 1000 / 1e12, abs=0.011)
    assert found.decisions_tb == pytest.approx(before.decisions_tb + 288 * 400 * 804 * 100 / 1e12, abs=0.011)
    assert (
        f"then take {size(Traffic(34, 1_000, start_prefixes=5_000), Measured(), KEEP, 16).node_tb} TB a node"
        in PAGE.read_text()
    )


def test_more_of_anything_never_needs_less() -> None:
    base = Traffic(34, 10_000)
    before = size(base, Measured(), KEEP, UNBOUNDED)
    for more in (replace(base, edges=20_000), replace(base, connections=10_000), replace(base, poll_s=10)):
        after = size(more, Measured(), KEEP, UNBOUNDED)
        assert after.rows_per_s > before.rows_per_s
        assert after.samples_tb > before.samples_tb
        assert after.shards >= before.shards
        assert after.kafka_partitions >= before.kafka_partitions
    longer = size(base, Measured(), RetentionPolicy(samples_days=70), UNBOUNDED)
    assert longer.shards > before.shards


def test_sampling_begins_where_shards_end() -> None:
    traffic = Traffic(250, 100_000)
    free = size(traffic, Measured(), KEEP, UNBOUNDED)
    assert free.sampling == 1
    bounded = size(traffic, Measured(), KEEP, 4)
    assert bounded.sampling > 1
    assert bounded.shards <= 4
    assert bounded.samples_tb / bounded.shards <= SHARD_TB


def test_the_command_and_figures_of_ones_own(home: Home, tmp_path: Path) -> None:
    plain = home.json("size", "--pops", 34, "--edges", 1000)
    bench = tmp_path / "pipeline.json"
    bench.write_text(json.dumps({"bytes_per_row": 2 * Measured().bytes_per_row, "something_else": {"a": 1}}))
    own = home.json("size", "--pops", 34, "--edges", 1000, "--measured", bench)
    assert own["samples_tb"] == pytest.approx(2 * plain["samples_tb"], abs=0.02)
    # As a bench writes it (docs/reference/benches.md).
    figure = {"name": "bytes_per_row", "min": 1, "median": 3 * Measured().bytes_per_row, "max": 900, "turns": 3}
    labelled = {**figure, "labels": {"table": "other"}, "median": 1}
    bench.write_text(json.dumps({"form": 1, "figures": [figure, labelled]}))
    own = home.json("size", "--pops", 34, "--edges", 1000, "--measured", bench)
    assert own["samples_tb"] == pytest.approx(3 * plain["samples_tb"], abs=0.03)
    assert own["measured"] == {"bytes_per_row": 3 * Measured().bytes_per_row}
    assert sorted([*own["measured"], *own["built_in"]]) == sorted(SOURCES)
    # Values that another bench measured are used beside it.
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps({name: 7.5 for name in SOURCES if name != "bytes_per_row"}))
    both = home.run("size", "--pops", 34, "--edges", 1000, "--measured", bench, "--measured", sizes).stdout
    assert "bytes_per_pair 7.5" in both
    assert "not measured here, as in docs/explanation/sizing.md: none" in both
    plain_text = home.run("size", "--pops", 34, "--edges", 1000).stdout
    assert "shards" in plain_text
    assert all(name in plain_text.splitlines()[-1] for name in SOURCES)


def test_the_benches_measure_what_the_command_takes() -> None:
    """Under the names that it knows: else a bench's figure would be left out without a word."""
    source = "".join(file.read_text() for file in (PAGE.parents[2] / "bench").rglob("*.py"))
    for name, where in SOURCES.items():
        assert f'"{name}"' in source, f"{where} has no figure {name}"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"figures": [3, {"name": "bytes_per_row"}]}',
        '{"x": 1}',
        '{"bytes_per_row": 0}',
        '{"bytes_per_row": "30"}',
    ],
)
def test_values_that_are_not_figures_are_refused(home: Home, tmp_path: Path, content: str) -> None:
    bench = tmp_path / "bench.json"
    bench.write_text(content)
    [line] = home.refused("size", "--pops", 1, "--edges", 1, "--measured", bench)
    assert str(bench) in line
