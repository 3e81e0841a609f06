"""The worked example of a third law, added to a copy of the code as on the page, and run as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from springtide import instants
from springtide.store import open_store

from testkit import worked
from testkit.home import FLEET

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how-to/add-a-law.md").read_text()
INTERVAL = 300


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with the example in it."""
    folders = ("controller/springtide", "sql", "proto", "dashboards")
    return worked.copy(tmp_path_factory.mktemp("tree"), folders, PAGE)


@pytest.mark.proof
def test_the_law_is_decided_replayed_kept_and_shown(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "policy.yaml").write_text("busiest: {min_connections: 5}\n")
    store_url = f"chdb://{tmp_path / 'store'}"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'controller'}:{tree}",
        "SPRINGTIDE_FLEET": str(tmp_path / "fleet.yaml"),
        "SPRINGTIDE_POLICY": str(tmp_path / "policy.yaml"),
        "SPRINGTIDE_PUBLISH_DIR": str(tmp_path / "publish"),
        "SPRINGTIDE_STORE": store_url,
    }

    def run(*words: str) -> str:
        command = [sys.executable, "-c", "from springtide.cli import main; main()", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        assert done.returncode in (0, 1 if words[0] == "status" else 0), done.stderr
        return done.stdout

    assert "busiest:" in run("check", "--defaults")
    run("migrate")
    moment = instants.latest_round(instants.now(), INTERVAL)
    store = open_store(store_url, create=False, wait_s=10, on_wait=print)
    try:
        pairs = [("fra", 9), ("nyc", 2)]
        head = {"round": moment, "generation": 1, "src_pop": "ams", "ip_version": 4}
        store.insert("rollup_pairs", [{**head, "dst_pop": dst, "connections_seen": seen} for dst, seen in pairs])
        at = {"round": moment, "generation": 1}
        done = {"interval_s": INTERVAL, "waited_s": 60, "samples": 9, "sockets": 9, "computed_at": moment + 60}
        store.insert("rollups", [{**at, **done}])
        counts = {"polls_seen": 9, "polls_expected": 9, "rows_seen": 9, "rows_expected": 9}
        store.insert("rollup_hosts", [{**at, "host": host, "pop": "ams", **counts} for host in ("ams-1", "ams-2")])
    finally:
        store.close()

    at_round = ("--round", instants.show(moment))
    decided = json.loads(run("decide", "busiest", *at_round, "--json"))
    assert [(row["destination"], row["action"]) for row in decided["decisions"]] == [("fra", "set"), ("nyc", "none")]
    assert decided["written"] == 2
    assert json.loads(run("decide", "busiest", *at_round, "--json"))["written"] == 0
    [summary] = json.loads(run("replay", "--law", "busiest", "--to", instants.show(moment), "--json"))["summary"]
    assert (summary["values_at_the_end"], summary["values_at_the_end_recorded"]) == (1, 1)
    steps = {step["what"]: step for step in json.loads(run("status", "--json"))["steps"]}
    assert steps["busiest"]["state"] == "ok"
    assert "path_decisions" in run("retention", "apply")
    fleet = "from dashboards.generate import texts; print(texts()['fleet.json'])"
    drawn = subprocess.run([sys.executable, "-c", fleet], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "part = 'busiest'" in drawn.stdout, drawn.stderr


def test_it_is_six_files() -> None:
    assert len(worked.files(PAGE)) <= 6
