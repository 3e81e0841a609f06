"""The tutorial's commands, run as written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.root
# Before each block once there is traffic; a round has 20 s.
READS_S = 25


def round_trips(output: str) -> list[float]:
    """The last column of each probe table's line: the median transfer in round trips."""
    return [float(found) for found in re.findall(r"^│ ams +│ sin +│.*│ +([\d.]+) │$", output, re.M)]


def clean() -> None:
    """Takes the tutorial's lab down, if it is up."""
    subprocess.run([ROOT / ".venv/bin/python", "-m", "lab", "clean", "tutorial"], cwd=ROOT, check=False)


@pytest.mark.proof
def test_the_tutorial_does_what_it_says_at_any_speed(tmp_path: Path) -> None:
    """A reader who takes longer than a round, and than the traffic once lasted, gets the same."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.S)
    script = "\n".join([*blocks[:-3], *(f"sleep {READS_S}\n{block}" for block in blocks[-3:])])
    log = tmp_path / "output"
    clean()  # what a killed run left behind
    try:
        with log.open("wb") as out:
            command = ["bash", "-euo", "pipefail", "-c", script]
            done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False, timeout=600)
    finally:
        clean()
    output = log.read_text()
    print(output)
    assert done.returncode == 0
    before, after = round_trips(output)
    assert before - after >= 1.5
    assert "0 rows in 0 records loaded" in output  # the second ingest
    assert re.search(r"10\.78\.2\.0/24 .* initcwnd \d{2,3}\b", output)
