"""Output of commands."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from springtide.errors import printable


def warn(line: str) -> None:
    """Print a line on standard error, and go on."""
    click.echo(f"springtide: {line}", err=True)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def _width(console: Console, table: Table) -> int:
    """Columns that it needs to be whole."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table as wide as the terminal, or as wide as it needs to be where there is none. Numbers are right-aligned.
    Where a terminal is too narrow for it each row is lines of key: value, so that no number is cut."""
    console = Console(highlight=False)
    # Text that a host sends must not act as markup or as a terminal's control sequence.
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    table = Table(header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        table.add_column(column, justify="right" if rows and numeric else "left")
    for line in cells:
        table.add_row(*map(Text, line))
    if not console.is_terminal:
        console = Console(highlight=False, width=max(200, _width(console, table)))
    if title:
        console.print(title, style="bold")
    with console.capture() as captured:
        console.print(table)
    # Where it cuts a value it says so.
    if captured.get().count("…") > sum(cell.count("…") for line in [columns, *cells] for cell in line):
        for number, line in enumerate(cells):
            click.echo("\n".join([*[""][:number], *map(": ".join, zip(columns, line, strict=True))]))
    else:
        click.echo(captured.get(), nl=False)
    if not rows:
        click.echo("no rows")
