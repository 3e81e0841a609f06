"""`springtide status`: whether the loop closes, from what store and publisher's folder know."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.cli.status import gauges as status_gauges
from springtide.laws.base import Newest, State, Step, Treated, age
from springtide.laws.effect import BenefitLine, Effect
from springtide.learn.status import Facts, Published, lines, verdict
from springtide.metrics import write_metrics
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.journal import Event

from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")

NOW = ROUND + 30
PROMTOOL = Path(__file__).parents[2] / "target/tools/promtool"
ROUTES = Published("r-1", created=NOW - 40, expires=NOW + 800, edges=4, routes=9)


def event(kind: str, verdict: str = "done", *, ago: int = 60, reason: str = "", **more: Any) -> Event:
    return Event(kind, verdict=verdict, reason=reason, who="ann", at_unix_s=NOW - ago, **more)


def number(*effect: Any, law: str = "initcwnd", outcome: str = "busy time") -> BenefitLine:
    return BenefitLine(law, outcome, "all", "all", Effect(*effect))


GOOD = Facts(
    now=NOW,
    interval_s=300,
    lateness_s=60,
    sample=NOW - 12,
    round=ROUND,
    round_samples=48_211,
    hosts_seen=30,
    hosts_expected=30,
    decisions={"initcwnd": Newest(ROUND, 40, 31), "congestion": Newest(ROUND, 99, 80)},
    published=ROUTES,
    holds=ROUTES,
    events={kind: event(kind, verdict) for kind, verdict in (("rollout", "done"), ("gate", "go"), ("drift", "none"))},
    benefit={"windows: time": number(95, 15, -0.2, -0.24, -0.16)},
    uncontrolled={"congestion": "write it so"},
    treated={"initcwnd": Treated(112, 0, 8), "congestion": Treated(70, 0, 10)},
)


def line(facts: Facts, what: str) -> Step:
    return next(one for one in lines(facts) if one.what == what)


def test_a_loop_with_every_step_in_time_closes() -> None:
    found = lines(GOOD)
    assert verdict(found) == "the loop is closing"
    assert {one.state for one in found} <= {State.OK, State.NOTE}
    assert not any(one.fix for one in found)
    assert line(GOOD, "samples").text == "the newest 12 s ago; 30 of 30 hosts in the newest round"
    assert line(GOOD, "seen windows").text == (
        "112 of 120 pairs of an edge and a PoP begin with what was decided; 8 show nothing"
    )
    assert line(GOOD, "windows: time").text == "-20.0% (-24.0% to -16.0%; 95 treated, 15 not), held out"
    assert line(replace(GOOD, measured=NOW - 1800), "windows: time").text.endswith("held out, measured 30 min ago")
    unknown = replace(GOOD, benefit={"BBR: rate": number(3, 1, law="congestion")})
    assert line(unknown, "BBR: rate").fix == "write it so"


def test_no_records_are_missed_where_no_bundle_is_in_force() -> None:
    blind = replace(GOOD, unrecorded={"ams-1": 999})
    assert line(blind, "records").state is State.NOTE
    assert line(replace(blind, holds=None), "records").state is State.NOTE, "another host than the publisher"
    events = {**GOOD.events, "withdraw": event("withdraw", ago=5)}
    for change in ({"stopped": "withdrawn"}, {"events": events}, {"holds": replace(ROUTES, expires=NOW - 1)}):
        assert "records" not in [one.what for one in lines(replace(blind, **change))], change


LONG_AGO = NOW - 2 * 300 - 60 - 1
WITHDRAWN = {**GOOD.events, "withdraw": event("withdraw", "partial", ago=5, reason="loss")}
FAILED = {**GOOD.events, "rollout": event("rollout", "failed", reason="ams-1 does not answer")}
DRIFT = {**GOOD.events, "drift": event("drift", "found", edges=["ams-1", "fra-1"])}
APART = Treated(112, 6, 2, controls=1, examples=["ams-1 -> sin (decided 40, seen 10)"])
SILENT = {**GOOD.events, "drift": event("drift", "unknown", details={"not_compared": ["nyc-1"]})}


@pytest.mark.parametrize(
    ("change", "what", "state", "text"),
    [
        ({"sample": NOW - 601}, "samples", State.STALE, "10 min ago"),
        ({"sample": NOW + 7200}, "samples", State.BROKEN, "2 h in the future"),
        (
            {"holds": replace(ROUTES, created=NOW + 7200, expires=NOW + 8000)},
            "on the fleet",
            State.BROKEN,
            "r-1 was made 2 h in the future: edges refuse it",
        ),
        ({"round": LONG_AGO}, "rounds", State.STALE, "11 min ago"),
        ({"decisions": {"initcwnd": Newest(LONG_AGO, 40, 31)}}, "initcwnd", State.STALE, "31 of 40 pairs"),
        (
            {"decisions": {"initcwnd": Newest(ROUND, 40, 31, 40)}},
            "initcwnd",
            State.STALE,
            "40 stand, input incomplete",
        ),
        ({"decisions": {}}, "initcwnd", State.NONE, "nothing decided"),
        ({"published": replace(ROUTES, created=LONG_AGO)}, "published", State.STALE, "11 min ago"),
        ({"published": None}, "published", State.NONE, "nothing yet"),
        ({"paused": "paused since then by ann: works"}, "published", State.STALE, "paused since then by ann: works"),
        ({"holds": replace(ROUTES, expires=NOW - 90)}, "on the fleet", State.BROKEN, "expired 90 s ago"),
        ({"holds": replace(ROUTES, expires=NOW - 90, routes=0, clients=1)}, "on the fleet", State.BROKEN, "expired"),
        ({"holds": None}, "on the fleet", State.NONE, "nothing yet"),
        ({"stopped": "withdrawn by ann: loss"}, "last push", State.BROKEN, "stopped: withdrawn by ann: loss"),
        ({"events": WITHDRAWN}, "last push", State.BROKEN, "withdraw partial 5 s ago by ann: loss"),
        ({"events": FAILED}, "last push", State.BROKEN, "ams-1 does not answer"),
        ({"events": {}}, "last push", State.NONE, "none yet"),
        ({"events": DRIFT}, "drift", State.BROKEN, "on ams-1, fra-1"),
        ({"events": SILENT}, "drift", State.BROKEN, "unknown; no answer from nyc-1"),
        (
            {"treated": {"initcwnd": APART}},
            "seen windows",
            State.BROKEN,
            "112 of 120 pairs of an edge and a PoP begin with what was decided; 2 show nothing; 6 differ: ams-1 -> sin "
            "(decided 40, seen 10) and 5 more; 1 begin with one that was not decided",
        ),
    ],
)
def test_one_step_that_fails_is_named_with_what_to_do(
    change: dict[str, Any], what: str, state: State, text: str
) -> None:
    facts = replace(GOOD, **change)
    found = line(facts, what)
    assert found.state is state
    assert text in found.text
    assert found.fix
    assert verdict(lines(facts)) == f"the loop is NOT closing: see {what}"


@pytest.mark.parametrize(
    ("change", "what", "text"),
    [
        ({"decisions": {"initcwnd": Newest(ROUND, 40, 31)}}, "congestion", "no prefix chosen yet"),
        ({"events": {**GOOD.events, "gate": event("gate", "roll_back", reason="loss")}}, "last gate", "roll back"),
        ({"holds": replace(ROUTES, clients=70)}, "on the fleet", "9 routes and 70 client prefixes on 4 edges"),
        ({"events": {"rollout": event("rollout", "begun")}}, "last push", "rollout begun 60 s ago"),
        ({"events": {"rollout": event("rollout")}}, "drift", "never checked"),
        ({"holds": replace(ROUTES, routes=0, expires=NOW - 90, back=True)}, "on the fleet", "before r-1: no routes"),
        ({"unrecorded": {"ams-1": 999}}, "records", "ams-1 (of 999 that began)"),
        ({"left_alone": ["ams-1"]}, "left alone", "ams-1: what they have expires by itself"),
        ({"decisions": {"initcwnd": Newest(ROUND, 40, 31, left_out=3)}}, "initcwnd", "3 left out of bundles"),
        ({"treated": {}}, "seen windows", "no connection between PoPs should begin with a window of its own"),
        ({"treated": {"initcwnd": Treated(unknown=9)}}, "seen windows", "no evidence: of 9 pairs"),
        (
            {"treated": {"congestion": Treated(0, 80, controls=2)}},
            "seen BBR",
            "0 of 80 prefixes decided for BBR use it for most of their bytes; 80 do not: edges by routes only keep "
            "the choice, by bpf they apply it; 2 of those held out use it",
        ),
        ({"benefit": {"BBR: rate": number(50, 40, 0.05, -0.01, 0.09)}}, "BBR: rate", "not significant"),
        ({"benefit": {"starts: time": number(50, 40, 0.05, 0.01, 0.09)}}, "starts: time", "worse beyond chance"),
        ({"benefit": {"BBR: rate": number(3, 1, law="congestion")}}, "BBR: rate", "not known yet (3 treated, 1 not)"),
    ],
)
def test_notes_let_the_loop_close(change: dict[str, Any], what: str, text: str) -> None:
    facts = replace(GOOD, **change)
    assert text in line(facts, what).text
    assert verdict(lines(facts)) == "the loop is closing"


@pytest.mark.parametrize(
    ("change", "what", "text"),
    [
        ({"holds": replace(ROUTES, expires=NOW - 90)}, "on the fleet", "r-1 expired 90 s ago"),
        ({"holds": None, "events": {}}, "last push", "none"),
        ({"published": replace(ROUTES, created=LONG_AGO)}, "published", "nothing is pushed"),
        ({"paused": "paused since then by ann: works"}, "published", "nothing is pushed"),
        ({"stopped": "withdrawn by ann: loss"}, "last push", "rollout done"),
    ],
)
def test_where_the_policy_advises_a_missing_push_is_no_fault(change: dict[str, Any], what: str, text: str) -> None:
    advising = replace(GOOD, advises=True, **change)
    assert text in line(advising, what).text
    assert verdict(lines(advising), advises=True).startswith("the loop is closing, advice only")
    assert "NOT closing" in verdict(lines(replace(advising, advises=False)))


def test_where_the_policy_advises_faults_are_faults() -> None:
    for change in ({"sample": NOW - 601}, {"events": WITHDRAWN}, {"events": DRIFT}):
        assert "NOT closing" in verdict(lines(replace(GOOD, advises=True, **change)), advises=True)


def test_ages_follow_the_policys_interval() -> None:
    slow = replace(GOOD, interval_s=3600, sample=NOW - 3700, round=NOW - 7000)
    assert verdict(lines(slow)) == "the loop is closing"


def test_ages_are_shown_in_the_largest_fitting_unit() -> None:
    shown = [age(seconds) for seconds in (-3, 0, 119, 120, 7199, 7200, 172_799, 172_800)]
    assert shown == ["0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]


def test_an_empty_store_is_reported_as_not_started(home: Home) -> None:
    output = home.run("status", "--publish-dir", home.path / "publish", code=1).stdout
    assert output.splitlines()[0] == "the loop has not started: there are no samples yet"
    assert "\x1b" not in output, "colours where there is no terminal"


def test_a_store_that_is_not_there_is_bad_usage(bare_home: Home) -> None:
    assert bare_home.refused("status")[0].endswith("does not exist; run `springtide migrate` first")


def test_it_names_edges_that_are_left_alone(home: Home) -> None:
    home.fleet.write_text(home.fleet.read_text().replace("10.77.1.2}", "10.77.1.2, push: off}"))
    assert re.search(r"left alone +note +ams-2: what they have", home.run("status", code=1).stdout)
    home.fleet.write_text(home.fleet.read_text().replace("push: off", "push: later"))
    [refusal] = home.refused("status")
    assert "'later' is neither true nor false; write push: false, or leave it out" in refusal


def add_connections(home: Home, count: int, *, recorded: bool) -> None:
    """New ones of ams-1, in the newest round's table."""
    store = home.open()
    [newest] = store.query("select toUnixTimestamp(max(round)) as round, max(generation) as generation from rollups")
    one = {**newest, "host": "ams-1", "src_pop": "ams", "dst_pop": "fra", "counted": True, "began": True}
    store.insert("rollup_sockets", [{**one, "recorded": recorded} for _ in range(count)])


def test_it_follows_a_round_from_samples_to_the_fleet_and_into_age(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = [Socket("ams-1", n, "10.77.1.1", f"10.77.2.{n}", "ams") for n in range(1, 5)]
    samples = [s.at(ROUND - 290 + 50 * n, 100 + n, 40 * n * MSS) for s in sockets for n in range(6)]
    write_spool(home.spool, "a", [record(samples)])
    folder = PublishFolder(home.path / "publish")
    where = ("--publish-dir", folder.path)

    def steps(code: int) -> dict[str, Any]:
        answer = home.json("status", *where, code=code)
        assert answer["closing"] is (code == 0)
        return {step["what"]: step for step in answer["steps"]}

    home.run("ingest", home.spool)
    found = steps(1)
    assert (found["samples"]["state"], found["rounds"]["state"]) == ("ok", "none")
    assert found["samples"]["age_s"] == 70
    home.run("decide", "initcwnd")
    home.run("publish", *where)
    found = steps(1)
    assert found["initcwnd"]["text"] == "decided 30 s ago: 1 of 1 pairs have a window"
    assert "1 of 1 hosts" in found["samples"]["text"]
    assert (found["published"]["state"], found["on the fleet"]["state"]) == ("ok", "none")
    candidate = folder.resolved("candidate")
    assert candidate is not None
    folder.point("current", candidate / "edges")
    journal.append(folder.path, event("drift", "found", ago=20, edges=["nyc-1"]))
    journal.append(folder.path, event("rollout", ago=10))
    assert steps(1)["drift"]["text"] == "on nyc-1, 20 s ago"
    journal.append(folder.path, event("drift", "repaired", ago=20, edges=["nyc-1"]))
    assert "2 routes on 4 edges for another 14 min" in steps(0)["on the fleet"]["text"]
    home.policy.write_text("initcwnd: {duty_rounds: 1}\nenforce: {by: bpf}\n")
    add_connections(home, 20, recorded=False)
    assert "ams-1 (of 20 that began)" in steps(0)["records"]["text"]
    add_connections(home, 1, recorded=True)
    assert "records" not in steps(0)
    home.policy.write_text("initcwnd: {duty_rounds: 1}\n")
    home.run("history", *where)  # brings the journal into the store
    elsewhere = home.json("status", "--publish-dir", home.path / "none", code=1)["steps"]
    assert next(step for step in elsewhere if step["what"] == "last push")["text"] == "rollout done 10 s ago by ann"
    home.run("pause", *where, "--reason", "backbone")
    assert steps(1)["published"]["text"].endswith(": backbone")
    home.run("resume", *where)
    assert steps(0)["published"]["state"] == "ok"
    (folder.path / "withdrawn").write_text("withdrawn by ann: loss\n")
    assert "withdrawn by ann: loss" in steps(1)["last push"]["text"]
    (folder.path / "withdrawn").unlink()
    monkeypatch.setattr(instants, "now", lambda: ROUND + 3600)
    late = steps(1)
    stale = {what for what, step in late.items() if step["state"] == "stale"}
    assert stale == {"samples", "rounds", "initcwnd", "published"}
    assert late["on the fleet"]["state"] == "broken"


def test_its_gauges_are_what_alerts_need(home: Home, tmp_path: Path) -> None:
    folder = PublishFolder(home.path / "publish")
    journal.append(folder.path, event("gate", "roll back", ago=20))
    home.run("pause", "--reason", "a storm", "--publish-dir", folder.path)
    gauges = tmp_path / "springtide-status.prom"
    home.run("status", "--publish-dir", folder.path, "--metrics-dir", tmp_path, code=1)
    written = gauges.stat().st_mtime_ns
    home.run("status", "--publish-dir", folder.path, "--metrics-dir", "", code=1)
    (tmp_path / "file").touch()
    hidden = home.run("status", "--publish-dir", folder.path, "--metrics-dir", tmp_path / "file", code=1)
    assert "samples" in hidden.stdout
    assert len(hidden.stderr.splitlines()) == 1
    assert gauges.stat().st_mtime_ns == written
    output = gauges.read_text().splitlines()
    assert f"springtide_status_seconds {NOW}" in output
    assert 'springtide_step_closes{step="samples"} 0' in output
    assert f'springtide_event_seconds{{event="gate",verdict="roll back"}} {NOW - 20}' in output
    assert "springtide_paused 1" in output
    assert not any(line.startswith("springtide_bundles_expire_seconds ") for line in output), "nothing holds yet"
    (tmp_path / "held.prom").write_text("")
    write_metrics(tmp_path / "held.prom", status_gauges(GOOD, lines(GOOD), is_paused=False))
    held = (tmp_path / "held.prom").read_text()
    assert 'springtide_benefit_worse{law="initcwnd"} 0\n' in held
    assert f"springtide_bundles_expire_seconds {ROUTES.expires}\n" in held
    assert f'springtide_step_seconds{{step="on_the_fleet"}} {ROUTES.created}\n' in held
    assert 'springtide_treatments{law="initcwnd",seen="unknown"} 8\n' in held
    for text in (gauges.read_text(), held):
        subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True, check=True, capture_output=True)
