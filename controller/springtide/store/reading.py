"""Read-only access to a store: one query, within limits.

The engine enforces most of it: a user with SELECT on Springtide's tables only, `readonly`, limits. It does not enforce
four things, which are checked here on the engine's own syntax tree of the text: what the client library does (INTO
OUTFILE); what needs no grant (KILL QUERY of one's own); functions that read files without one; and the SETTINGS of a
subquery, which the engine accepts silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from springtide.errors import InputError, Problem, StoreError
from springtide.store.base import Param, Row, Store
from springtide.store.migrations import read_migrations
from springtide.store.reference import column_comments

# Statements that only read, by the types of the engine's syntax tree.
KINDS = ("SelectWithUnionQuery", "SelectIntersectExceptQuery", "SelectQuery", "ExplainQuery", "ShowTablesQuery")
# `file` reads any file for any user in this process; `eval` runs a text that is not in the query's syntax tree.
FUNCTIONS = ("file", "eval")
# BAD_ARGUMENTS: statements that the engine parses and cannot print as JSON, none of which is a SELECT.
NOT_SHOWN = 36
# The engine prints no syntax tree of it: only this form is known to read nothing else.
DESCRIBE = re.compile(
    r"\s*desc(?:ribe)?\s+(?:table\s+)?(?P<name>(?:[a-z_]\w*\.)?[a-z_]\w*)\s*;?\s*", re.IGNORECASE | re.ASCII
)
# UNKNOWN_TABLE, UNKNOWN_DATABASE, ACCESS_DENIED: the engine's own tables can be read, and not be described.
NOT_DESCRIBED = {60: "does not exist", 81: "does not exist", 497: "is no table of Springtide's"}
# Messages of the engine about a query's parameters.
NOT_OF_ITS_TYPE = re.compile(r"cannot be parsed as (?P<type>\S+) for query parameter '(?P<name>[^']*)'")
NOT_SET = re.compile(r"Substitution `(?P<name>[^`]*)` is not set")


@dataclass(frozen=True)
class Limits:
    """Limits of one query: run time in seconds, memory in the engine, rows of its result."""

    seconds: int = 300
    memory_bytes: int = 4_000_000_000
    rows: int = 1_000_000

    def settings(self) -> dict[str, int]:
        """As the engine's settings. With `readonly` = 1 a query's own SETTINGS change none of them."""
        return {
            "max_execution_time": self.seconds,
            "max_memory_usage": self.memory_bytes,
            "max_result_rows": self.rows,
            "max_result_bytes": self.memory_bytes,
            "readonly": 1,
        }


def query_read_only(store: Store, text: str, values: Mapping[str, Param]) -> list[Row]:
    """The rows from a store that was opened with Limits. Raises InputError unless `text` is one query that only reads
    rows and has no FORMAT or SETTINGS."""
    if described := DESCRIBE.fullmatch(text):
        return _columns(store, described["name"])
    problem = _refusal(store, text)
    if problem is not None:
        raise InputError([Problem("sql", "query", *problem)])
    try:
        return store.query(text, values)
    except StoreError as error:
        wrong = _wrong_parameter(str(error), values)
        if wrong is None:
            raise
        raise InputError([wrong]) from None


def _columns(store: Store, table: str) -> list[Row]:
    """Name, type and comment of each; the other things that the engine describes are empty."""
    try:
        rows = store.query(f"describe table {table}")
    except StoreError as error:
        if error.code not in NOT_DESCRIBED:
            raise
        fix = "`springtide sql tables` lists those that there are"
        raise InputError([Problem("sql", table, NOT_DESCRIBED[error.code], fix)]) from None
    comments = column_comments(read_migrations()).get(table.rpartition(".")[2], {})
    return [{"name": row["name"], "type": row["type"], "comment": comments.get(row["name"], "")} for row in rows]


def _wrong_parameter(said: str, values: Mapping[str, Param]) -> Problem | None:
    if wrong := NOT_OF_ITS_TYPE.search(said):
        name, kind = wrong["name"], wrong["type"]
        return Problem("--set", name, f"{str(values.get(name))!r} is not a {kind}", f"give a {kind} as {name}=VALUE")
    if lacking := NOT_SET.search(said):
        return Problem("--set", lacking["name"], "is not given", f"add --set {lacking['name']}=VALUE")
    return None


def _refusal(store: Store, text: str) -> tuple[str, str] | None:
    """Why the text is refused, and what to do about it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8", "correct it"
    try:
        tree = json.loads(store.syntax(text))
    except StoreError as error:
        if error.code == NOT_SHOWN:
            return "is not a SELECT", "only rows can be queried; `describe NAME` lists the columns of one table or view"
        return str(error).partition("DB::Exception: ")[2].partition(": In scope ")[0] or str(error), "correct it"
    except RecursionError:
        return "is nested too deeply", "write it with fewer brackets"
    if tree["type"] not in KINDS:
        return f"is not a SELECT but a {tree['type']}", "this command only reads"
    for node in _nodes(tree):
        if node.get("out_file"):
            return "has INTO OUTFILE", "leave it out and redirect the command's output"
        if node.get("format_ast"):
            return "has a FORMAT", "leave it out; --csv and --json set the output format"
        if node.get("type") == "SetQuery":
            return "has SETTINGS", "leave them out; --max-seconds, --max-memory-mb and --max-rows are the limits"
        called = node.get("func_name") or (node.get("name") if node.get("type") == "Function" else None)
        if str(called).lower() in FUNCTIONS:
            return f"calls {called}(), which reads more than the store", "leave it out"
    return None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value, however deep."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
