"""`springtide report` of switched pairs and of randomised shares: from the store to the sentence."""

from __future__ import annotations

from html import unescape
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from springtide import instants
from springtide.laws import beside
from springtide.laws.initcwnd.decision import Decision
from springtide.laws.switchback import counts, disable_test, disable_tests, turn
from springtide.policy import load_policy

from testkit.decided import but, decision
from testkit.home import ROUND, Home
from testkit.pairs import Reason, row

pytestmark = pytest.mark.usefixtures("clock")

INTERVAL = 300
POPS = ("ams", "fra", "nyc", "sin")
# The last whole blocks before the clock's round.
UNTIL = ROUND // 14_400 * 14_400 - INTERVAL
SINCE = UNTIL - 86_400
MOMENTS = range(SINCE + INTERVAL, UNTIL + 1, INTERVAL)
FLEET = "version: 1\npops:\n" + "".join(
    f"  {name}: {{prefixes: [10.{at}.0.0/24], edges: {{{name}-1: {{address: 10.{at}.0.1}}}}}}\n"
    for at, name in enumerate(POPS)
)


def report(home: Home, html: Path) -> dict[str, Any]:
    span = ("--from", instants.show(SINCE + INTERVAL), "--to", instants.show(UNTIL))
    answer: dict[str, Any] = home.json("report", *span, "--html", html)
    return answer


def rolled_up(home: Home, table: str, rows: list[dict[str, Any]]) -> None:
    opened = home.open()
    opened.insert(table, [{"generation": 1, **row} for row in rows])
    lines = [{"round": at, "generation": 1, "interval_s": INTERVAL, "waited_s": 9999} for at in MOMENTS]
    opened.insert("rollups", lines)
    opened.close()


def test_a_fleet_with_few_edges_reads_what_to_write(home: Home, tmp_path: Path) -> None:
    """It is a policy that the check takes, after which the sentence is gone."""
    home.fleet.write_text(FLEET)
    home.policy.write_text("")
    html = tmp_path / "report.html"
    said = report(home, html)["remedy"]
    assert said.startswith("Windows stay too few to compare, as 0 edges are held out and 10 are needed: write ")
    assert "`experiment: {kind: switchback}` in policy.yaml" in said
    assert said.count(". ") == 0
    assert said in unescape(html.read_text())
    assert said in home.run("report").stdout
    home.policy.write_text("experiment: {kind: switchback}\n")
    home.run("check")
    assert report(home, html)["remedy"] == ""


def test_a_fleet_that_holds_out_enough_edges_reads_nothing(home: Home, tmp_path: Path) -> None:
    pops = "".join(
        f"  p{pop}: {{prefixes: [10.{pop}.0.0/24], edges: {{"
        + ", ".join(f"p{pop}-{n}: {{address: 10.{pop}.0.{n}}}" for n in range(1, 6))
        + "}}\n"
        for pop in range(10)
    )
    home.fleet.write_text(f"version: 1\npops:\n{pops}")
    assert report(home, tmp_path / "report.html")["remedy"] == ""


@pytest.mark.parametrize("seed", ["", "of the next experiment"])
def test_a_switchback_is_reported_with_its_method_interval_and_assumption(
    home: Home, tmp_path: Path, seed: str
) -> None:
    """A window saves a fifth and resends a hundredth more. One pair has none. Turns are as decided, not by the seed."""
    home.fleet.write_text(FLEET)
    home.policy.write_text("experiment: {kind: switchback}\n")
    law = load_policy(home.policy).experiment
    rows, made = list[dict[str, Any]](), list[Decision]()
    for moment in MOMENTS:
        decided = []
        for at, (src, dst) in enumerate(permutations(POPS, 2)):
            on, without = turn(law, INTERVAL, src, dst, moment).on, (src, dst) == ("ams", "fra")
            faster = 0.8 if on else 1.0
            if not counts(law, INTERVAL, moment) or without:
                faster = 9.0
            if not without:
                value = decision(src, dst, 4, 40 if on else None, moment, moment)
                decided.append(value if on else but(value, reason=Reason.SWITCHBACK))
            rows.append(
                {
                    "round": moment,
                    "host": f"{src}-1",
                    "src_pop": src,
                    "dst_pop": dst,
                    "ip_version": 4,
                    "size_class_bytes": 100_000,
                    "connections": 10 + at,
                    "busy_p50_us": int(100_000 * (1 + moment // 3600 % 24) * faster * (1 + at / 100)),
                    "bytes_sent": 1_000_000,
                    "bytes_retransmitted": 20_000 if on else 10_000,
                }
            )
        if moment % 3600 == 0:
            made += decided
    home.open().insert("path_decisions", map(row, made))
    rolled_up(home, "rollup_outcomes", rows)
    home.policy.write_text(f"experiment: {{kind: switchback, seed: '{seed}'}}\n")
    html = tmp_path / "report.html"
    lines = {
        (one["by"], one["group"], one["outcome"]): one
        for one in report(home, html)["lines"]
        if one["law"] == "initcwnd"
    }
    times = lines["all", "all", "busy time"]
    # Six couples, six blocks; of ams and fra one way is left.
    assert (times["effect"]["treated"], times["effect"]["held_out"]) == (36, 36)
    assert times["effect"]["low"] < -0.2 < times["effect"]["high"] < 0
    assert (times["method"], "share bottlenecks" in times["assumption"]) == ("switchback", True)
    again = lines["all", "all", "bytes sent again"]
    assert again["effect"]["effect"] == pytest.approx(0.01)
    assert lines["object size", "from 100 kB", "busy time"]["effect"] == times["effect"]
    assert lines["PoP", "ams", "busy time"]["effect"]["treated"] == 12
    page, screen = html.read_text(), home.run("report", "--to", instants.show(UNTIL)).stdout
    for text in (page, " ".join(screen.split())):
        assert "Measured by switchback, 36 blocks of a pair with both, intervals of 95.0%" in text
        assert "treated and held-out connections share bottlenecks" in text
    home.run("measure", "--round", instants.show(UNTIL))
    [shown] = [line for line in home.run("status", code=None).stdout.splitlines() if "windows: time" in line]
    assert "%" in shown, shown
    assert ", switchback)" in page.split("</p>")[0], "the first sentence says how its number was measured"


def test_shares_are_reported_side_by_side(home: Home, tmp_path: Path) -> None:
    """First flights of an edge that paces: treated ones take a fifth less at each share; those of a trial of the law's
    own, and of a brake, say nothing."""
    home.fleet.write_text(FLEET)
    home.policy.write_text("experiment: {kind: share}\nenforce: {by: bpf, max_trial_permille: 900}\n")
    law = load_policy(home.policy).experiment
    rows = []
    for moment in MOMENTS:
        for at, dst in enumerate(("fra", "nyc", "sin")):
            share = turn(law, INTERVAL, "ams", dst, moment - INTERVAL).share
            for number in range(10):
                treated = number < 10 * share
                base = {
                    "round": moment,
                    "pop": "ams",
                    "host": "ams-1",
                    "boot_id": "b",
                    "dst_pop": dst,
                    "ip_version": 4,
                    "started_round": moment - INTERVAL,
                    "started_step": 0,
                    "handshake_resent": 0,
                    "in_force": True,
                    "segments": 100,
                    "resent": 2 if treated else 1,
                }
                time = int(100_000 * (1 + at + moment // 3600 % 7) * (0.8 if treated else 1.0))
                cookie = at * 100 + number
                own = {"started_window": 80 if treated else 0, "started_arm": 0 if treated else 1, "cookie": cookie}
                rows.append({**base, **own, "acked_100k_us": time})
                trial = {"started_window": 99, "started_arm": 1, "cookie": cookie + 1000, "acked_100k_us": 1}
                braked = {"started_window": 40, "started_step": 1, "cookie": cookie + 2000, "acked_100k_us": 1}
                # One on trial with values, whose SYN was lost, starts as the kernel does.
                lost = {"started_window": 0, "started_arm": 1, "cookie": cookie + 3000, "acked_100k_us": 1}
                rows += [{**base, **trial, "in_force": False}, {**base, **braked}]
                rows += [{**base, **lost, "handshake_resent": 1}]
    rolled_up(home, "rollup_flights", rows)
    html = tmp_path / "report.html"
    lines = [one for one in report(home, html)["lines"] if one["law"] == "start"]
    whole = {one["by"]: one for one in lines if one["method"] == "untreated share"}
    assert list(whole) == ["all", "PoP", "path"]
    ours = [one for one in lines if one["by"] in whole]
    assert whole["all"]["effect"]["effect"] == pytest.approx(-0.2, abs=0.001)
    lines = [one for one in lines if one["by"] not in whole]
    times = {one["group"]: one for one in lines if one["outcome"] == "time of 100 kB"}
    assert list(times) == ["10% treated", "50% treated", "90% treated"]
    assert all(one["effect"]["effect"] == pytest.approx(-0.2, abs=0.001) for one in times.values())
    assert {one["method"] for one in lines} == {"randomised share"}
    again = {one["group"]: one["effect"]["effect"] for one in lines if one["outcome"] == "segments sent again"}
    assert again == {group: pytest.approx(0.01) for group in times}
    [between] = [one for one in lines if one["outcome"].endswith("interference")]
    assert between["effect"]["effect"] == pytest.approx(0.0, abs=0.001)
    assert "an effect that is the same at every share" in " ".join(html.read_text().split())
    # Without an experiment those that start with the default are the control.
    home.policy.write_text("enforce: {by: bpf}\n")
    assert [one for one in report(home, html)["lines"] if one["by"] in whole and one["law"] == "start"] == ours


def test_what_copies_are_good_for_is_reported_without_an_experiment(home: Home, tmp_path: Path) -> None:
    """One connection in ten has none; with them 10 kB take a fifth less, in each hour and on each path. Connections of
    bundles without copies say nothing; those count whose handshake was sent again, which copies spare some."""
    home.fleet.write_text(FLEET)
    rows = []
    for moment in MOMENTS:
        for number in range(20):
            treated = number % 10 > 0
            base = {
                "round": moment,
                "pop": "ams",
                "host": "ams-1",
                "boot_id": "b",
                "dst_pop": "fra",
                "ip_version": 4,
                "started_round": moment - INTERVAL,
                "copied_bytes": 20_000 if treated else 0,
                "handshake_resent": int(number == 10),
                "acked_10k_us": int(
                    100_000 * (1 + moment // 3600 % 7) * (0.8 if treated else (0.5, 2.0)[number // 10])
                ),
            }
            other = {"copied_bytes": 0, "acked_10k_us": 1}
            rows += [
                base | {"cookie": number},
                base | other | {"cookie": number + 1000, "started_round": moment - 2 * INTERVAL},
            ]
    rolled_up(home, "rollup_flights", rows)
    html = tmp_path / "report.html"
    lines = [one for one in report(home, html)["lines"] if one["law"] == "recovery"]
    of_path = [("path", "ams to fra, IPv4")] * 3
    assert [(one["by"], one["group"]) for one in lines] == [("all", "all"), ("PoP", "ams"), *of_path]
    for one in lines[:2]:
        assert (one["outcome"], one["method"]) == ("time of 10 kB", "untreated share")
        assert one["effect"]["effect"] == pytest.approx(-0.2, abs=0.001)
    said = " ".join(html.read_text().split())
    assert "What is sent twice: time of 10 kB -20.0%" in said
    assert "here a path leaves a part of its connections, drawn at random, as they were" in said


@pytest.mark.parametrize("number", [10, 40])
@pytest.mark.parametrize("repaired", [0.0, 0.9])
def test_a_tenth_of_few_connections_neither_hides_an_effect_nor_shows_one(number: int, repaired: float) -> None:
    """Each of 480 path-hours has `number` connections. One in twenty meets a loss that makes it eight times longer;
    with copies fewer do, by `repaired`: 8.9 % less time. Intervals hold the truth with odds of 95 %; these do."""
    chance = np.random.default_rng(number)
    truth = 2.0 ** (-3 * 0.05 * repaired) - 1
    rows = []
    for _ in range(480):
        treated = chance.random(number) < 0.9
        lossy = chance.random(number) < np.where(treated, 0.05 * (1 - repaired), 0.05)
        log2 = 0.05 * chance.standard_normal(number) + 3 * lossy
        own, others = treated.sum(), (~treated).sum()
        if own and others:
            difference = log2[treated].mean() - log2[~treated].mean()
            w, wd = own * others / number, own * others / number * difference
            rows.append({"hours": 1, "w": w, "wd": wd, "ww": w * w, "wwd": w * wd, "wwdd": wd * wd})
    found = beside.mean(rows)
    assert found.low is not None
    assert found.high is not None
    assert found.low < truth < found.high
    assert found.shown == (repaired > 0)


def summed(weights: NDArray[np.float64], differences: NDArray[np.float64]) -> dict[str, float]:
    """A PoP's row of path-hours, as SQL sums it."""
    w, wd = weights, weights * differences
    sums = {"w": w, "wd": wd, "ww": w * w, "wwd": w * wd, "wwdd": wd * wd}
    return {"hours": len(w), **{name: float(values.sum()) for name, values in sums.items()}}


@pytest.mark.parametrize("octaves", [0.0, 1.0, 2.0])
def test_a_day_of_one_path_without_effect_is_seldom_worse_whatever_its_hours_weigh(octaves: float) -> None:
    """By chance 2.5 % of 2,000 without any effect look worse; here at most 3.5 % do (3 sd beyond is 3.5 %), where hours
    weigh the same and where they differ by powers of two. What has no answer looks like nothing."""
    chance = np.random.default_rng(3)
    worse = 0
    for _ in range(2000):
        weights = 5 * 2 ** (octaves * chance.standard_normal(24))
        found = beside.mean([summed(weights, chance.standard_normal(24) * np.sqrt(1 / weights + 0.01))])
        worse += found.low is not None and found.low > 0
    assert worse <= 70


def test_an_hour_that_outweighs_all_others_gives_no_answer() -> None:
    """A flood to one path, or a host that invents it: the mean is that hour's, from which that hour does not differ."""
    weights, differences = np.full(1000, 5.0), np.random.default_rng(4).normal(0, 0.5, 1000)
    assert beside.mean([summed(weights, differences)]).shown is False
    weights[7], differences[7] = 1_000_000, 0.3
    assert beside.mean([summed(weights, differences)]).effect is None


def test_what_disable_tests_took_away_is_reported(home: Home, tmp_path: Path) -> None:
    """Six couples, eight times: without windows all takes a quarter longer. The tide rises through all tests; rounds of
    the wash-out, and a pair that an override kept on, show nonsense."""
    home.fleet.write_text(FLEET)
    hour = (UNTIL // 3600 - 4) % 24
    home.policy.write_text(f"experiment: {{disable_every_days: 1, disable_at_hour: {hour}, disable_for_s: 3600}}\n")
    law = load_policy(home.policy).experiment
    since = UNTIL - 8 * 86_400
    rows: list[dict[str, Any]] = []
    made: list[Decision] = []
    tests = list(disable_tests(law, since, UNTIL))
    assert len(tests) == 8
    moments = [at for began, _ in tests for at in range(began - 3900, began + 8700, INTERVAL)]
    for moment in moments:
        off = disable_test(law, moment) is not None
        # The connections that a round shows began before its instant.
        was_off = disable_test(law, moment - 1) is not None
        settled = disable_test(law, moment - 1 - law.washout_rounds * INTERVAL) is not None
        decided = []
        for at, (src, dst) in enumerate(permutations(POPS, 2)):
            kept = (src, dst) == ("ams", "fra")
            value = decision(src, dst, 4, None if off and not kept else 40, moment, moment)
            decided.append(but(value, reason=Reason.DISABLE_TEST) if off and not kept else value)
            slower = 1.25 if was_off else 1.0
            if kept or was_off != settled:
                slower = 9.0
            base = {"round": moment, "host": f"{src}-1", "src_pop": src, "dst_pop": dst, "ip_version": 4}
            sizes = {"size_class_bytes": 100_000, "connections": 10 + at, "bytes_sent": 1_000_000}
            tide = 2 ** ((moment - since) / 172_800)
            busy = int(100_000 * tide * slower * (1 + at / 100))
            rows.append({**base, **sizes, "busy_p50_us": busy, "bytes_retransmitted": 10_000 if was_off else 20_000})
        made += decided
    opened = home.open()
    opened.insert("path_decisions", map(row, made))
    opened.insert("rollup_outcomes", [{"generation": 1, **row} for row in rows])
    opened.insert(
        "rollups", [{"round": at, "generation": 1, "interval_s": INTERVAL, "waited_s": 9999} for at in moments]
    )
    opened.close()
    html = tmp_path / "report.html"
    span = ("--from", instants.show(since + INTERVAL), "--to", instants.show(UNTIL))
    lines = home.json("report", *span, "--html", html)["lines"]
    times, again = (one for one in lines if one["by"] == "disable tests")
    assert times["effect"]["treated"] == 8
    assert times["effect"]["effect"] == pytest.approx(-0.2, abs=0.01)
    assert -0.21 < times["effect"]["low"] <= times["effect"]["high"] < -0.19
    assert again["effect"]["effect"] == pytest.approx(0.01, abs=0.001)
    assert "nothing was drawn at random" in html.read_text()
