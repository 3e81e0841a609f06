"""The bench of starts: what it measures in which order, and its numbers, by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path as File
from random import Random

import jsonschema
import pytest

from bench import start_changes
from bench.start_cells import Cell, Result, Results, Slowest, cells, groups, pooled, pooled_rows, rises, row, summary
from bench.start_paths import PATHS, Path, topology
from bench.start_ways import given, means
from lab.topology import load_topology

FIFTY = Path("fifty", 50, 102, 41, 1)
SCHEMA = json.loads((File(__file__).parents[1] / "docs/reference/benches.schema.json").read_text())


def test_the_limit_is_a_round_trip_and_all_objects_at_the_rate() -> None:
    assert FIFTY.limit_ms(100_000) == pytest.approx(102 + 16)
    assert FIFTY.limit_ms(100_000, 10) == pytest.approx(102 + 160)
    assert FIFTY.window() == 400  # 637,500 bytes are 441 segments, and 400 is the most
    assert Path("slow", 1, 20, 5, 2).window() == 10


def test_ways_take_turns_on_every_cell_and_families_change() -> None:
    chosen = cells(FIFTY, (10_000, 100_000), (1, 4), edges=1, bulk=False)
    found = [one for number in range(2) for cell in chosen for one in groups(cell, number)]
    for cell in chosen:
        mine = [one for one in found if one.cell == cell]
        assert len({sum(one.way == way for one in mine) for way in ("default", "riptide", "springtide")}) == 1
        assert {one.family for one in mine} == {4, 6}
        # Each way is first as often as another, to within one.
        firsts = [one.way for one in mine[::3]]
        counts = [firsts.count(way) for way in ("default", "riptide", "springtide")]
        assert max(counts) - min(counts) <= 1
    together = [cell.at_once for cell in chosen]
    assert together == sorted(together), "what the program remembers of many would slow down one"


def test_a_cell_that_nothing_could_do_in_seconds_is_left_out() -> None:
    mexico = next(path for path in PATHS if path.poisson)
    found = cells(mexico, (100_000, 1_000_000), (1, 10, 20), edges=1, bulk=False)
    assert Cell(1_000_000, 1) in found
    assert Cell(1_000_000, 10) not in found
    assert Cell(100_000, 20) not in found
    assert all(one.at_once > 1 for one in cells(FIFTY, (100_000,), (1, 4), edges=2, bulk=False))


def test_an_object_ten_times_as_large_is_left_out_where_it_would_take_too_long() -> None:
    slowest = Slowest()
    assert slowest.allows(Cell(1_000_000, 1))
    slowest.note(Cell(50_000, 1), 0.4)
    slowest.note(Cell(100_000, 1), 2.2)
    slowest.note(Cell(100_000, 1), 0.3)
    assert not slowest.allows(Cell(1_000_000, 1))
    assert slowest.allows(Cell(100_000, 1))
    assert slowest.allows(Cell(1_000_000, 4))


def result(ms: list[float], resent: int) -> Result:
    return Result(ms, 100 * len(ms), resent)


def test_a_row_and_the_summary_are_of_what_was_measured() -> None:
    ways = {
        "default": result([300, 320, 340], 3),
        "riptide": result([660], 20),
        "springtide": result([118, 130, 118], 9),
    }
    alone = row(FIFTY, Cell(100_000, 1), ways)
    assert (alone["default_ms"], alone["springtide_ms"], alone["limit_ms"], alone["ratio_limit"]) == (
        320,
        118,
        118,
        1.0,
    )
    assert (alone["retransmit_default"], alone["retransmit_springtide"], alone["connections"]) == (0.01, 0.03, 1)
    beside = row(FIFTY, Cell(100_000, 1, bulk=True), ways | {"springtide": result([236], 0)})
    found = summary([alone, beside])
    assert (found["worst_ratio_limit_100k"], found["median_ratio_limit_100k"]) == (1.0, 1.0), "none beside a bulk flow"
    assert found["worst_retransmit_rise"] == pytest.approx(0.02)
    assert found["worst_retransmit_rise_at"] == "fifty, 100000 B, 1 from 1"
    jsonschema.validate([alone, beside], SCHEMA["properties"]["paths"])


def test_rises_are_held_against_those_of_one_half_of_the_defaults_over_the_other() -> None:
    cell, results = Cell(100_000, 4), Results(Result)
    for way, again in {"default": [1, 9, 1, 9], "springtide": [2, 2, 2, 2]}.items():
        for resent in again:
            for one in results["fifty", cell, way].begin():
                one.ms.append(300.0 if resent < 9 else 400.0)
                one.segments, one.resent = one.segments + 100, one.resent + resent
    default = results["fifty", cell, "default"]
    assert [(one.segments, one.resent) for one in (default, *default.halves())] == [(400, 20), (200, 2), (200, 18)]
    # One group has no halves.
    results["fifty", Cell(100_000, 10), "default"].begin()[0].ms.append(300.0)
    found = rises(results)
    assert {key: count for key, count in found.items() if "halves" not in key[0]} == {
        ("retransmit_rises", "springtide"): 0,
        ("p95_rises", "springtide"): 0,
        ("clear_retransmit_rises", "springtide"): 0,
        ("clear_p95_rises", "springtide"): 0,
    }
    assert (found["cells_in_halves", "default"], found["cells_in_halves", "springtide"]) == (1, 1)
    for name in ("retransmit_rises_in_halves", "p95_rises_in_halves"):
        assert found[name, "default"] == 1
    assert found["retransmit_rises_in_halves", "springtide"] == 1
    assert found["p95_rises_in_halves", "springtide"] == 0


def of_groups(groups: Sequence[tuple[float, int]]) -> Result:
    """Groups of four connections each, with these times, and so many of their 280 segments sent again."""
    found = Result()
    for ms, resent in groups:
        for one in found.begin():
            one.ms += [ms] * 4
            one.segments, one.resent = one.segments + 280, one.resent + resent
    return found


def test_what_one_group_of_few_did_is_no_clear_rise() -> None:
    default = of_groups([(300.0, 0)] * 5)
    one_of_five = of_groups([(300.0, 0)] * 4 + [(900.0, 60)])
    assert one_of_five.sends_more_again(default)
    assert one_of_five.is_later(default)
    assert one_of_five.clearly(default) == (False, False)
    assert of_groups([(900.0, 20), (700.0, 50), (800.0, 30), (900.0, 60)]).clearly(default) == (True, True)
    assert of_groups([(900.0, 60)]).clearly(default) == (False, False), "one group"
    assert Result().clearly(default) == (False, False)


@pytest.mark.parametrize("seed", range(30))
def test_the_same_is_seldom_clearly_more(seed: int) -> None:
    """Hardly any of twenty pairs that differ by chance only does so clearly; no chance fails it."""
    chance = Random(seed)
    pairs = [
        [of_groups([(chance.gauss(300, 60), chance.choice([0, 0, 5, 40])) for _ in range(6)]) for _ in "ab"]
        for _ in range(20)
    ]
    assert sum(any(one.clearly(other)) for one, other in pairs) <= 6


def test_cells_of_a_path_with_as_many_at_once_are_judged_together() -> None:
    """Each time is held against its own cell's median by default: large objects do not decide for all."""
    results: Results = defaultdict(Result)
    for size, scale in ((10_000, 1.0), (1_000_000, 10.0)):
        for way, ms, resent in (("default", 100.0, 3), ("springtide", 50.0, 1), ("riptide", 100.0, 3)):
            for repeat in range(4):
                for one in results["fifty", Cell(size, 4), way].begin():
                    # The last of one's own is late, with the small objects only.
                    late = 3.0 if (way, repeat, size) == ("springtide", 3, 10_000) else 1.0
                    one.ms.append(scale * ms * late)
                    one.segments, one.resent = one.segments + 100, one.resent + resent
    results["fifty", Cell(10_000, 10), "springtide"].ms.append(1.0)
    pools = pooled(results)
    assert len(pools) == 3
    [found] = pooled_rows(pools)
    jsonschema.validate([found], SCHEMA["properties"]["pools"])
    assert (found["at_once"], found["connections"]) == (4, 8)
    assert (found["retransmit_default"], found["retransmit_springtide"]) == (0.03, 0.01)
    assert 0.5 < found["p95_per_default"] <= 1.5
    counted = rises(pools)
    assert (counted["retransmit_rises", "springtide"], counted["retransmit_rises", "riptide"]) == (0, 0)
    assert counted["cells_in_halves", "default"] == 1


def test_riptide_averages_all_windows_of_a_destination() -> None:
    shown = [
        f"0 0 10.72.0.3:80 10.72.1.1:5000 cubic wscale:10,10 rto:304 cwnd:{window} bytes_acked:1" for window in (20, 40)
    ]
    shown += ["0 0 [fd72::3]:80 [fd72:1::1]:5001 cubic cwnd:900", "0 0 10.72.0.3:80 10.99.1.1:5000 cubic cwnd:7"]
    assert means("\n".join(shown), FIFTY.prefixes()) == {"10.72.1.0/24": 30, "fd72:1::/48": 100}


def test_given_values_of_two_edges_are_the_path_together() -> None:
    one, two = given([FIFTY], 1), given([FIFTY], 2)
    assert [len(one), len(two)] == [1, 2]
    assert sum(entries[0]["start_rate"] for entries in two.values()) == one["springtide-1"][0]["start_rate"]


def test_the_lab_has_every_path_as_named(tmp_path: File) -> None:
    made = topology(PATHS)
    file = tmp_path / "starts.yaml"
    file.write_text(json.dumps(made.model_dump(mode="json", exclude_none=True)))
    read = load_topology(file)
    assert {path.name: read.rtt("srv", path.name) for path in PATHS} == {path.name: path.rtt_ms for path in PATHS}
    assert {edge for edge in read.edges() if read.enforced_by(edge) == "bpf"} == {"springtide-1", "springtide-2"}
    assert len(PATHS) >= 8


def seen(number: int, way: str, ms: float, resent: int, count: int = 5) -> start_changes.Seen:
    result = Result(ms=[ms] * count, segments=70 * count, resent=resent)
    return start_changes.Seen(number, way, start_changes.ALONE, result)


def test_a_changed_path_is_safe_once_ten_connections_send_again_no_more_than_the_default() -> None:
    default = [seen(number, "default", 400, 7) for number in (0, 1, 2, 3)]
    ours = [seen(0, "springtide", 150, 0), seen(1, "springtide", 500, 100), seen(1, "springtide", 300, 60)]
    later = [seen(2, "springtide", 200, 2), seen(2, "springtide", 200, 3), seen(3, "springtide", 160, 0)]
    assert start_changes.connections_until_safe([*default, *ours, *later]) == 10
    assert start_changes.rounds_until([*default, *ours, *later], 140, gain=False) == 1
    # Nine tenths of 260 ms are saved in the third round.
    assert start_changes.rounds_until([*default, *ours, *later], 140, gain=True) == 2
    assert start_changes.rounds_until([*default, *ours], 140, gain=False) == 3


def test_paths_change_as_the_bench_says() -> None:
    worse = start_changes.changed(start_changes.WORSE[0])
    assert (worse.rate_mbit, worse.queue) == (77 / 4, 9)
    better = start_changes.changed(start_changes.BETTER[0])
    assert (better.rate_mbit, better.queue) == (80, start_changes.BETTER[0].queue)
