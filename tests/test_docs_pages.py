"""The documentation as a browser shows it, on a telephone and on a desk: nothing is cut, and what is wide scrolls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.browser import screens

ROOT = Path(__file__).parents[1]
# The first page, one with a picture, the longest code, the widest tables, the longest names.
PAGES = ("index", "explanation/calm", "how-to/install", "reference/tables", "runbooks/index")


@pytest.mark.proof
def test_pages_fit_a_telephone_and_a_desk(tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    pages = {f"docs-{name.replace('/', '-')}": site / f"{name}.html" for name in PAGES}
    for name, seen in screens(pages, tmp_path / "profile").items():
        assert seen.faults == [], name
        assert seen.beyond == 0, name
        assert all(url.startswith("file:") or url.startswith("data:") for url in seen.requests), name
        assert seen.colours > 30, f"{name}: the picture is blank"
