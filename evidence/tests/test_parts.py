"""Checks what the parts make of measurements, by hand; nothing is measured here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any, cast

import numpy as np
import pytest

from bench.page import Loads
from bench.recovery import Seen
from bench.start_cells import Cell, Result, Results
from bench.start_paths import PATHS, Path, topology
from evidence import article, bbr, changes, live, neighbours, page, paths, recovery, riptide
from evidence.fetching import turns
from lab.lab import Lab

FIFTY = Path("fifty", 50, 102, 41, 1)
WAYS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evidence.part.DRAWS", 20)


def test_ways_take_turns_and_each_is_first_as_often_in_both_families() -> None:
    found = turns(WAYS, [Cell(100_000, 1)])
    assert Counter((one.way, one.family) for one in found[:: len(WAYS)]) == dict.fromkeys(
        [(way, family) for way in WAYS for family in (4, 6)], 1
    )
    assert {one.way for one in found[:3]} == {*WAYS}
    two = turns(WAYS[:2], [Cell(10_000, 1), Cell(100_000, 1)])
    assert [(one.way, one.cell.size) for one in two] == [
        *(("a", 10_000), ("b", 10_000), ("a", 100_000), ("b", 100_000)),
        *(("b", 10_000), ("a", 10_000), ("b", 100_000), ("a", 100_000)),
    ]


class Host:
    """A lab whose one edge shows these windows towards the client of `FIFTY`, and keeps what it was given to route."""

    def __init__(self, *rounds: Sequence[int]) -> None:
        self.topology = topology([FIFTY], ["riptide-1"], [])
        self._rounds, self.routed = list(rounds), list[str]()

    def exec(self, edge: str, command: Sequence[str], **options: Any) -> CompletedProcess[str]:
        self.routed += options.get("input", "").split("\n")[:-1]
        return CompletedProcess([*command], 0, "", "")

    def shown(self) -> dict[str, list[int]]:
        return {"10.72.1.1/32": list(self._rounds.pop(0))}


def test_riptide_smooths_with_history_stays_within_its_bounds_and_forgets() -> None:
    host = Host([20, 40], [90, 90], [900], [])
    agent = riptide.Riptide(cast(Lab, host), [FIFTY], {"riptide-1": 100})
    for second in range(3):
        agent._round("riptide-1", host.shown(), float(second))
    # 30; half of that and of 90; half of 60 and of 900 is above cmax.
    assert [line.split()[-1] for line in host.routed] == ["30", "60", "100"]
    assert [at for at, _ in agent.changes] == [0, 1, 2]
    assert host.routed[0] == "route replace 10.72.1.1/32 via 10.72.0.254 dev wan0 proto static initcwnd 30"
    host.routed.clear()
    agent._round("riptide-1", {}, 2 + riptide.TTL_S)
    assert host.routed == []
    agent._round("riptide-1", {}, 3 + riptide.TTL_S)
    assert host.routed == ["route del 10.72.1.1/32 via 10.72.0.254 dev wan0 proto static"]
    assert agent.window("riptide-1", "10.72.1.1/32") is None


def of_groups(ms: float, resent: int) -> Result:
    """Four groups of one connection each, whose times differ a little."""
    found = Result()
    for at in range(4):
        for one in found.begin():
            one.ms.append(ms + at)
            one.segments, one.resent = one.segments + 100, one.resent + resent
    return found


def test_ratios_are_medians_over_paths_and_shares_are_means() -> None:
    chosen = PATHS[:2]
    ms = {"default": 400.0, "riptide": 200.0, "springtide": 100.0}
    resent = {"static100": 20, "routes": 1, "riptide": 3}
    results = Results(Result)
    for path in chosen:
        for count in (1, paths.TOGETHER):
            for way in paths.WAYS:
                one = of_groups(ms.get(way, 300.0), resent.get(way, 0))
                results[path.name, Cell(paths.SIZE, count), way] = one
    found = paths.claims_of(chosen, results, paths.WAYS)
    assert found.keys() == {claim.id for claim in paths.CLAIMS}
    assert found["ours-riptide"].ours == pytest.approx(101.5 / 201.5)
    assert (found["static-loss"].ours, found["routes-resent"].ours) == pytest.approx((20, -2))
    assert found["ours-limit"].low <= found["ours-limit"].ours <= found["ours-limit"].high
    # A path that one way did not come to the end of is left out, and the law's edge may be.
    results[chosen[0].name, Cell(paths.SIZE, 1), "routes"] = Result()
    assert paths.complete(chosen, results, paths.WAYS) == [chosen[1]]
    assert "routes-resent" not in paths.claims_of(chosen, results, paths.QUICK.ways)


def test_lossy_transfers_are_those_of_which_either_end_sent_anything_again() -> None:
    seen = Seen(ms=[100, 500, 300, 100], syn=[0, 1, 0, 0], synack=[0] * 4, again=[0, 0, 1, 0], timeouts=[0] * 4)
    assert recovery.lossy(seen).tolist() == [0, 1, 1, 0]
    found = recovery.cost(seen)
    assert (found["lossy-share"].ours, found["lossy-cost"].ours, found["lossy-single"].ours) == (50, 4, 100)
    assert found["lossy-timeouts"].ours == 50, "a lost SYN waits for one"
    assert recovery.less("x", seen, Seen(ms=[125.0] * 4))["x"].ours == 50
    clean = recovery.cost(Seen(ms=[1, 1], syn=[0, 0], synack=[0, 0], again=[0, 0], timeouts=[0, 0]))
    assert {*clean} == {"lossy-share"}, "without a lossy one there is nothing to tell"


def test_a_page_saves_of_the_defaults_time() -> None:
    found = page.claims_of({"default": Loads([200.0] * 3), "both": Loads([150.0] * 3)})
    assert found.keys() == {claim.id for claim in page.CLAIMS}
    assert (found["page-tail"].ours, found["page-mean"].ours, found["page-tail"].n) == (25, 25, 6)


def test_windows_are_compared_with_those_of_the_default() -> None:
    windows = {"default": [25], "quiet": [75], "riptide50": [50], "riptide100": [100], "riptide250": [125]}
    found = live.window_claims({way: windows.get(way, [100]) * 3 for way in live.MOST})
    assert found["fig10-median-50"].ours == 100
    assert found["abstract-200"].ours == 300
    assert found["fig10-knee"].ours == 75
    assert (found["fig11-busy"].ours, found["fig11-quiet"].ours, found["fig11-quiet-median"].ours) == (100, 100, 75)


def test_a_gain_is_of_the_defaults_time_at_the_same_percentile() -> None:
    before, after = np.array([100.0, 300.0]), np.array([100.0, 150.0])
    assert live.gains(before, after, (0, 100)).tolist() == [0, 50]
    assert {len(group) for group in live.GROUPS_MS.values()} == {len(live.LOSSES)}
    assert len({path.name for path in live.paths()}) == 12


def test_the_lowest_fifth_gets_an_entry_for_each_family() -> None:
    results = Results(Result)
    for path in article.PATHS:
        times = [9000.0] if path.loss else [100.0]
        results[path.name, Cell(article.LARGE, 1), "cubic"] = Result(times)
    chosen = article.lowest(results)
    assert {path.name for path in chosen} == {"poor1", "poor2"}
    assert [one["prefix"] for one in article.entries(chosen)] == [
        *("10.72.9.0/24", "10.72.10.0/24", "fd72:9::/48", "fd72:10::/48")
    ]


def test_every_claim_of_a_part_can_be_measured() -> None:
    """The names that `statistics` give are the claims' own."""
    ms = {way: [100.0 + at for at in range(6)] for way in bbr.NAMES}
    probes = Results(Result)
    for path in live.paths():
        for size in (10_000, 50_000, 100_000):
            for way, times in ms.items():
                probes[path.name, Cell(size, 1), way] = Result(list(times))
    seen = live.Seen({way: [10, 20] for way in live.MOST}, probes, probes, live.paths())
    found = live.window_claims(seen.windows) | live.probe_claims(seen)
    assert found.keys() == {claim.id for claim in live.CLAIMS}
    assert bbr.claims_of(seen.hundred, seen.paths).keys() == {claim.id for claim in bbr.CLAIMS}
    assert [figure.source for figure in live.figures(seen)] == ["paper"] * 4
    assert found["fig12-10k"].ours == 0


def test_changes_of_both_are_counted_by_path_and_hour() -> None:
    hosts, prefixes = ["10.72.1.1/32"], FIFTY.prefixes()
    same, other = {prefixes[0]: {"start_rate": 1}}, {prefixes[0]: {"start_rate": 2}, "10.72.9.0/24": {}}
    counted = changes.Counted([same, same, other, same], ["10.72.1.1/32", "10.72.9.1/32"], 36.0)
    # Two changes in three steps, of a step in five minutes; one in 36 s.
    assert counted.per_hour(prefixes, hosts) == (100, 8)


def test_every_other_path_gets_half_of_its_capacity_and_the_rest_lose() -> None:
    worse = {path.name: path for path in changes.worse(PATHS)}
    assert (worse["fifty"].rate_mbit, worse["fifty"].loss, worse["korea"].loss) == (25, 0, changes.LOSS)
    assert worse["policer"] == PATHS[1]
    results = Results(Result)
    for path in PATHS:
        for cell in changes.CELLS:
            for way, ms in (("default", 400.0), ("riptide", 200.0), ("springtide", 100.0)):
                results[path.name, cell, way] = of_groups(ms, 3 if way == "riptide" else 1)
    rates = {path.name: (3600.0, 12.0) for path in PATHS}
    seen = changes.Seen({path.name: changes.kind_of(path, PATHS) for path in PATHS}, results, rates, {})
    found = changes.claims_of(seen)
    assert found.keys() == {claim.id for claim in changes.CLAIMS}
    assert (found["half-riptide-resent"].ours, found["lossy-ours-resent"].ours) == pytest.approx((2, 0))
    assert found["changes-less"].ours == pytest.approx(12 / 3600)


def test_shares_of_treated_connections_have_the_same_arrivals() -> None:
    path = next(path for path in PATHS if path.name == neighbours.NARROW[0])
    planned = {share: [*neighbours.arrivals(path, share, 1)] for share in neighbours.SHARES}
    assert len({tuple(one.at_s for one in found) for found in planned.values()}) == 1
    assert {one.src_edge for one in planned[0]} == {"default-1"}
    assert {one.src_edge for one in planned[100]} == {"springtide-1"}
    seen = neighbours.Seen()
    for share in neighbours.SHARES:
        for name in neighbours.NARROW:
            seen.results[share, name, "default"].ms += [200.0 + share] * 3 * (share < 100)
            seen.results[share, name, "springtide"].ms += [100.0] * 3 * (share > 0)
    found = neighbours.claims_of(seen)
    assert found.keys() == {claim.id for claim in neighbours.CLAIMS}
    assert (found["neighbours-50"].ours, found["switchback"].ours) == (1.25, 0.5)
    # Three connections of three paths on each side.
    assert (found["neighbours-50"].n, found["switchback-half"].n) == (18, 36)


def test_a_learner_tries_both_and_then_mostly_takes_the_faster() -> None:
    learner = article.Learner(cast(Lab, None), FIFTY)
    first = learner.choose()
    learner.rates[first].append(1.0)
    second = learner.choose()
    assert {first, second} == {"cubic", "bbr"}
    learner.rates[second].append(5.0)
    # Draws of a fixed seed.
    assert 0.9 < sum(learner.choose() == second for _ in range(400)) / 400 < 1
