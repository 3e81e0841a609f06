"""The reference matches the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from springtide.cli import cli
from springtide.laws.registry import METRICS
from springtide.store.migrations import read_migrations
from springtide.store.reference import HEAD, tables_page

from tools import docs_site, reference, words

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return reference.pages()


def test_the_bundles_schema_is_made_from_the_code() -> None:
    assert reference.SCHEMA.read_text() == reference.schema(), "run `python -m tools.reference`"


def test_pages_that_are_made_are_not_checked_in(pages: Mapping[str, str]) -> None:
    assert not [name for name in pages if (ROOT / "docs/reference" / name).exists()]


def test_every_command_metric_column_and_option_is_in_the_reference(pages: Mapping[str, str]) -> None:
    assert pages["commands.md"].count("\n## springtide ") == len(list(reference.leaves(cli))) > 25
    assert pages["metrics.md"].partition("## The controller's")[2].count("| `springtide_") == len(METRICS)
    assert "| `connections_earned` | UInt64 |  |" in pages["tables.md"].partition("\n## round_pairs\n")[2]
    assert "--unsigned" in pages["edge-command.md"]
    assert "#close_buffer = " in pages["collector-command.md"]
    assert "| `springtide_collector_rows_dropped_total{" in pages["metrics.md"]
    assert "min_connections: " in pages["policy.md"]
    assert "| Difference that it makes | " in pages["dashboards.md"]


def test_pages_that_are_made_can_be_read_aloud(pages: Mapping[str, str]) -> None:
    found = [line for name, text in pages.items() for line in words.unreadable(name, text)]
    # A type with its values.
    assert [line for line in found if "Enum8(" not in line] == []


def test_a_later_migration_documents_its_columns_and_types_with_their_table(tmp_path: Path) -> None:
    first = """-- Of the whole file.

-- Its own comment.
create table if not exists t$on_cluster (
    -- One.
    a UInt8 codec (ZSTD(1)),
    b Enum8(
        'x' = 1,
        'y' = 2
    ) -- noqa: PRS
)
engine = ${replicated}MergeTree$replica
order by a;
"""
    later = """alter table t$on_cluster
modify column if exists a UInt16 codec (ZSTD(1)),
-- Three,
-- and more.
add column if not exists c String codec (ZSTD(1)) after a;
"""
    (tmp_path / "0001_t.sql").write_text(first)
    (tmp_path / "0002_c.sql").write_text(later)
    page = tables_page(read_migrations(tmp_path), {})
    expected = """
## t

Table. Its own comment.

| column | type | |
|---|---|---|
| `a` | UInt16 | One. |
| `b` | Enum8('x' = 1, 'y' = 2) |  |
| `c` | String | Three, and more. |
"""
    assert page == HEAD + expected


def test_the_site_is_built_with_every_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page.replace(".md", ".html") for page in written} <= built
    loads = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")
    for page in built:
        assert not loads.search((tmp_path / "site" / page).read_text()), page


def test_a_new_page_of_a_folder_is_in_the_navigation_and_an_empty_folder_is_not(tmp_path: Path) -> None:
    for name in ("how-to/b.md", "how-to/a.md", "index.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# x\n")
    nav = [{"Home": "index.md"}, {"How to": ["how-to/b.md", "how-to/*.md"]}, {"Runbooks": ["runbooks/*.md"]}]
    config = docs_site.on_config({"nav": nav, "docs_dir": str(tmp_path)})
    assert config["nav"] == [{"Home": "index.md"}, {"How to": ["how-to/b.md", "how-to/a.md"]}]


PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        # The site has it, whose builder checks the link.
        if page.startswith("docs/") and Path(target).name in reference.PAGES:
            continue
        assert ((ROOT / page).parent / target).exists(), f"{page}: links to {target}, which does not exist"


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_whole(page: str) -> None:
    """A row after an empty line is text with bars in it: each table has its head, and as many cells in each row."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for table in re.findall(r"(?:^ *\|.*\n?)+", text, re.M):
        rows = [re.sub(r"`[^`]*`", "", line) for line in table.splitlines()]
        assert len(rows) > 1, f"{page}: no table: {table}"
        assert re.fullmatch(r" *\|([ :-]+\|)+ *", rows[1]), f"{page}: no head: {table}"
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, f"{page}: rows differ: {table}"


def test_the_first_page_counts_the_questions() -> None:
    questions = len(list((ROOT / "sql/analysis").glob("*.sql")))
    assert f"| `springtide sql` | {questions} questions " in (ROOT / "README.md").read_text()
