"""The worked example of a third law, added to a copy of the code as the page says, and run as a user would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from springtide import instants
from springtide.store import open_store

from testkit.home import FLEET

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how-to/add-a-law.md").read_text()
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.M | re.S)
INTERVAL = 300


def changed(text: str, difference: str) -> str:
    """The text with lines of the difference put in after those that they follow, or in the place of others."""
    at = 0
    for line in difference.splitlines():
        mark, content = line[0], line[1:] + "\n"
        if mark == "+":
            text = text[:at] + content + text[at:]
            at += len(content)
        else:
            start = text.index(content, at)
            if mark == "-":
                text = text[:start] + text[start + len(content) :]
                at = start
            else:
                at = start + len(content)
    return text


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with the example in it."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("controller/springtide", "sql", "proto"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    number = max(int(path.name[:4]) for path in (tree / "sql/migrations").glob("*.sql")) + 1
    for kind, title, content in BLOCK.findall(PAGE):
        path = tree / title.replace("NNNN", f"{number:04}")
        path.parent.mkdir(exist_ok=True)
        path.write_text(changed(path.read_text(), content) if kind == "diff" else content)
    return tree


def test_the_law_is_decided_replayed_kept_and_shown(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "policy.yaml").write_text("busiest: {min_connections: 5}\n")
    store_url = f"chdb://{tmp_path / 'store'}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "controller"),
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

    decided = json.loads(run("decide", "busiest", "--json"))
    assert [(row["dst_pop"], row["action"]) for row in decided["decisions"]] == [("fra", "busy"), ("nyc", "none")]
    assert decided["written"] == 2
    assert json.loads(run("decide", "busiest", "--json"))["written"] == 0
    [summary] = json.loads(run("replay", "--law", "busiest", "--json"))["summary"]
    assert (summary["values_at_the_end"], summary["values_at_the_end_recorded"]) == (1, 1)
    steps = {step["what"]: step for step in json.loads(run("status", "--json"))["steps"]}
    assert steps["busiest"]["state"] == "ok"
    assert "busiest_decisions" in run("retention", "apply")


def test_it_is_eight_files() -> None:
    assert len({title for _, title, _ in BLOCK.findall(PAGE)}) <= 8
