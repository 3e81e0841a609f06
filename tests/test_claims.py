"""Citations are in the source that they name, and queries that are shown count nothing twice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from springtide.store.migrations import read_migrations

ROOT = Path(__file__).parents[1]
KINDS = ("*.md", "*.py", "*.rs", "*.sql", "*.yml", "*.yaml", "*.proto", "*.toml", "*.sh")
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard", *KINDS], cwd=ROOT, capture_output=True, check=True
)
FILES = [ROOT / name for name in LISTED.stdout.decode().split() if not name.endswith(Path(__file__).name)]

# The parts of Riptide, as its headings number them, and its figures; the figures of the article on selective BBR.
RIPTIDE = re.compile(r"I|II(-[AB])?|III(-[ABC])?|IV(-[ABCD])?|V|VI|VII")
RIPTIDE_FIGURES, ARTICLE_FIGURES, GENTLE_SLIDES, RIPTIDE_SLIDES = range(1, 17), range(1, 6), range(1, 37), range(1, 48)
# Each RFC that may be cited, and the sections of it that were looked up.
RFCS: dict[str, set[str]] = {
    "791": set(),
    "2439": set(),
    "2544": set(),
    "3339": set(),
    "2697": set(),
    "2883": set(),
    "4022": set(),
    "4898": set(),
    "5681": {"3.1"},
    "6298": set(),
    "6793": set(),
    "6928": set(),
    "6937": set(),
    "7196": set(),
    "7323": set(),
    "8200": set(),
    "8622": set(),
    "8985": set(),
    "9293": set(),
    "9438": {"4.6"},
    "9768": set(),
    "9959": set(),
}


@cache
def texts() -> Mapping[str, str]:
    """Each file's words by its name; what a line break or a comment's mark divides stands together."""
    broken = re.compile(r"\"? *\n *(?:(?:#|//[/!]?|--|\*|>) +)?\"?")
    return {str(path.relative_to(ROOT)): broken.sub(" ", path.read_text()) for path in FILES if path.is_file()}


def test_every_section_that_is_cited_is_there() -> None:
    wrong: list[str] = []
    seen = 0
    for name, text in texts().items():
        for number, section in re.findall(r"\bRFC[ -]?(\d+)(?:,? section (\d+(?:\.\d+)*))?", text):
            seen += 1
            if number not in RFCS or (section and section not in RFCS[number]):
                wrong.append(f"{name}: RFC {number} {section}")
        for section in re.findall(r"\bRiptide,? (?:section )?([IVX]+(?:-[A-Z])?)\b", text):
            seen += 1
            if not RIPTIDE.fullmatch(section):
                wrong.append(f"{name}: Riptide {section}")
        for pattern, numbers in (
            (r"\bRiptide(?:,? (?:section )?[IVX]+(?:-[A-Z])?)?(?:,| and)? figure (\d+)", RIPTIDE_FIGURES),
            (r"\barticle's figure (\d+)", ARTICLE_FIGURES),
            (r"\bgentle aggression, slides? (\d+)", GENTLE_SLIDES),
            (r"\btalk's slides? (\d+)", RIPTIDE_SLIDES),
        ):
            found = [int(number) for number in re.findall(pattern, text)]
            seen += len(found)
            wrong += [f"{name}: {pattern} {number}" for number in found if number not in numbers]
    assert not wrong, "look it up in the source, then add it here"
    assert seen > 40


def test_queries_that_are_shown_count_no_copy() -> None:
    """Tables whose rows can be stored twice until they merge are read with `final` in documents and examples."""
    migrations = "\n".join(migration.sql for migration in read_migrations())
    tables = re.findall(r"create table if not exists (\w+)(?:(?!create table)[\s\S])*?engine = (\w+)", migrations)
    replacing = "|".join(name for name, engine in tables if engine == "ReplacingMergeTree")
    assert "tcp_samples" in replacing
    read = re.compile(rf"(max\([\w.]+\) )?(?:from|join) ((?:{replacing})\b)(?!(?: as \w+)? final\b)")
    places = ("controller/springtide/cli/", "sql/analysis/")
    shown = [
        f"{name}: {table}"
        for name, text in texts().items()
        if name.endswith(".md") or name.startswith(places)
        for greatest, table in read.findall(text)
        if not greatest  # which is the same with copies
    ]
    assert not shown, "use `final`, or state what copies do to it"
