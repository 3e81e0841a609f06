"""The worked example of a new field, from the kernel's structure to a panel, in a copy of the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testkit import worked

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how-to/add-a-field.md").read_text()
SCRIPT = """
import json
import sys
from pathlib import Path
from dashboards.generate import documents
from dashboards.plugin import View, expanded
from springtide.fleet import load_fleet
from springtide.observe.ingest import ingest
from springtide.store import open_store
from springtide.store.migrations import migrate, read_migrations
from testkit.home import FLEET, ROUND
from testkit.spool import record, write_spool
from testkit.traffic import Socket

folder = Path(sys.argv[1])
(folder / "fleet.yaml").write_text(FLEET)
sample = Socket("ams-1", 1, "10.77.1.1", "10.77.2.1", pop="ams", more={"rcv_space_bytes": 14600}).at(ROUND - 9, 1, 1)
write_spool(folder / "spool", "one", [record([sample])])
store = open_store(f"chdb://{folder}/store", create=True, wait_s=10, on_wait=print)
migrate(store, read_migrations())
ingest(store, load_fleet(folder / "fleet.yaml"), folder / "spool")
panels = documents()["connections.json"]["panels"]
[panel] = [panel for panel in panels if panel["title"] == "Receivers' buffer space"]
query = expanded(panel["targets"][0]["rawSql"], {"host": ["ams-1"]}, View(ROUND - 600, ROUND))
print(json.dumps(store.query(query)))
store.close()
"""


def number() -> str:
    """The next free number of the message."""
    text = (ROOT / "proto/springtide/v1/tcp_sample.proto").read_text()
    body = text[text.index("message TcpSample") : text.index("message Envelope")]
    return str(max(int(found) for found in re.findall(r" = (\d+);", body)) + 1)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rust = ("core", "collector", "controller/native", "edge", "lab/wan")
    folders = ("controller/springtide", "sql", "proto", "dashboards", "testkit", *rust)
    holes = {"NNN": number(), "MMMM": worked.next_migration()}
    return worked.copy(tmp_path_factory.mktemp("tree"), folders, PAGE, **holes)


def test_it_is_four_files() -> None:
    assert len(worked.files(PAGE)) <= 5


def test_what_a_collector_sends_reaches_the_panel(tree: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'controller'}{os.pathsep}{tree}"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout.splitlines()[-1])
    assert row["p50"] == 14600


@pytest.mark.proof
def test_the_collector_reads_it(tree: Path) -> None:
    """Compiled, with the contract's own types: a field that only one of the two has does not pass.

    It is the whole workspace with its dependencies for development, as the linter checks it: in less, crates have other
    features, and none that is built already would do.
    """
    shutil.copy(ROOT / "Cargo.toml", tree)
    shutil.copy(ROOT / "Cargo.lock", tree)
    command = ["cargo", "check", "--workspace", "--lib", "--examples", "--locked", "--quiet"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target")}
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
