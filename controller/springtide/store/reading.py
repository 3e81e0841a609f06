"""What anyone may ask a store: one query that reads, within limits.

The engine holds most of it: a user with SELECT on Springtide's tables only, `readonly`, limits. Four things it does
not hold, and they are judged here by the engine's own parse of the text: what the client library does (INTO OUTFILE),
what needs no right (KILL QUERY of one's own), functions that read files without one, and the SETTINGS of a subquery,
which the engine takes without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from springtide.errors import InputError, Problem, StoreError
from springtide.store.base import Param, Row, Store

# What reads, by the engine's names of its syntax tree.
KINDS = ("SelectWithUnionQuery", "SelectIntersectExceptQuery", "SelectQuery", "ExplainQuery", "ShowTablesQuery")
# `file` reads any file for anybody in this process; `eval` runs a text that no parse of the query shows.
FUNCTIONS = ("file", "eval")
# Statements that the engine parses and cannot show as JSON, none of which is a SELECT: BAD_ARGUMENTS.
NOT_SHOWN = 36


@dataclass(frozen=True)
class Limits:
    """Of one query: seconds it may run, memory in the engine, rows of its answer."""

    seconds: int = 300
    memory_bytes: int = 4_000_000_000
    rows: int = 1_000_000

    def settings(self) -> dict[str, int]:
        """The engine's. `readonly` = 1: a query's own SETTINGS change nothing, `readonly` least of all."""
        return {
            "max_execution_time": self.seconds,
            "max_memory_usage": self.memory_bytes,
            "max_result_rows": self.rows,
            "max_result_bytes": self.memory_bytes,
            "readonly": 1,
        }


def ask(store: Store, text: str, values: Mapping[str, Param]) -> list[Row]:
    """The answer of a store that was opened with Limits. Raises InputError unless `text` is one query that only reads
    rows and leaves its form to us."""
    problem = _fault(store, text)
    if problem is not None:
        raise InputError([Problem("sql", "query", *problem)])
    return store.query(text, values)


def _fault(store: Store, text: str) -> tuple[str, str] | None:
    """What is wrong, and what to do about it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8", "correct it"
    try:
        tree = json.loads(store.syntax(text))
    except StoreError as error:
        if error.code == NOT_SHOWN:
            return "is no SELECT", "only rows can be asked for; system.columns says what DESCRIBE would"
        return str(error).partition("DB::Exception: ")[2].partition(": In scope ")[0] or str(error), "correct it"
    except RecursionError:
        return "is nested too deeply", "write it with fewer brackets"
    if tree["type"] not in KINDS:
        return f"is no SELECT but a {tree['type']}", "nothing is written or changed here"
    for node in _nodes(tree):
        if node.get("out_file"):
            return "has INTO OUTFILE", "nothing is written here; redirect what it prints"
        if node.get("format_ast"):
            return "has a FORMAT", "leave it out; --csv and --json say how to print"
        if node.get("type") == "SetQuery":
            return "has SETTINGS", "leave them out; --max-seconds, --max-memory-mb and --max-rows are the limits"
        called = node.get("func_name") or (node.get("name") if node.get("type") == "Function" else None)
        if str(called).lower() in FUNCTIONS:
            return f"calls {called}(), which reads more than the store", "leave it out"
    return None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value, however deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
