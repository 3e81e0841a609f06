"""The page about Airflow: its commands are ones that Airflow takes, its tables name what is there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/run-in-airflow.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]

PARSE = """
import json, sys
from airflow.cli.cli_parser import get_parser
for words in json.load(sys.stdin):
    get_parser().parse_args(words)
"""


def test_airflow_takes_these_commands(tmp_path: Path) -> None:
    commands = [shlex.split(line)[1:] for line in LINES if line.startswith("airflow ")]
    assert len(commands) >= 5
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input=json.dumps(commands),
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_names_every_dag_and_every_step_that_can_fail() -> None:
    # Not above: Airflow's import takes three seconds of each process that collects tests.
    from springtide_common import FIXES

    for path in (ROOT / "pipeline/dags").glob("springtide_*.py"):
        assert path.stem == "springtide_common" or f"`{path.stem}`" in PAGE, path.stem
    table = PAGE.partition("| step |")[2]
    for step in FIXES.keys() - {"plan", "report", "retention", "publications", "backfill_rounds"}:
        assert re.search(rf"\b{step}\b", table), step


def test_pools_are_those_that_steps_use() -> None:
    from springtide_common import FLEET, STORE

    pools = json.loads((ROOT / "pipeline/pools.json").read_text())
    assert {name: pool["slots"] for name, pool in pools.items()} == {STORE: 1, FLEET: 1}
