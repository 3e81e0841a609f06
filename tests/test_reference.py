"""What the reference says is what the code does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from springtide.policy import default_yaml
from springtide.store.migrations import read_migrations
from springtide.store.reference import tables_page

ROOT = Path(__file__).parents[1]


def test_the_policy_reference_is_made_from_the_code() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert f"```yaml\n{default_yaml()}```" in page, "paste what `springtide check --defaults` prints into the page"


PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: links to {target}, which does not exist"


def test_the_tables_reference_is_made_from_the_migrations() -> None:
    page = (ROOT / "docs/reference/tables.md").read_text()
    made = "write springtide.store.reference.tables_page(read_migrations()) into the page"
    assert page == tables_page(read_migrations()), made
