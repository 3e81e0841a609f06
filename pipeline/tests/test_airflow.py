"""The real scheduler, executor and assets, on PostgreSQL, an embedded store and a farm of edges behind sshd.

Rounds of a quarter of a minute replace those of five: the schedule follows the policy. Samples are there from some
minutes ago until well after the test: each round has its own as it closes, and the first run finds many missed.
`make test` runs Airflow in the whole chain (tests/pipeline/test_chain.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from springtide import instants
from springtide.publication import journal

from pipeline.api import Api
from pipeline.local import USER, LocalAirflow, free_port
from testkit import postgres
from testkit.farm import Farm
from testkit.home import Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = [pytest.mark.root, pytest.mark.proof]
INTERVAL = 15
MISSED = 12
AHEAD = 80
CWND = 40
# Airflow starts a process for each step: seconds on an idle machine, minutes on a busy one.
PATIENCE_S = 600
T = TypeVar("T")


def until(what: str, query: Callable[[], T | None]) -> T:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        found = query()
        if found:
            return found
        assert time.monotonic() < give_up, f"{what}: not within {PATIENCE_S} s"
        # An answer of Airflow's API takes a tenth of a second of a core.
        time.sleep(1)


@dataclass(kw_only=True)
class AirflowSite(Home):
    """An installation that Airflow runs: the farm's files, its store, and Airflow's API."""

    farm: Farm
    airflow: LocalAirflow
    api: Api

    def environment_of(self) -> dict[str, str]:
        return {
            **self.environment,
            "SPRINGTIDE_PUBLISH_DIR": str(self.farm.publish_dir),
            "SPRINGTIDE_STORE_WAIT": "200",
        }

    def ended(self, dag: str, besides: set[str], accept: str = "publish") -> dict[str, Any] | None:
        """The first run, not one of `besides`, that has ended and whose `accept` step came to something."""
        self.airflow.check()
        for run in self.api.runs(dag):
            if run["dag_run_id"] not in besides and run["state"] in ("success", "failed"):
                tasks = self.api.tasks(run)
                assert run["state"] == "success", {name: task["state"] for name, task in tasks.items()}
                if tasks["completeness" if accept == "publish" else accept]["state"] == "success":
                    return run
        return None

    def decided(self) -> list[int]:
        rows = self.query("select distinct toUnixTimestamp(round) as r from path_decisions order by r")
        return [int(row["r"]) for row in rows]

    def publishing(self) -> dict[str, str | None]:
        """By round's run the state of its step that publishes; None before it begins."""
        runs = self.api.runs("springtide_round")
        return {run["dag_run_id"]: self.api.tasks(run).get("publish", {}).get("state") for run in runs}


def samples(first: int, rounds: int) -> list[dict[str, Value]]:
    """Both PoPs' hosts towards each other, three connections each, polled twice a round."""
    rows: list[dict[str, Value]] = []
    for number, (host, source, peer) in enumerate(
        [("eu-0", "10.100.0.1", "10.101.0.9"), ("am-1", "10.101.0.1", "10.100.0.9")]
    ):
        for cookie in range(3):
            one = Socket(host, 100 * number + cookie + 1, source, peer, host[:2], CWND)
            for poll in range(2 * rounds):
                moment = first + poll * INTERVAL / 2 + 5
                rows.append(one.at(moment, poll + 1, (poll + 1) * CWND * MSS * 2))
    return rows


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowSite]:
    assert os.geteuid() == 0, "this test makes network namespaces: run it as root"
    folder = tmp_path_factory.mktemp("site")
    with Farm.made(folder, count=2) as farm, postgres.server("airflow", secrets.token_urlsafe(18)) as database:
        database.make("airflow")
        policy = f"round: {{interval_s: {INTERVAL}, lateness_s: 0}}\ninitcwnd: {{duty_rounds: 1}}\n"
        (folder / "policy.yaml").write_text(policy)
        # Settings that rollout.yml needs of the farm, and where it runs.
        words = farm.command("rollout.yml")
        settings = json.loads(words[words.index("-e") + 1]) | {"springtide_validate": True}
        del settings["springtide_publish_dir"]
        (folder / "settings.json").write_text(json.dumps(settings))
        ansible = [*words[: words.index("-i")], "-e", f"@{folder}/settings.json"]
        airflow = LocalAirflow(folder / "airflow", free_port(), database=database.url("airflow"))
        made = AirflowSite(path=folder, farm=farm, airflow=airflow, api=Api(airflow.url))
        airflow.more = {
            "PGPASSWORD": database.password,
            **{
                name: value
                for name, value in farm.environment().items()
                if name.startswith(("ANSIBLE_", "SPRINGTIDE_"))
            },
            **made.environment_of(),
            "SPRINGTIDE_SIGN_KEY": str(folder / "publisher"),
            "SPRINGTIDE_ANSIBLE": shlex.join(ansible),
            "SPRINGTIDE_METRICS_DIR": str(folder / "metrics"),
            "SPRINGTIDE_REPORT_DIR": str(folder / "reports"),
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
        }
        made.run("migrate")
        first = instants.latest_round(instants.now(), INTERVAL) - MISSED * INTERVAL
        write_spool(made.spool, "samples", [record(samples(first, MISSED + AHEAD))])
        made.run("ingest", made.spool)
        airflow.prepare()
        try:
            airflow.start(("api-server", "scheduler", "dag-processor"))
            made.api.log_in(USER, airflow.password)
            until("the DAGs are read", lambda: made.api.get("dags")["total_entries"] == 6)
            yield made
        finally:
            airflow.stop()


@pytest.fixture(scope="module")
def fixes() -> dict[str, str]:
    """Advice for a task that failed, by its name, as the DAG files have it."""
    # Not above: Airflow's import takes three seconds of each process that collects tests.
    from springtide_common import FIXES

    return FIXES


def test_dag_files_document_themselves(site: AirflowSite, fixes: dict[str, str]) -> None:
    assert site.api.get("importErrors")["import_errors"] == []
    dags = {dag["dag_id"]: site.api.get(f"dags/{dag['dag_id']}/details") for dag in site.api.get("dags")["dags"]}
    names = ("round", "rollout", "drift", "report", "maintenance", "backfill")
    assert set(dags) == {f"springtide_{name}" for name in names}
    for name, dag in dags.items():
        assert dag["doc_md"], name
        assert dag["max_active_runs"] == 1, name
        assert not dag["catchup"], name
        for task in site.api.get(f"dags/{name}/tasks")["tasks"]:
            where = f"{name}.{task['task_id']}"
            assert task["owner"] == "springtide", where
            assert task["execution_timeout"], where
            assert task["doc_md"], where
            assert task["retries"] >= (0 if task["task_id"] == "roll_out" else 1), where
            assert task["task_id"] in fixes, where


def test_the_loop_runs_by_itself(site: AirflowSite) -> None:
    """Missed rounds, a rollout, a step that is killed after its effect, a pause: one after the other, as in life."""
    folder = site.farm.folder
    site.api.unpause("springtide_round", "springtide_rollout")

    # Missed rounds: all are decided in order, only the newest is published, and it reaches the edges.
    first = until("a first round", lambda: site.ended("springtide_round", set()))
    # The next one goes on as its publication is waited for.
    site.api.pause("springtide_round", paused=True)
    assert first["run_type"] == "scheduled"
    published = published_until(site, first["end_date"])
    rollout = until("a rollout", lambda: site.ended("springtide_rollout", set(), "roll_out"))
    assert rollout["run_type"] == "asset_triggered"
    windows = site.farm.windows()
    assert set(windows["eu-0"]) == {"10.101.0.0/16"}
    assert set(windows["am-1"]) == {"10.100.0.0/16"}
    assert "rollout.yml" in site.api.log(rollout, "roll_out") or "Roll out" in site.api.log(rollout, "roll_out")
    held = folder.resolved("current")
    assert held is not None
    assert held.parent.name in folder.rounds()

    new = killed_publication(site)
    events = journal.read(site.farm.publish_dir)[0]
    assert not [event for event in events if event.publication == new], "it was killed too late to show anything"

    def retried() -> dict[str, Any] | None:
        for run in site.api.runs("springtide_round"):
            if run["state"] == "success" and site.api.tasks(run)["publish"]["try_number"] > 1:
                return run
        return None

    again = until("the killed step's retry", retried)
    assert site.api.tasks(again)["publish"]["state"] == "success"
    events = [event for event in journal.read(site.farm.publish_dir)[0] if event.publication == new]
    assert [event.event for event in events if event.event == "publish"] == ["publish"]
    of_the_round = [name for name in folder.rounds() if name.startswith(new.rpartition("-")[0])]
    assert of_the_round == [new], "the retry published a second time"

    # A pause: rounds go on, nothing is published.
    where = ("--publish-dir", site.farm.publish_dir)
    site.run("pause", "--reason", "the test requires it", *where)
    under_way = {"running", "queued", "scheduled"}
    until("no publishing step is under way", lambda: not under_way & set(site.publishing().values()))
    known = {run for run, state in site.publishing().items() if state}
    before = set(folder.rounds())
    paused = until("a round while paused", lambda: site.ended("springtide_round", known))
    site.api.pause("springtide_round", paused=True)
    tasks = site.api.tasks(paused)
    assert (tasks["initcwnd"]["state"], tasks["publish"]["state"]) == ("success", "skipped")
    assert "the test requires it" in site.api.log(paused, "publish")
    assert set(folder.rounds()) == before
    site.run("resume", *where)

    rounds = site.decided()
    assert rounds == list(range(rounds[0], rounds[-1] + 1, INTERVAL)), "a round was left out"
    first_at = instants.parse(re.sub(r"-\d{14}$", "", published[0]))
    assert first_at - rounds[0] >= (MISSED - 2) * INTERVAL, "no rounds were missed, so this shows nothing"
    assert len(published) == 1, published
    assert (site.path / "metrics/springtide_round_publish_succeeded.prom").exists()
    assert (site.path / "metrics/springtide-initcwnd.prom").exists()


def test_the_other_jobs_run_and_a_failed_one_reports_what_to_do(site: AirflowSite, fixes: dict[str, str]) -> None:
    """By hand, at once, as from the browser; they wait for each other at the store's pool."""
    until("a pause between two steps of a round", lambda: site.api.paused_between_steps("springtide_round"))
    rounds = site.decided()
    span = {"from": instants.show(rounds[1]), "to": instants.show(rounds[2])}
    query = f"select * from path_decisions where toUnixTimestamp(round) <= {rounds[-1]} order by all"
    before, publications = site.query(query), site.farm.folder.rounds()
    names = ("drift", "report", "maintenance")
    site.api.unpause(*(f"springtide_{name}" for name in (*names, "backfill")))
    started = {f"springtide_{name}": trigger(site, f"springtide_{name}") for name in names}
    good, bad = (
        trigger(site, "springtide_backfill", conf) for conf in (span, {"from": span["to"], "to": span["from"]})
    )
    for dag, run in started.items():
        ended = until(dag, partial(finished, site, dag, run))
        assert ended["state"] == "success", {name: task["state"] for name, task in site.api.tasks(ended).items()}
    assert until("backfill", lambda: finished(site, "springtide_backfill", good))["state"] == "success"
    assert site.query(query) == before
    assert site.farm.folder.rounds() == publications

    failed = until("the backfill that makes no sense", lambda: finished(site, "springtide_backfill", bad))
    assert failed["state"] == "failed"
    assert site.api.tasks(failed)["backfill_rounds"]["try_number"] == 1, "bad input was tried again"
    [failure] = [event for event in journal.read(site.farm.publish_dir)[0] if event.event == "job"]
    assert "is not a span of closed rounds" in failure.reason
    assert fixes["backfill_rounds"] in failure.reason
    assert (site.path / "metrics/springtide_backfill_backfill_rounds_failed.prom").exists()

    events = [(event.event, event.verdict) for event in journal.read(site.farm.publish_dir)[0]]
    assert ("drift", "none") in events
    day = instants.show(instants.now() - 86_400)[:10]
    assert (site.path / f"reports/{day}.html").read_text().startswith("<!doctype html>")
    json.loads((site.path / f"reports/{day}.json").read_text())


def trigger(site: AirflowSite, dag: str, conf: object = None) -> str:
    body = {"logical_date": None, "conf": conf or {}}
    return str(site.api.call("POST", f"/api/v2/dags/{dag}/dagRuns", body)["dag_run_id"])


def finished(site: AirflowSite, dag: str, name: str) -> dict[str, Any] | None:
    site.airflow.check()
    return next(
        (r for r in site.api.runs(dag) if r["dag_run_id"] == name and r["state"] in ("success", "failed")), None
    )


def killed_publication(site: AirflowSite) -> str:
    """The next one: its step is killed after its effect; the journal's lock stops it between both."""
    # A rollout would wait for the lock as well: none follows.
    until("a pause between two steps of a rollout", lambda: site.api.paused_between_steps("springtide_rollout"))
    with (site.farm.publish_dir / journal.FILE).open("a") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        site.api.unpause("springtide_round")
        killed = until("a step that waits for the journal", lambda: waiting_for(locked.fileno()))
        [new] = set(site.farm.folder.rounds()) - written(site)
        os.kill(killed, signal.SIGKILL)
    return new


def publish_events(site: AirflowSite) -> list[journal.Event]:
    """Events of publications in the journal."""
    return [event for event in journal.read(site.farm.publish_dir)[0] if event.event == "publish"]


def published_until(site: AirflowSite, end: str) -> list[str]:
    """The publications until a run's end. The next run begins after it, and its steps take seconds: what it publishes
    is none of them, though that may happen before anybody looks."""
    ended = datetime.fromisoformat(end).timestamp()
    return [event.publication for event in publish_events(site) if event.at_unix_s <= ended]


def written(site: AirflowSite) -> set[str]:
    """The publications that the journal has."""
    return {event.publication for event in publish_events(site)}


def waiting_for(descriptor: int) -> int | None:
    """The process that waits for a lock on an open file (proc(5), /proc/locks)."""
    inode = os.fstat(descriptor).st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "->" in words and words[-3].endswith(f":{inode}"):
            return int(words[words.index("WRITE") + 1])
    return None
