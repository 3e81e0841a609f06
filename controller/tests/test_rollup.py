"""`springtide rollup`: which rounds it does, and what a killed run leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from springtide import instants
from springtide.observe.rollup import STEPS, TABLES

from lab.collector import wait_until
from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

INTERVAL = 300

pytestmark = pytest.mark.usefixtures("clock")


def feed(home: Home, name: str, moments: list[int], sockets: int = 3) -> None:
    samples = [
        Socket("ams-1", n + 1, "10.77.1.1", f"10.77.2.{1 + n % 200}").at(
            moment - INTERVAL + at, moment // INTERVAL * 2 + (at > 100), (moment % 10**6 + at) * 200 * MSS
        )
        for moment in moments
        for at in (10, 200)
        for n in range(sockets)
    ]
    write_spool(home.spool, name, [record(samples)])
    home.run("ingest", home.spool)


def rounds(home: Home, *arguments: str) -> list[str]:
    return [line["round"] for line in home.json("rollup", *arguments)["rounds"]]


def test_closed_rounds_that_hold_samples_are_done_once_after_the_lateness_bound(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that a decision rolled up before that bound is done anew. Samples that come after it are counted as late
    until a roll-up takes them in."""
    early, late = ROUND - 5 * INTERVAL, ROUND - 2 * INTERVAL
    feed(home, "a", [early, late, ROUND])
    # Half a minute after ROUND it waits for its samples.
    assert rounds(home) == [instants.show(early), instants.show(late)]
    assert rounds(home) == []
    home.run("decide", "initcwnd")
    of_round = f"toUnixTimestamp(round) = {ROUND}"
    assert home.query(f"select waited_s from rollups final where {of_round}") == [{"waited_s": 30}]
    monkeypatch.setattr(instants, "now", lambda: ROUND + 60)
    assert rounds(home) == [instants.show(ROUND)]
    assert home.query(f"select waited_s from rollups final where {of_round}") == [{"waited_s": 60}]
    monkeypatch.setattr(instants, "now", lambda: ROUND + 100)
    answer = home.json("rollup")
    assert (answer["rounds"], answer["late_samples"]) == ([], 0)

    before = contents(home)
    feed(home, "late", [ROUND], sockets=5)
    answer = home.json("rollup")
    assert (answer["rounds"], answer["late_samples"]) == ([], 4)
    assert contents(home) == before
    assert home.query("select host, samples from round_late") == [{"host": "ams-1", "samples": 4}]
    assert home.json("rollup", "--round", instants.show(ROUND))["late_samples"] == 0
    assert home.query(f"select sum(samples) as n from round_sockets where {of_round}") == [{"n": 10}]


def test_a_backfill_does_every_round_of_its_span_but_those_whose_samples_have_expired(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says how far it is."""
    monkeypatch.setattr("springtide.cli.rollup.REPORTED", 2)
    feed(home, "a", [ROUND - 2 * INTERVAL])
    first, middle, last = expected = [instants.show(ROUND - n * INTERVAL) for n in (2, 1, 0)]
    done = home.run("rollup", "--from", first, "--json")
    assert [line["round"] for line in json.loads(done.stdout)["rounds"]] == expected
    assert done.stderr.splitlines() == [
        f"rollup: 3 rounds from {first} up to {last}; {first} is the first with samples",
        "rollup: 2 of 3 rounds done",
    ]
    assert rounds(home, "--from", first, "--to", first) == [first]
    [refusal] = home.refused("rollup", "--from", "-20000d", "--to", instants.show(ROUND - 3 * INTERVAL))
    assert refusal.startswith("springtide: --from: round: no samples are from 1971-"), refusal

    counted = "select toUnixTimestamp(round) as at, count() as n from round_sockets group by at order by at"
    [kept] = home.query(counted)
    home.open().execute("truncate table tcp_samples")
    feed(home, "b", [ROUND - INTERVAL])
    assert rounds(home, "--from", first) == [middle, last]
    assert home.query(counted)[0] == kept


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "2026-01-02T03:00:00Z"], "--to: round: is given without --from"),
        (["--round", "2026-01-02T03:00:00Z", "--from", "2026-01-02T03:00:00Z"], "give one or the other"),
        (["--from", "2026-01-02T03:00:00Z", "--to", "2026-01-02T02:00:00Z"], "is after"),
        (["--round", "2026-01-02T03:05:00Z"], "--round: round: 2026-01-02T03:05:00Z has not closed yet"),
        (["--from", "2026-01-02T03:05:00Z"], "--from: round: 2026-01-02T03:05:00Z has not closed yet"),
        (["--from", "2026-01-02T03:00:01Z"], "--from: round: 2026-01-02T03:00:01Z is not a multiple"),
        (["--from", "1969-01-02T03:00:01Z"], "--from: round: 1969-01-02T03:00:01Z is before 1970"),
        (["--from", "-30000d"], "--from: round: -30000d is before 1970"),
        (["--from", "2026-01-02T02:00:00Z", "--to", "today"], "--to: round: 'today' is not an instant"),
        (["--from", "2026-01-02T02:00:00Z", "--to", "2026-01-02T03:05:00Z"], "--to: round: 2026-01-02T03:05:00Z has"),
    ],
)
def test_what_cannot_be_meant_is_refused(home: Home, arguments: list[str], message: str) -> None:
    [line] = home.refused("rollup", *arguments)
    assert message in line


def contents(home: Home) -> list[list[dict[str, object]]]:
    names = [table.replace("rollup_", "round_") for table in TABLES]
    store = home.open()
    try:
        return [store.query(f"select cityHash64(tuple(*)) as row from {name} order by row") for name in names]
    finally:
        store.close()


KILLED = """
import os, signal, sys
from springtide.cli import main
from springtide.store.embedded import EmbeddedStore

left, execute = int(sys.argv.pop(1)), EmbeddedStore.execute

def execute_then_die(self, sql, params=None):
    global left
    execute(self, sql, params)
    left -= "insert into rollup" in sql
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

EmbeddedStore.execute = execute_then_die
main()
"""


@pytest.mark.proof
def test_a_run_killed_between_any_two_steps_changes_nothing_that_readers_see(home: Home) -> None:
    # Every step runs only where an edge paces.
    home.policy.write_text("enforce: {by: bpf}\n")
    feed(home, "a", [ROUND - INTERVAL, ROUND], sockets=50)
    moment = instants.show(ROUND)
    home.run("rollup", "--round", moment)
    before = contents(home)
    assert all(before[:4])
    # The last of them is the line that commits: what follows it only removes what it replaced.
    for step in range(1, len(STEPS) + 2):
        command = [sys.executable, "-c", KILLED, str(step), "rollup", "--round", moment]
        home.release()
        killed = subprocess.run(command, env={**os.environ, **home.environment}, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert contents(home) == before
        [row] = home.query("select uniqExact(generation) as n from rollup_polls")
        assert row["n"] == step + 1
    [row] = home.query("select uniqExact(generation) as n from rollup_records")
    assert row["n"] > 1
    home.run("rollup", "--round", moment)
    assert contents(home) == before
    store = home.open()

    def removed() -> bool:
        """The engine does so by and by."""
        kept = {"rollup_polls": 1, "rollup_records": 0}
        counts = [store.query(f"select uniqExact(generation) as n from {table}") for table in kept]
        return counts == [[{"n": number}] for number in kept.values()]

    try:
        wait_until("end of what was replaced", removed)
    finally:
        store.close()
