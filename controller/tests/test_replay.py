"""`springtide replay`: history through another policy, beside what was decided."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import decide as decide_congestion
from springtide.laws.initcwnd import rows as decisions
from springtide.laws.initcwnd.law import decide as decide_initcwnd
from springtide.observe.enrich import publish_fleet
from springtide.observe.pairs import pair_observations
from springtide.policy import load_policy
from springtide.store import Store

from testkit.home import ROUND, Home
from testkit.prefixes import INTERVAL, random_rounds, store_rounds

pytestmark = pytest.mark.usefixtures("clock")

ROUNDS = 14
SINCE = instants.show(ROUND - (ROUNDS - 1) * INTERVAL)
MIDDLE = instants.show(ROUND - ROUNDS // 2 * INTERVAL)
POLICY = """
initcwnd: {duty_rounds: 3, duty_window_rounds: 5, ttl_s: 900}
congestion: {window_rounds: 8, min_rounds: 4, benefit_rounds: 2, min_stay_s: 900, enter_duty: 0.5, leave_duty: 0.3,
  max_flap_rate: 0.6}
"""


def store_pairs(store: Store, seed: int) -> None:
    """Windows that move about, with rounds in which a pair shows nothing."""
    chance = random.Random(seed)
    rows = []
    for age in range(ROUNDS):
        for dst in ("fra", "nyc"):
            cwnd, earned = chance.randint(15, 90), chance.choice([0, 1, 4, 9])
            rows.append(
                {
                    "round": ROUND - age * INTERVAL,
                    "generation": 1,
                    "src_pop": "ams",
                    "dst_pop": dst,
                    "ip_version": 4,
                    "connections_seen": earned + 1,
                    "connections_earned": earned,
                    "cwnd_sum": cwnd * earned,
                    "cwnd_weight": earned,
                    "min_cwnd": cwnd,
                    "max_cwnd": cwnd,
                    "young_connections": 40,
                    "young_lossy_connections": chance.choice([0, 0, 0, 30]),
                }
            )
    store.insert("rollup_pairs", rows)


@pytest.fixture(scope="module")
def decided(shared: Home) -> Home:
    """Two hours of both laws, decided round by round."""
    shared.policy.write_text(POLICY)
    opened = shared.open()
    publish_fleet(opened, load_fleet(shared.fleet))
    store_rounds(opened, random_rounds(seed=8, newest=ROUND, rounds=ROUNDS + 10))
    store_pairs(opened, 8)
    policy = load_policy(shared.policy)
    for moment in range(ROUND - (ROUNDS - 1) * INTERVAL, ROUND + 1, INTERVAL):
        windows = decide_initcwnd(
            moment, policy, pair_observations(opened, moment), decisions.previous(opened, moment, policy)
        )
        decisions.WINDOWS.write_round(opened, moment, windows, policy.version)
        last = congestion_rows.PREFIXES.last_round(opened, moment)
        evidence = congestion_rows.evidence(opened, moment, policy, last)
        chosen = decide_congestion(moment, policy, evidence, congestion_rows.PREFIXES.left(opened, moment))
        congestion_rows.PREFIXES.write_round(opened, moment, chosen, policy.version)
    return shared


def summaries(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["law"]: one for one in answer["summary"]}


def test_the_same_policy_decides_the_same_wherever_it_begins(decided: Home) -> None:
    before = decided.query("select count() as n from path_decisions")
    for since in (SINCE, MIDDLE):
        answer = decided.json("replay", "--from", since)
        found = summaries(answer)
        assert found.keys() == {"initcwnd", "congestion"}
        for one in found.values():
            assert one["changes"] == one["changes_recorded"] > 0
            assert one["rounds"] == one["decided_rounds"]
        assert {row["different"] for row in answer["rounds"]} == {0}
    assert decided.query("select count() as n from path_decisions") == before


def test_what_loss_has_taught_is_replayed_too(decided: Home) -> None:
    [row] = decided.query("select countIf(reason like 'loss_guard%') as n from path_decisions final")
    assert row["n"] > 0


def test_another_policy_is_compared_with_what_was_decided(decided: Home, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("initcwnd: {duty_rounds: 1, hysteresis: 0.0}\ncongestion: {min_rounds: 28}\n")
    found = summaries(decided.json("replay", "--from", SINCE, "--policy", other))
    assert found["initcwnd"]["changes"] > found["initcwnd"]["changes_recorded"]
    assert found["initcwnd"]["different_per_round_median"] > 0
    assert found["congestion"]["values_at_the_end"] < found["congestion"]["values_at_the_end_recorded"]
    screen = decided.run("replay", "--from", MIDDLE, "--policy", other, "--law", "initcwnd").stdout
    assert "initcwnd" in screen
    assert "congestion" not in screen


def test_rounds_in_which_nothing_was_decided_count(decided: Home) -> None:
    """Else fewer rounds would seem to have more changes a day."""
    span = ("--from", instants.show(ROUND - (ROUNDS + 4) * INTERVAL), "--to", MIDDLE)
    [alone] = decided.json("replay", *span, "--law", "congestion")["summary"]
    assert (alone["rounds"], alone["decided_rounds"]) == (ROUNDS // 2 + 5, ROUNDS // 2)


def test_a_span_without_rounds_is_reported(home: Home) -> None:
    assert "no round has its tables" in home.run("replay").stdout
