"""springtide sql"""

from __future__ import annotations

import csv
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource

from springtide.cli.completion import QuestionName
from springtide.cli.options import StoreOptions, json_option, store_options
from springtide.cli.output import print_json, print_table
from springtide.errors import InputError, Problem, SpringtideError
from springtide.jobs.site import STORE_WAIT_S
from springtide.learn.questions import question, questions
from springtide.store import Limits, Row
from springtide.store.reading import query_read_only

DEFAULTS = Limits()
MB = 1_000_000
# The engine ends most queries at their limit by itself.
GRACE_S = 10
# In an embedded store, which nobody else has meanwhile: whoever waits as long as by default gets it.
EMBEDDED_S = int(STORE_WAIT_S) - 2 * GRACE_S
# A table is laid out as a whole: for a million rows that would take longer and more memory than the query.
TABLE_ROWS = 1000


def _limit(flag: str, default: int, what: str, most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(flag, type=click.IntRange(1, most), default=default, show_default=True, metavar="N", help=what)


@click.command()
@click.argument("what", type=QuestionName(), required=False)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the question or query.")
@click.option("--show", is_flag=True, help="Print the question's SQL; run nothing.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@_limit(
    "--max-seconds",
    DEFAULTS.seconds,
    f"How long it may run; in an embedded store {EMBEDDED_S} unless given.",
    86_400,
)
@_limit("--max-memory-mb", DEFAULTS.memory_bytes // MB, "The engine's memory for it.", 1_000_000)
@_limit("--max-rows", DEFAULTS.rows, "The longest answer.", 100_000_000)
@json_option
@store_options
def sql(
    store: StoreOptions,
    what: str | None,
    settings: tuple[str, ...],
    show: bool,
    as_csv: bool,
    max_seconds: int,
    max_memory_mb: int,
    max_rows: int,
    as_json: bool,
) -> None:
    """Run one of the questions that come with Springtide, or any SELECT of your own. Nothing can be written.

    Without an argument the questions are listed. WHAT is a question's name, or a query: whatever has a space in it.
    A query's parameters are ClickHouse's own, {name:Type}. It reads Springtide's tables and the
    engine's own tables (database system): no file, no network address. SETTINGS, FORMAT and INTO OUTFILE are refused.

    \b
    Examples:
      springtide sql
      springtide sql worst-prefixes --set pop=ams --set hours=1
      springtide sql worst-prefixes --show
      springtide sql tables
      springtide sql "describe pairs"
      springtide sql "select round, count() from pairs group by round order by round" --csv
    """
    if what is None:
        _list(as_json)
        return
    given = dict(_parameter(text) for text in settings)
    if " " in what or "\n" in what:
        text, values = what, given
    else:
        wanted = question(what)
        text, values = wanted.sql, wanted.values(given)
    if show:
        click.echo(text, nl=False)
        return
    is_asked = click.get_current_context().get_parameter_source("max_seconds") is not ParameterSource.DEFAULT
    if store.url.startswith("chdb://") and not is_asked:
        max_seconds = EMBEDDED_S
    with store.open(limits=Limits(max_seconds, max_memory_mb * MB, max_rows)) as opened, _ended_after(max_seconds):
        rows = query_read_only(opened, text, values)
    try:
        _print(rows, as_csv, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe: click ends without a message.
        raise
    except OSError as error:
        # Output that is still buffered would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SpringtideError(
            f"sql: the result cannot be written: {error.strerror}; free some space, then run it again"
        ) from error


@contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    """The engine checks the time between blocks of rows, and one block can take hours: then this process ends. It
    writes nothing, so that no write is interrupted."""

    def end() -> None:
        click.echo(f"springtide: sql: not finished {GRACE_S} s after --max-seconds {seconds}: aborted", err=True)
        os._exit(1)

    timer = threading.Timer(seconds + GRACE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _list(as_json: bool) -> None:
    found = questions()
    if as_json:
        print_json([{k: v for k, v in asdict(item).items() if k != "sql"} for item in found])
        return
    print_table(
        ["name", "question", "parameters"],
        [(q.name, q.question, ", ".join(p.name for p in q.parameters)) for q in found],
    )


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError([Problem("--set", "parameter", f"{text!r} is not an assignment", "write NAME=VALUE")])
    return name, value


def _print(rows: list[Row], as_csv: bool, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = list(rows[0]) if rows else []
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
        return
    if rows:
        print_table(columns, [[row[name] for name in columns] for row in rows[:TABLE_ROWS]])
    more = f", of which the first {TABLE_ROWS} are shown; --csv and --json print all" if len(rows) > TABLE_ROWS else ""
    click.echo(f"{len(rows)} rows{more}")
