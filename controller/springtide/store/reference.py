"""docs/reference/tables.md, generated from the migrations: the comments there are the documentation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from springtide.store.migrations import Migration

HEAD = """# Tables

Made from `sql/migrations` (a test holds it to them). Read the views `round_*`, or those with friendly names and units
(`pairs`, `prefixes`, `connections`, `completions`, `hosts`, `goodput`): both show committed rounds only. The tables
`rollup_*` behind them also hold what a run in progress, or a killed one, has written.
"""
CREATE = re.compile(r"create (table|view|dictionary|materialized view) if not exists (\w+)")
COLUMN = re.compile(r"    (\w+) ([A-Z].*?)(?: codec \(.*)?,?$")
ALTER = re.compile(r"alter table (\w+)\n")
MODIFIED = re.compile(r"modify column if exists (\w+) ([A-Z][^ ,;]*)")
SELECTED = re.compile(r"    (?:([^ ].*) as )?(\w+),?")
ADDED = re.compile(r"((?:-- .*\n)*)add column if not exists (\w+) (\S+)")


# Name and type of each column, by view.
Columns = Mapping[str, Sequence[tuple[str, str]]]


def tables_page(migrations: Sequence[Migration], views: Columns) -> str:
    """The whole page; the columns of `views` are as the engine reports them."""
    added: dict[str, str] = {}
    types: dict[str, dict[str, str]] = {}
    for migration in migrations:
        for statement in re.split(r";[ \t]*\n", migration.sql):
            if altered := ALTER.search(statement):
                rows = "".join(_added(match) for match in ADDED.finditer(statement))
                added[altered[1]] = added.get(altered[1], "") + rows
                types.setdefault(altered[1], {}).update(MODIFIED.findall(statement))
    # A table or view that a later migration creates again is documented once, as its last definition has it.
    blocks = {_head(block)[2]: block for migration in migrations for block in _blocks(migration.sql)}
    of_views = column_comments(migrations)
    return HEAD + "".join(_retyped(_section(block, added, views, of_views), types) for block in blocks.values())


def column_comments(migrations: Sequence[Migration]) -> dict[str, dict[str, str]]:
    """Comment on each column, by table or view. A view's column without one has that of the column that it reads."""
    found: dict[str, dict[str, str]] = {}
    for migration in migrations:
        for block in _blocks(migration.sql):
            at, kind, name = _head(block)
            if kind == "table":
                found[name] = {column: comment for column, _, comment in _columns(block[at + 1 :])}
            elif read := re.search(r"\bfrom (\w+)", "\n".join(block)):
                source = found.get(read[1], {})
                found[name] = source if any("* except" in line for line in block) else _selected(block, source)
    return found


def _selected(lines: Sequence[str], source: Mapping[str, str]) -> dict[str, str]:
    """Comments on the columns of a view, a line each."""
    found, comment = dict[str, str](), ""
    for line in lines:
        if line.startswith("    -- "):
            comment += line.removeprefix("    -- ") + " "
        elif match := SELECTED.fullmatch(line):
            # A computed one is something else.
            found[match[2]] = comment.strip() or source.get(match[1] or match[2], "")
            comment = ""
    return found


def first_sentences(migrations: Sequence[Migration]) -> dict[str, str]:
    """Begin of the comment on each table and view, by name. A view without one has that of the table that it reads."""
    blocks = {_head(block)[2]: block for migration in migrations for block in _blocks(migration.sql)}
    above = {name: _above(block[: _head(block)[0]]) for name, block in blocks.items()}
    read = {name: re.search(r"\bfrom (\w+)", "\n".join(block)) for name, block in blocks.items()}
    whole = {name: text or (above[found[1]] if (found := read[name]) else "") for name, text in above.items()}
    return {name: re.split(r"(?<=\.) (?=[A-Z`])", text)[0] for name, text in whole.items()}


def _retyped(section: str, types: Mapping[str, Mapping[str, str]]) -> str:
    """With the types that later migrations gave."""
    name = section.split("\n", 2)[1].removeprefix("## ")
    for column, kind in types.get(name, {}).items():
        section = re.sub(rf"(\| `{column}` \| )[^ ]+", rf"\g<1>{kind}", section)
    return section


def _added(match: re.Match[str]) -> str:
    comment = " ".join(line.removeprefix("-- ") for line in match[1].splitlines())
    return f"| `{match[2]}` | {match[3]} | {comment} |\n"


def _blocks(text: str) -> Iterator[list[str]]:
    """Each statement that creates something, with the comment above it."""
    for block in re.split(r";[ \t]*\n", text):
        lines = block.strip("\n").splitlines()
        if any(CREATE.match(line) for line in lines):
            yield lines


def _section(
    lines: list[str], added: Mapping[str, str], views: Columns, comments: Mapping[str, Mapping[str, str]]
) -> str:
    at, kind, name = _head(lines)
    above = _above(lines[:at])
    columns = list(_columns(lines[at + 1 :]))
    if kind == "view":
        columns += [(column, of, comments.get(name, {}).get(column, "")) for column, of in views.get(name, ())]
    rows = [f"| `{column}` | {of} | {comment} |" for column, of, comment in columns]
    table = "\n| column | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n" + added.get(name, "") if rows else ""
    return f"\n## {name}\n\n{kind.capitalize()}. {above}\n{table}"


def _columns(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Name, type and comment of each column of a table, by the lines below its head."""
    comment = ""
    for line in _joined(lines):
        if line.startswith(")"):
            return
        if line.startswith("    -- "):
            comment += line.removeprefix("    -- ") + " "
        elif match := COLUMN.match(line):
            yield match[1], match[2].partition(" -- ")[0].rstrip(", "), comment.strip()
            comment = ""


def _above(lines: Sequence[str]) -> str:
    """The comment at the end of these lines, but for what an empty line sets off: that is of the whole file."""
    comment = itertools.takewhile(lambda line: line.startswith("--"), reversed(lines))
    return " ".join(line.removeprefix("-- ") for line in reversed(list(comment)) if line != "--")


def _head(lines: Sequence[str]) -> tuple[int, str, str]:
    """Where a statement begins, what it creates, and its name."""
    return next((number, found[1], found[2]) for number, line in enumerate(lines) if (found := CREATE.match(line)))


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Columns whose type goes over several lines on one."""
    begun = ""
    for line in lines:
        if begun:
            begun += line.strip() + (" " if line.endswith(",") else "")
            if line.startswith("    )"):
                yield begun
                begun = ""
        elif line.endswith("(") and COLUMN.match(line):
            begun = line
        else:
            yield line
