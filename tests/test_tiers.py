"""`make test` leaves long tests to `make proof`, draws some of them where it is asked to, and says what it spent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "conftest",
    "-p",
    "no:cacheprovider",
    "-c",
    "pyproject.toml",
    "-q",
    "-n",
    "2",
]
TESTS = """
import time
import pytest

@pytest.fixture
def slow():
    time.sleep(0.4)

def test_short(slow):
    sum(range(10**7))

@pytest.mark.proof
@pytest.mark.parametrize("number", range(60))
def test_long(number):
    pass
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_some.py").write_text(TESTS)
    command = [*PYTEST, str(folder / "test_some.py"), *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("options", "passed"), [((), 1), (("-m", "proof", "--proofs", "1"), 60), (("--proofs", "1"), 61)]
)
def test_long_tests_run_where_they_are_asked_for(tmp_path: Path, options: tuple[str, ...], passed: int) -> None:
    assert run(tmp_path, *options).splitlines()[-1].startswith(f"{passed} passed")


def test_those_that_are_drawn_are_named_and_drawn_again_by_the_seed(tmp_path: Path) -> None:
    def drawn(seed: int) -> list[str]:
        said = run(tmp_path, "--proofs", "10", "--proofs-seed", str(seed))
        named = re.findall(r"^\S*::test_long\[\d+\]$", said, re.MULTILINE)
        assert said.splitlines()[-1].startswith(f"{len(named) + 1} passed")
        assert f"--proofs 10 --proofs-seed {seed}" in said
        return named

    first, second = drawn(1), drawn(2)
    assert len(first) == 6
    assert first != second
    assert first == drawn(1)


def test_what_was_spent_is_shown_by_file(tmp_path: Path) -> None:
    run(tmp_path, "--spent", str(tmp_path / "spent.json"))
    [(name, spent)] = json.loads((tmp_path / "spent.json").read_text())["files"].items()
    assert spent["tests"] == 1
    assert spent["setup"] >= 0.4
    # Of the sum, and not of the sleep.
    assert 0 < spent["cpu"] < spent["setup"] + spent["call"]
    shown = subprocess.run(
        [sys.executable, "-m", "tools.tests", "5", str(tmp_path / "spent.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(rf"^ +[\d.]+ +0\.4\d* .* 1  {re.escape(name)}$", shown.stdout, re.MULTILINE)
    absent = subprocess.run(
        [sys.executable, "-m", "tools.tests", "5", "absent"], cwd=ROOT, capture_output=True, text=True
    )
    assert (absent.returncode, absent.stderr) == (2, "absent: No such file or directory; run `make test` first\n")
