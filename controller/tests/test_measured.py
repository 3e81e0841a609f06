"""The benefit of decisions is measured once, kept, and read by all who say whether it helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.learn import benefits
from springtide.learn.benefits import due, keep, kept_s, newest, uncontrolled
from springtide.policy import Policy, load_policy

from testkit.home import ROUND, Home

EVERY = 900
MOMENTS = range(ROUND - 86_400 + EVERY, ROUND + 1, EVERY)
CLIENTS = "203.0.113.0/24"
# By source and destination what a treated connection's time is multiplied by: drawn from these.
PLANTED = {
    ("ams", "fra"): [0.6],
    # Three in twenty take three times as long: neither the median nor the mean of most says so.
    ("ams", "nyc"): [1.0] * 17 + [3.0] * 3,
    ("fra", CLIENTS): [1.0],
    # On its first trial.
    ("nyc", "ams"): [0.7],
}
Times = dict[tuple[str, str], dict[bool, list[float]]]


def flights() -> tuple[list[dict[str, Any]], Times]:
    """A day of first flights: a tenth of each path's keep the default, of the last one's half. And those times by
    themselves."""
    draw, rows = np.random.default_rng(5), list[dict[str, Any]]()
    times: Times = {path: {True: [], False: []} for path in PLANTED}
    for moment in MOMENTS:
        for (src, to), factors in PLANTED.items():
            of_client = {"client_prefix": "::ffff:203.0.113.0"} if to == CLIENTS else {"client_prefix": "::"}
            base = {"round": moment, "generation": 1, "pop": src, "host": f"{src}-1", "boot_id": "b", "ip_version": 4}
            base |= {"dst_pop": "" if to == CLIENTS else to, "started_round": moment - 300, **of_client}
            base |= {"started_step": 0, "handshake_resent": 0, "in_force": True, "started_prefix_length": 24}
            on_trial = src == "nyc"
            for _ in range(30):
                treated = bool(draw.random() < (0.5 if on_trial else 0.9))
                tide = 1 + moment // 3600 % 5
                time = 50_000 * tide * 2 ** (0.3 * draw.standard_normal()) * (draw.choice(factors) if treated else 1)
                times[src, to][treated].append(time)
                arm = {"started_window": 80 if treated else 0, "started_arm": int(treated == on_trial)}
                rows.append(base | arm | {"cookie": len(rows), "acked_100k_us": int(time)})
            # Nobody drew these: a step that is tried beside what is in use, what no entry names.
            strange = [{"started_window": 99, "started_arm": 1 - int(on_trial)}]
            strange += [{"started_window": 0, "started_arm": 0, "started_prefix_length": 0}]
            rows += [base | one | {"cookie": len(rows) + at, "acked_100k_us": 1} for at, one in enumerate(strange)]
            # No connection takes so long.
            for treated, time in ((False, 2**63), (True, 2**64 - 1)):
                arm = {"started_window": 80 if treated else 0, "started_arm": int(treated == on_trial)}
                rows.append(base | arm | {"cookie": len(rows), "acked_100k_us": time})
    return rows, times


@pytest.fixture(scope="module")
def measured(shared: Home) -> Iterator[tuple[Home, Times]]:
    home = shared
    home.policy.write_text("enforce: {by: bpf}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 120)
        rows, times = flights()
        opened = home.open()
        opened.insert("rollup_flights", rows)
        lines = [{"round": at, "generation": 1, "interval_s": 300, "waited_s": 9999} for at in MOMENTS]
        opened.insert("rollups", lines)
        opened.close()
        assert "differences kept" in home.run("measure").stdout
        yield home, times


def kept(home: Home, among: str) -> list[dict[str, Any]]:
    return home.query(f"select * from benefits final where {among} order by all")


def one(home: Home, path: tuple[str, str], percentile: int) -> dict[str, Any]:
    among = f"by = 'path' and src_pop = '{path[0]}' and destination = '{path[1]}'"
    [row] = kept(home, f"{among} and outcome = 'time of 100 kB, p{percentile}'")
    return row


def test_what_was_planted_is_found_with_its_interval(measured: tuple[Home, Times]) -> None:
    home, times = measured
    for path, sides in times.items():
        for percentile in (50, 90, 95):
            row = one(home, path, percentile)
            # Rounds in which all are treated compare nothing.
            assert (row["treated"] > 0.9 * len(sides[True]), row["held_out"]) == (True, len(sides[False]))
            assert row["treated_us"] == pytest.approx(np.percentile(sides[True], percentile), rel=0.1)
            assert row["held_out_us"] == pytest.approx(np.percentile(sides[False], percentile), rel=0.2)
            # Every percentile takes a factor longer where all do.
            if len(PLANTED[path]) == 1:
                assert row["low"] < PLANTED[path][0] - 1 < row["high"], (path, row)
    for path in (("ams", "fra"), ("nyc", "ams")):
        assert [one(home, path, percentile)["reading"] for percentile in (50, 90, 95)] == ["better"] * 3


def test_what_is_not_there_is_not_shown_and_a_longer_tail_is(measured: tuple[Home, Times]) -> None:
    home, _ = measured
    of_clients = [one(home, ("fra", CLIENTS), percentile) for percentile in (50, 90, 95)]
    assert [row["reading"] for row in of_clients] == ["not shown"] * 3
    [pop] = kept(home, "by = 'PoP' and src_pop = 'fra' and law = 'start'")
    assert pop["reading"] == "not shown"
    assert one(home, ("ams", "nyc"), 95)["reading"] == "worse"
    assert one(home, ("ams", "nyc"), 50)["effect"] == pytest.approx(0, abs=0.15)


def test_everybody_reads_the_one_number(measured: tuple[Home, Times]) -> None:
    """Again gives the same rows; report, status and gauges say what they say."""
    home, _ = measured
    rows = kept(home, "true")
    assert "measured already" in home.run("measure").stdout
    assert home.json("measure") == {"since": None, "until": None, "differences": 0}
    assert "differences kept" in home.run("measure", "--round", instants.show(ROUND)).stdout
    assert kept(home, "true") == rows
    [answer] = [row for row in rows if (row["law"], row["by"], row["units"]) == ("start", "all", "decided")]
    assert -0.5 < answer["low"] < answer["high"] < 0
    text = f"{answer['effect']:+.1%} ({answer['low']:+.1%} to {answer['high']:+.1%}"
    assert text in home.run("status", code=None).stdout
    gauges = home.path / "status.prom"
    home.run("status", "--metrics", gauges, code=None)
    assert 'springtide_benefit_worse{law="start"} 0\n' in gauges.read_text()
    said = home.json("report")
    assert (said["since"], said["until"]) == (instants.show(ROUND - 86_400), instants.show(ROUND))
    span = ("--from", instants.show(ROUND - 86_400 + 300), "--to", instants.show(ROUND))
    computed = home.json("report", *span)
    order = ("law", "outcome", "units", "by", "group")
    ours, theirs = (sorted(made["lines"], key=lambda row: [row[name] for name in order]) for made in (said, computed))
    assert ours == theirs
    assert len(ours) == len(rows)
    [worse] = [line for line in ours if line["reading"] == "worse" and line["outcome"].endswith("p95")]
    assert worse["group"] == "ams to nyc, IPv4"
    html = home.path / "report.html"
    home.run("report", "--html", html)
    assert "path ams to nyc, IPv4 (time of 100 kB, p95 +" in html.read_text()
    assert " ms beside " in html.read_text()


def test_a_switchback_of_two_pops_is_measured_over_as_many_blocks_as_an_interval_needs() -> None:
    assert kept_s(Policy()) == 86_400
    assert kept_s(Policy.model_validate({"experiment": {"kind": "switchback"}})) == 9 * 4 * 3600


def test_where_nothing_is_left_to_compare_with_it_is_said_why(measured: tuple[Home, Times]) -> None:
    home, _ = measured
    fleet = load_fleet(home.fleet)

    def lacking(**sections: Any) -> dict[str, str]:
        return uncontrolled(fleet, Policy.model_validate(sections), ROUND)

    assert "kind: switchback" in lacking()["initcwnd"]
    paced = {"enforce": {"by": "bpf"}}
    assert "edges that pace" in lacking(**paced)["initcwnd"]
    assert list(lacking(**paced)) == ["initcwnd"]
    assert "connection_permille: 20" in lacking(**paced, holdout={"connection_permille": 0})["start"]
    assert lacking(**paced, experiment={"kind": "share"}, holdout={"connection_permille": 0}) == {}


def test_a_line_that_is_measured_no_more_goes_and_none_is_away_meanwhile(
    measured: tuple[Home, Times], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before what is stale is removed, what was measured is there."""
    home, _ = measured
    rows = kept(home, "true")
    stale = {**rows[0], "group": 'it\'s \\ "gone"\n'}
    opened = home.open()
    opened.insert("benefits", [stale])
    fleet, policy = load_fleet(home.fleet), load_policy(home.policy)
    with monkeypatch.context() as patch:
        patch.setattr(opened, "execute", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            keep(opened, fleet, policy, ROUND)
    opened.close()
    assert len(kept(home, "true")) == len(rows) + 1
    home.run("measure", "--round", instants.show(ROUND))
    assert kept(home, "true") == rows


def test_a_day_without_a_line_is_measured_once(measured: tuple[Home, Times]) -> None:
    """No law has anything to compare; as soon as one has, its lines take the place."""
    home, _ = measured
    fleet, day = load_fleet(home.fleet), ROUND - 40 * 86_400
    opened = home.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benefits, "LAWS", ())
        for _ in range(2):
            assert keep(opened, fleet, Policy(), day).lines == []
        assert due(opened, day + 60) is None
        assert (newest(opened, day + 60).until, newest(opened, day + 60).lines) == (day, [])
    keep(opened, fleet, Policy(), day)
    laws = kept(home, f"until = fromUnixTimestamp({day})")
    assert laws
    assert all(row["law"] for row in laws)
    opened.execute(f"delete from benefits where until = fromUnixTimestamp({day})")
    opened.close()
