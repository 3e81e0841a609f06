"""docs/reference/install-steps.md has every command of the pages that install, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIST = (ROOT / "docs/reference/install-steps.md").read_text()
# Sections of that page, each with the page and, where not the whole of it installs, the sections that it is about.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Install on a fleet": ("install", ()),
    "From three hosts to a first window": ("first-window", ()),
    "Run the collector: install, upgrade": ("run-the-collector", ("Install", "Upgrade")),
    "Push routes: prepare": ("push-routes", ("Prepare",)),
    "Install a site": ("install-a-site", ()),
    "Run it in Airflow: install": ("run-in-airflow", ("Install",)),
    "Run everything with Docker": ("run-with-compose", ()),
    "Run the collector in Kubernetes": ("run-in-kubernetes", ()),
    "Upgrade": ("upgrade", ()),
}


def section(title: str) -> str:
    return LIST.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[tuple[str, str, str]]:
    """Beginning of a command, how it is executed, and by what."""
    return re.findall(r"^\| `(.+?)` \| (as it stands|its like|nothing) \| (.+) \|$", section(title), re.M)


def commands(page: str, sections: tuple[str, ...]) -> list[str]:
    text = (ROOT / f"docs/how-to/{page}.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    chosen = [body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name in sections]
    assert len(chosen) == len(sections)
    blocks = re.findall(r"```sh\n(.*?)```", "".join(chosen) if sections else text, re.S)
    return [line for block in blocks for line in block.splitlines()]


def test_every_table_is_of_a_page() -> None:
    titles = re.findall(r"^## (.*)$", LIST, re.M)
    assert titles == [*PAGES, "What no test has"]
    for title, (page, _) in PAGES.items():
        assert f"](../how-to/{page}.md" in section(title)


@pytest.mark.parametrize("title", PAGES)
def test_every_command_has_a_row_and_every_row_a_command(title: str) -> None:
    listed = rows(title)
    assert len(listed) == section(title).count("\n| `")
    lines = commands(*PAGES[title])
    assert lines
    for line in lines:
        assert [begin for begin, _, _ in listed if line.startswith(begin)], f"no row for: {line}"
    for begin, _, _ in listed:
        assert [line for line in lines if line.startswith(begin)], f"no command for: {begin}"


@pytest.mark.parametrize("title", PAGES)
def test_whatever_is_executed_names_its_test_and_whatever_is_not_its_reason(title: str) -> None:
    for begin, how, by in rows(title):
        named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", by)
        assert bool(named) is (how != "nothing"), begin
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name} is not there"
