"""The demo's numbers follow their definitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.demo import closes, report, starts, summary, tables
from lab.demo.product import COLLECTOR, EDGE, Springtide, shell_note
from lab.demo.summary import Closed, Phase, Route, Transfer
from lab.topology import Topology
from testkit.browser import screens

times = st.lists(st.floats(0.1, 10_000), min_size=1, max_size=60)


def phase(times_ms: list[float], retransmitted: int = 0) -> Phase:
    return Phase(
        [Transfer("ams", "nyc", 80.0, 100_000, time_ms) for time_ms in times_ms],
        [Closed("ams", "nyc", 80.0, 100_000, 70, retransmitted) for _ in times_ms],
    )


@given(times)
def test_spread_is_ordered_and_stays_within_what_was_measured(times_ms: list[float]) -> None:
    found = summary.spread(times_ms)
    assert found["n"] == len(times_ms)
    assert min(times_ms) - 0.01 <= found["p50"] <= found["p90"] <= found["p95"] <= max(times_ms) + 0.01


def test_the_shell_says_that_the_demo_has_ended_and_what_it_showed(tmp_path: Path) -> None:
    groups = summary.by_group(phase([320, 330, 340]), phase([160, 170, 180]))
    product = Springtide(*(tmp_path / name for name in ("store", "fleet.yaml", "policy.yaml", "it's here")))
    env = tmp_path / "env"
    env.write_text(product.environment() + shell_note(summary.has_ended(groups, "12:34 UTC")))
    script = f'source {env} && echo "$SPRINGTIDE_PUBLISH_DIR"'
    found = subprocess.run(
        ["bash", "-c", f"source {env} && command -v springtide springtide-collector springtide-edge"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert found.stdout.splitlines() == [str(Path(sys.executable).with_name("springtide")), str(COLLECTOR), str(EDGE)]
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/it's here\n"
    assert done.stderr.splitlines() == [
        "The demo has ended at 12:34 UTC: its bundles have expired, and nothing runs any more.",
        "It showed fresh connections fetch 100 KB, medians before -> after: 330 -> 170 ms (RTT 80).",
    ]


def test_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no probe came back"):
        summary.spread([])


def test_saved_round_trips_are_medians_apart_in_units_of_the_rtt() -> None:
    (row,) = summary.by_pair(phase([320, 330, 340]), phase([160, 170, 180]))
    assert row["rtts_saved_p50"] == 2.0
    assert row["before_ms"]["p50"] == 330
    assert row["after_ms"]["n"] == 3


def test_a_pair_probed_in_one_phase_only_is_left_out() -> None:
    other = Phase([Transfer("nyc", "ams", 80.0, 100_000, 1.0)], [])
    assert summary.by_pair(phase([1.0]), other) == []


def test_retransmit_ratio_is_of_segments_and_not_of_connections() -> None:
    group = summary.by_group(phase([1, 1], retransmitted=7), phase([1, 1]))[0]
    assert group.retransmitted_before == pytest.approx(0.1)
    assert group.retransmitted_after == 0


def test_the_report_opens_with_the_answer_and_names_what_got_worse() -> None:
    def with_small(found: Phase, time_ms: float) -> Phase:
        small = [Transfer("ams", "nyc", 20.0, 10_000, time_ms + place) for place in range(5)]
        return Phase([*found.transfers, *small], [*found.closed, Closed("ams", "nyc", 20.0, 10_000, 10, 0)])

    def lost(before: Phase, after: Phase) -> list[str]:
        return report.losses(summary.by_pair(before, after), summary.by_group(before, after))

    quick = phase([160, 170, 180])
    fine = summary.by_group(phase([320, 330, 340]), quick)
    assert "took 48% less time" in report.answer(fine)
    assert "170 ms instead of 330" in report.answer(fine)
    assert lost(phase([320, 330, 340]), quick) == []
    before = with_small(phase([310, 320, 330, 340, 350]), 20.0)
    after = with_small(phase([420, 430, 440, 450, 460], retransmitted=7), 30.0)
    found = lost(before, after)
    assert found[0].startswith("ams to nyc, 10 KB: p50 32 ms instead of 22 (")
    assert found[0].endswith("slower, 95 %).")
    assert sum(line.startswith("ams to nyc, 100 KB: p50 440 ms instead of 330") for line in found) == 1
    # Three make nothing clear.
    assert not [line for line in lost(phase([1, 2, 3]), phase([7, 8, 9])) if "slower" in line]
    assert "10.00% sent again instead of 0.00%" in found[-1]
    assert "more time" in report.answer(summary.by_group(before, after))


def test_a_tail_and_a_path_that_got_worse_are_named_beside_medians_that_did_not() -> None:
    even = [240.0 + place for place in range(20)]
    # Three in ten take twice as long; and of two paths of one round trip one got worse, the other better.
    tail = [value + (300 if place >= 14 else 0) for place, value in enumerate(even)]
    (row,) = summary.by_pair(phase(even), phase(tail))
    assert row["slower_ms"]["p50"]["low"] <= 0 < row["slower_ms"]["p90"]["low"]
    texts = report.losses([row], summary.by_group(phase(even), phase(tail)))
    assert [text.partition(" ms")[0].rpartition(": ")[2] for text in texts] == ["p90 557", "p95 558"]

    def two(first: float, second: float) -> Phase:
        found = phase([value + first for value in even])
        others = [Transfer("nyc", "ams", 80.0, 100_000, value + second) for value in even]
        return Phase([*found.transfers, *others], found.closed)

    before, after = two(0, 0), two(200, -150)
    texts = report.losses(summary.by_pair(before, after), summary.by_group(before, after))
    assert any(text.startswith("ams to nyc, 100 KB: p50 450 ms instead of 250") for text in texts)
    assert not any(text.startswith("nyc to ams") for text in texts)


def test_a_path_that_sends_more_again_is_named_beside_one_of_its_round_trip_that_sends_less() -> None:
    def two(first: int, second: int) -> Phase:
        found = phase([240.0] * 20, first)
        others = [Transfer("nyc", "ams", 80.0, 100_000, 240.0)] * 20
        return Phase(
            [*found.transfers, *others], [*found.closed, *[Closed("nyc", "ams", 80.0, 100_000, 70, second)] * 20]
        )

    before, after = two(0, 4), two(4, 0)
    [text] = report.losses(summary.by_pair(before, after), summary.by_group(before, after))
    assert text.startswith("ams to nyc, 100 KB: 5.71% sent again instead of 0.00%")


def test_probes_that_failed_are_named() -> None:
    before, after = phase([240.0] * 20), phase([3000.0] * 4)
    texts = report.losses(summary.by_pair(before, after), summary.by_group(before, after))
    assert texts == ["ams to nyc, 100 KB: 4 probes came back instead of 20: the others failed."]


def test_no_difference_is_called_one_in_few_cells() -> None:
    """Two phases of the same times: 400 cells of 20 probes. One bound of 95 % is beyond nothing in a fortieth of them;
    a bootstrap of so few is off, the most where it is the tail's. The seed is fixed."""
    chance = np.random.default_rng(3)
    named = [
        by["low"] > 0 for _ in range(400) for by in summary.slower(*chance.lognormal(5, 0.3, (2, 20)).tolist()).values()
    ]
    assert np.mean(named) < 0.1


def test_the_page_fits_a_telephone(tmp_path: Path) -> None:
    before, after = phase([320, 330, 340]), phase([160, 170, 180], retransmitted=7)
    groups = summary.by_group(before, after)
    decision = {"src_pop": "ams", "dst_pop": "nyc", "value": 88, "evidence": 6, "reason": "learnt"}
    found = summary.summary(
        before, [(after, ROUTES)], [decision], conditions={}, restored=True, samples=12, elapsed_s=1.26
    )
    page = tmp_path / "demo.html"
    page.write_text(report.page(before, after, groups, [decision], found))
    for name, seen in screens({"demo": page}, tmp_path / "profile").items():
        assert (seen.faults, seen.complaints, seen.beyond) == ([], [], 0), name
    text = page.read_text()
    assert text.index("less time") < text.index("<svg") < text.index("What got worse")


ROUTES = {("ams", "nyc"): Route(80.0, 50.0, 88)}


def test_each_pair_has_its_limit_and_its_shares_of_segments() -> None:
    (row,) = summary.pairs(phase([320, 330, 340]), phase([160, 170, 180], retransmitted=7), ROUTES)
    assert (row["initcwnd"], row["rate_mbit"], row["retransmit_before"], row["retransmit_after"]) == (88, 50, 0, 0.1)
    assert row["retransmit_p50_after"] == 0.1
    assert row["before_ms"] == {"p50": 330, "p90": 338, "p95": 339, "n": 3}
    assert row["limit_ms"] == 96  # 80 ms, and 800,000 bits at 50,000 a millisecond
    assert (row["ratio_limit"], row["enforced_by"], row["start_rate"]) == (1.771, "routes", None)  # 170 of 96
    assert Route(80.0, None, None).limit_ms(100_000) == 80
    # One that met other traffic is not the median one.
    assert summary.ratio_p50([Closed("ams", "nyc", 80.0, 100_000, 70, lost) for lost in (0, 30, 0)]) == 0
    assert summary.ratio_p50([]) == 0


def test_a_pair_that_paces_shows_what_its_bundle_starts_with() -> None:
    entries = [
        {"prefix": "10.77.0.0/16", "initcwnd": 20},
        {"prefix": "10.77.2.0/24", "initcwnd": 60, "start_rate": 5_000_000},
        {"prefix": "fd77:2::/48", "initcwnd": 30},
    ]
    route = Route(80.0, 50.0, 88, starts.start_of(entries, "10.77.2.1"))
    (row,) = summary.pairs(phase([320]), phase([96]), {("ams", "nyc"): route})
    assert (row["enforced_by"], row["initcwnd"], row["start_rate"], row["connection_rate"]) == (
        "bpf",
        60,
        5_000_000,
        None,
    )
    assert row["ratio_limit"] == 1.0
    assert report.start_text(row) == "60 at 40M"
    assert starts.start_of(entries, "10.78.2.1") == starts.Start()


def test_the_policy_has_those_edges_pace_that_the_topology_names(topology: Topology) -> None:
    assert starts.policy(topology) == {}
    whole = topology.model_copy(update={"enforce": "bpf"})
    assert starts.policy(whole)["enforce"]["by"] == "bpf"
    ams = topology.pops["ams"].model_copy(update={"enforce": "bpf"})
    some = topology.model_copy(update={"pops": {**topology.pops, "ams": ams}})
    found = starts.policy(some)
    assert [one["edges"] for one in found["enforce_overrides"]] == [["ams-1", "ams-2"]]
    assert found["start"]["trial_permille"] <= found["enforce"]["max_trial_permille"]


def test_of_a_pair_the_decision_counts_that_its_edge_enforces(topology: Topology) -> None:
    windows = [
        {"src_pop": src, "dst_pop": dst, "ip_version": 4, "initcwnd": 80, "connections_earned": 3, "reason": "learnt"}
        for src, dst in (("ams", "nyc"), ("nyc", "ams"))
    ]
    listed = [
        {"src_pop": src, "destination": dst, "ip_version": 4, "window": 0, "reason": "thin evidence"}
        for src, dst in (("ams", "nyc"), ("nyc", "ams"), ("ams", "192.0.2.0/24"))
    ]
    ams = topology.pops["ams"].model_copy(update={"enforce": "bpf"})
    some = topology.model_copy(update={"pops": {**topology.pops, "ams": ams}})
    found = starts.merged(some, windows, [starts.decision(one) for one in listed])
    assert [(one["src_pop"], one["initcwnd"]) for one in found] == [("ams", None), ("nyc", 80)]


def test_a_pair_without_any_probe_result_is_an_error() -> None:
    with pytest.raises(ValueError, match="no probe came back"):
        summary.pairs(phase([1.0]), Phase([], []), ROUTES)


def test_a_path_is_named_by_what_it_has(topology: Topology) -> None:
    assert tables.path_text(topology, "nyc", "ams") == "20 ms, 5M, 0.05 MB"
    assert tables.path_text(topology, "nyc", "sin") == "80 ms, loss 0.02"


def test_summary_has_the_documented_shape() -> None:
    decision = {"src_pop": "ams", "dst_pop": "nyc", "value": 88, "evidence": 6, "reason": "learnt", "more": 1}
    rounds = [(phase([2, 1], retransmitted=7), ROUTES), (phase([1, 1]), ROUTES)]
    found = summary.summary(
        phase([2, 2]), rounds, [decision], conditions={"rounds": 2}, restored=True, samples=12, elapsed_s=1.26
    )
    assert set(found) == {
        *("conditions", "probes", "pairs", "rounds", "initcwnd", "retransmit_ratio", "restored", "samples"),
        "elapsed_s",
    }
    assert [row["retransmit_after"] for (row,) in found["rounds"]] == [0.1, 0]
    assert found["retransmit_ratio"]["after"] == found["pairs"][0]["retransmit_after"] == 0
    assert found["initcwnd"] == [{"src": "ams", "dst": "nyc", "value": 88, "evidence": 6, "reason": "learnt"}]
    assert found["elapsed_s"] == 1.3


def test_closed_connections_are_read_from_ss_events() -> None:
    lines = [
        "UNCONN 1 0 10.77.1.1:80 10.77.2.1:55622 wscale:10,10 rto:204 rtt:20.0/0.04 mss:1448 cwnd:14 "
        "bytes_sent:103000 bytes_retrans:2896 bytes_acked:100104 data_segs_out:72 retrans:0/2 dsack_dups:1\n",
        "UNCONN 0 0 [fd77:1::1]:80 [fd77:2::1]:40000 mss:1428 bytes_acked:10104 segs_out:9 data_segs_out:8\n",
        "UNCONN 0 0 127.0.0.1:42505 0.0.0.0:* rto:1000 mss:536 cwnd:10\n",
        "\n",
    ]
    assert list(closes.parse(lines)) == [
        closes.Close(80, "10.77.2.1", 100104, 72, 2),
        closes.Close(80, "fd77:2::1", 10104, 8, 0),
    ]


def test_report_is_one_page_without_outside_references() -> None:
    before, after = phase([320, 330]), phase([160, 170])
    decision = {"src_pop": "ams", "dst_pop": "nyc", "value": None, "evidence": 0, "reason": "<none>"}
    rounds = [(after, ROUTES)]
    facts = summary.summary(before, rounds, [decision], conditions={}, restored=False, samples=1, elapsed_s=2)
    page = report.page(before, after, summary.by_group(before, after), [decision], facts)
    assert page.count("<svg") == 1
    assert "&lt;none&gt;" in page
    assert "was NOT restored" in page
    for outside in ("<script", "<link", "<img", "@import"):
        assert outside not in page
