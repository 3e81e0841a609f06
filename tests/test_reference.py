"""What the reference says is what the code does."""

from __future__ import annotations

from pathlib import Path

from springtide.policy import default_yaml

ROOT = Path(__file__).parents[1]


def test_the_policy_reference_is_made_from_the_code() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert f"```yaml\n{default_yaml()}```" in page, "paste what `springtide check --defaults` prints into the page"
