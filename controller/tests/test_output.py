"""Tables on terminals of any width, in pipes, and of nothing."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

PRINTS = "from springtide.cli.output import print_table; print_table({columns!r}, {rows!r}, title='What is shown')"
COLUMNS = ["destination", "connections", "share of the path's rate", "reason"]
ROWS: list[list[object]] = [
    ["fra", 123_456_789, 0.123456789, "on_trial"],
    ["2001:db8:12:3400::/56", None, 7.5, "[bold]x[/bold]\x1b[2J"],
]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def printed(width: int | None, rows: Sequence[Sequence[object]]) -> str:
    """On a terminal so wide; None: in a pipe."""
    command = [sys.executable, "-c", PRINTS.format(columns=COLUMNS, rows=rows)]
    if width is None:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, env={**os.environ, "COLUMNS": str(width)}) as child:
        os.close(theirs)
        found = b""
        try:
            while part := os.read(ours, 65536):
                found += part
        except OSError:
            # So a terminal ends.
            pass
        finally:
            os.close(ours)
    assert child.returncode == 0
    return ESCAPES.sub("", found.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200, None])
def test_no_width_cuts_a_value(width: int | None) -> None:
    text = printed(width, ROWS)
    for value in ("123456789", "0.123456789", "2001:db8:12:3400::/56", "on_trial", "What is shown"):
        assert value in text
    assert "\x1b[2J" not in text
    assert "[bold]x[/bold]" in text


def test_where_it_is_too_narrow_each_row_is_lines_of_its_own() -> None:
    lines = printed(40, ROWS).splitlines()
    assert lines[:6] == [
        "What is shown",
        "destination: fra",
        "connections: 123456789",
        "share of the path's rate: 0.123456789",
        "reason: on_trial",
        "",
    ]
    assert lines[6:8] == ["destination: 2001:db8:12:3400::/56", "connections: -"]


@pytest.mark.parametrize("width", [40, 200, None])
def test_nothing_says_so(width: int | None) -> None:
    assert "no rows" in printed(width, [])
