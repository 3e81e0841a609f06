"""Pages that name tests name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["reference/proofs.md", "explanation/threat-model.md"])
def test_every_proof_is_a_test_that_exists(page: str) -> None:
    named = re.findall(r"`([\w/.-]+)\.(py|rs)::(\w+)`", (ROOT / "docs" / page).read_text())
    assert named
    for path, kind, name in named:
        definition = {"py": "def", "rs": "fn"}[kind]
        assert f"{definition} {name}(" in (ROOT / f"{path}.{kind}").read_text(), f"{path}.{kind}::{name} is not there"


def test_every_line_of_what_is_at_most_possible_has_its_test() -> None:
    text = (ROOT / "docs/explanation/threat-model.md").read_text()
    part = text.split("\n## At most, and the test that shows it\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (.*)$", part, re.M) == [
        "A hostile edge",
        "A hostile network",
        "A hostile client",
        "A lost publisher key",
        "A broken disk",
    ]
    rows = [line for line in part.splitlines() if line.startswith("| ") and not line.startswith("| at most ")]
    assert [row for row in rows if not re.search(r"`[\w/.-]+\.(py|rs)::\w+` \|$", row)] == []
