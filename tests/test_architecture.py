"""The architecture page names what is there: every path in it leads to a file or folder, and every room is in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text()
# Names alone in backquotes that have a slash.
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", PAGE)))


# Where a path may begin: at the root, or in the component that is described.
STARTS = (ROOT, ROOT / "controller/springtide", ROOT / "collector", ROOT / "edge")


def test_every_path_is_there() -> None:
    assert len(NAMED) > 30
    assert [path for path in NAMED if not any((start / path).exists() for start in STARTS)] == []


def test_every_room_is_named() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    rooms = {file.split("/")[0] for file in files if "/" in file and not file.startswith(".")}
    packages = {file.split("/")[2] for file in files if re.match(r"controller/springtide/\w+/\w+\.py$", file)}
    crate = {f"src/{file.split('/')[2]}" for file in files if re.match(r"(collector|edge)/src/\w+/", file)}
    missing = [room for room in sorted(rooms | packages | crate) if room not in PAGE]
    assert missing == []
