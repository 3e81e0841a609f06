"""docs/reference/proofs.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_proof_is_a_test_that_exists() -> None:
    named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", (ROOT / "docs/reference/proofs.md").read_text())
    assert named
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name} is not there"
