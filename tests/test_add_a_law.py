"""The worked example of a law, added to a copy of the code as on the page, and run as a user would: alone, and with the
field by which it acts."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from springtide import instants
from springtide.store import open_store

from testkit import marked, worked
from testkit.edge import make_key
from testkit.home import FLEET

HOW_TO = worked.ROOT / "docs/how-to"
PAGE = (HOW_TO / "add-a-law.md").read_text()
LAW = PAGE.partition("## Let it act")[0]
# In the last step of that page another law gives the field.
FIELD = (HOW_TO / "add-an-enforced-field.md").read_text().partition("## What the controller gives")[0]
# A field's lines there are written by hand; nothing checks them.
REFERENCE = "docs/reference/bundle.md"
INTERVAL = 300
PYTHON = ("controller/springtide", "sql", "proto", "dashboards")
# The copy's edge takes a file that this key has signed.
ENFORCE = """
import json, sys
from pathlib import Path
from testkit import host as hosts
from testkit import marked

with hosts.made(Path(sys.argv[1])) as host:
    host.edge.allowed_signers.write_text(f"springtide {Path(sys.argv[2]).read_text()}")
    taken = host.run("apply", sys.argv[3])
    found = {"in_map": marked.in_map(host, "tos"), "octets": marked.octets(host, "10.77.2.1")}
    print(json.dumps({"taken": [taken.code, taken.errors], **found}))
"""


def commands(page: str) -> list[list[str]]:
    """Those that it tells a user to run, in words."""
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@dataclass
class Site:
    """An installation of a copy of the code. In its round ams opened many connections to fra, and few to nyc."""

    tree: Path
    folder: Path
    moment: int = field(default_factory=lambda: instants.latest_round(instants.now(), INTERVAL))
    ran: list[list[str]] = field(default_factory=list)

    @classmethod
    def made(cls, tree: Path, folder: Path, policy: str) -> Site:
        (folder / "fleet.yaml").write_text(FLEET)
        (folder / "policy.yaml").write_text(policy)
        site = cls(tree, folder)
        site.run("migrate")
        store = open_store(site.store_url, create=False, wait_s=10, on_wait=print)
        try:
            at = {"round": site.moment, "generation": 1}
            head = {**at, "src_pop": "ams", "ip_version": 4}
            pairs = [{**head, "dst_pop": dst, "connections_seen": seen} for dst, seen in (("fra", 9), ("nyc", 2))]
            store.insert("rollup_pairs", pairs)
            done = {"interval_s": INTERVAL, "waited_s": 60, "samples": 9, "sockets": 9}
            store.insert("rollups", [{**at, **done, "computed_at": site.moment + 60}])
            counts = {"polls_seen": 9, "polls_expected": 9, "rows_seen": 9, "rows_expected": 9}
            hosts = [{**at, "host": host, "pop": "ams", **counts} for host in ("ams-1", "ams-2")]
            store.insert("rollup_hosts", hosts)
        finally:
            store.close()
        return site

    @property
    def store_url(self) -> str:
        return f"chdb://{self.folder / 'store'}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": f"{self.tree / 'controller'}:{self.tree}",
            "SPRINGTIDE_FLEET": str(self.folder / "fleet.yaml"),
            "SPRINGTIDE_POLICY": str(self.folder / "policy.yaml"),
            "SPRINGTIDE_PUBLISH_DIR": str(self.folder / "publish"),
            "SPRINGTIDE_STORE": self.store_url,
        }

    def run(self, *words: str) -> str:
        self.ran.append(["springtide", *words])
        command = [sys.executable, "-c", "from springtide.cli import main; main()", *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        print(done.stdout, done.stderr)
        assert done.returncode in (0, 1 if words[0] == "status" else 0), done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def decide(self, law: str) -> Any:
        return self.json("decide", law, "--round", instants.show(self.moment))

    def has_run(self, page: str) -> bool:
        """Whether all that the page tells a user to run was run, with more options or without."""
        return all(any(ran[: len(one)] == one for ran in self.ran) for one in commands(page))


@pytest.mark.proof
def test_the_law_is_decided_replayed_kept_and_shown(tmp_path: Path) -> None:
    tree = worked.copy(tmp_path / "tree", PYTHON, LAW)
    site = Site.made(tree, tmp_path, "busiest: {min_connections: 5}\n")
    assert "busiest:" in site.run("check", "--defaults")
    decided = site.decide("busiest")
    assert [(row["destination"], row["action"]) for row in decided["decisions"]] == [("fra", "set"), ("nyc", "none")]
    assert decided["written"] == 2
    assert site.decide("busiest")["written"] == 0
    [summary] = site.json("replay", "--law", "busiest", "--to", instants.show(site.moment))["summary"]
    assert (summary["values_at_the_end"], summary["values_at_the_end_recorded"]) == (1, 1)
    steps = {step["what"]: step for step in site.json("status")["steps"]}
    assert steps["busiest"]["state"] == "ok"
    assert "path_decisions" in site.run("retention", "apply")
    fleet = "from dashboards.generate import texts; print(texts()['fleet.json'])"
    assert "part = 'busiest'" in worked.run(tree, fleet)
    assert site.has_run(LAW)


@pytest.mark.proof
@pytest.mark.root
def test_it_acts_as_far_as_a_packet(tmp_path: Path) -> None:
    """Decided, published and signed by the copy's controller, and enforced by the copy's edge."""
    tree = worked.copy(tmp_path / "tree", (*PYTHON[:3], "testkit", *worked.CRATES), PAGE + FIELD)
    worked.build(tree, "springtide-edge", "springtide-native")
    site = Site.made(tree, tmp_path, "busiest: {min_connections: 5}\nenforce: {by: bpf}\n")
    key = make_key(tmp_path / "publisher")
    site.decide("initcwnd")
    site.decide("busiest")
    published = Path(site.json("publish", "--sign-key", key.name)["folder"]) / "edges"
    entries = {path.stem: json.loads(path.read_bytes())["entries"] for path in published.glob("*.json")}
    of_ams = [{"prefix": "10.77.2.0/24", "tos": 72}]
    assert entries == {"ams-1": of_ams, "ams-2": of_ams, "fra-1": [], "nyc-1": []}
    assert site.has_run(PAGE.removeprefix(LAW))

    (tmp_path / "edge").mkdir()
    arguments = (tmp_path / "edge", key.with_suffix(".pub"), published / "ams-1.json")
    found = json.loads(worked.run(tree, ENFORCE, *map(str, arguments)))
    assert found["taken"] == [0, ""]
    assert found["in_map"] == {"10.77.2.0/24": 72, **dict.fromkeys(marked.OF_EVERY_EDGE, 0)}
    assert found["octets"] == {"10.77.2.1": [72, 72], "192.168.0.2": [0, 0]}


@pytest.mark.proof
def test_the_linters_and_the_floors_of_imports_allow_it(tmp_path: Path) -> None:
    """Its files are all: nothing in pyproject.toml has to name it."""
    folders = ("controller/springtide", "lab", "testkit", "bench", "evidence", "dashboards", "tools")
    tree = worked.copy(tmp_path, folders, PAGE)
    for name in ("pyproject.toml", "controller/tests/test_imports.py"):
        shutil.copy(worked.ROOT / name, tree)
    package = "controller/springtide/laws/busiest"
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'controller'}:{tree}"}
    for command in (
        "lint-imports --no-cache",
        "pytest -q -p no:cacheprovider test_imports.py -k circle",
        f"ruff check --no-cache {package}",
        f"ruff format --no-cache --check {package}",
        f"mypy --strict --cache-dir=/dev/null {package}",
    ):
        tool, *words = shlex.split(command)
        done = subprocess.run(
            [Path(sys.executable).with_name(tool), *words], env=environment, cwd=tree, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_four_files_and_eight_where_it_acts() -> None:
    assert len(worked.files(LAW)) <= 4
    assert len(worked.files(PAGE + FIELD) | {REFERENCE}) <= 8
