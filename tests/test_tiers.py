"""`make test` leaves long tests to `make proof`, and says what it spent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIONS = "-m pytest -p conftest -p no:cacheprovider -c pyproject.toml -q"
SHORT = """
import time
import pytest

@pytest.fixture
def slow():
    time.sleep(0.4)

def test_short(slow):
    sum(range(10**7))
"""
LONG = """
import pytest

@pytest.mark.proof
@pytest.mark.parametrize("number", range(3))
def test_long(number):
    pass
"""


def run(folder: Path, *options: str, workers: int = 0) -> str:
    (folder / "test_short.py").write_text(SHORT)
    (folder / "test_long.py").write_text(LONG)
    command = [sys.executable, *OPTIONS.split(), "-n", str(workers), str(folder), f"--rootdir={folder}", *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("options", "passed"), [((), 1), (("-m", "proof"), 3)])
def test_long_tests_run_where_they_are_asked_for(tmp_path: Path, options: tuple[str, ...], passed: int) -> None:
    assert run(tmp_path, *options).splitlines()[-1].startswith(f"{passed} passed")


def test_what_was_spent_is_shown_by_file(tmp_path: Path) -> None:
    run(tmp_path, "--spent", str(tmp_path / "spent.json"), workers=1)
    [(name, spent)] = json.loads((tmp_path / "spent.json").read_text())["files"].items()
    assert (name, spent["tests"]) == ("test_short.py", 1)
    assert spent["setup"] >= 0.4
    assert spent["cpu"] > 0.05
    shown = subprocess.run(
        [sys.executable, "-m", "tools.tests", "5", str(tmp_path / "spent.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(r"^ +[\d.]+ +[\d.]+ +[\d.]+ +1  test_short.py$", shown.stdout, re.MULTILINE)
    absent = subprocess.run(
        [sys.executable, "-m", "tools.tests", "5", "absent"], cwd=ROOT, capture_output=True, text=True
    )
    assert (absent.returncode, absent.stderr) == (2, "absent: No such file or directory; run `make test` first\n")
