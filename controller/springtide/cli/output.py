"""What commands print."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from springtide.errors import printable


def warn(line: str) -> None:
    """Print a line on standard error, and go on."""
    click.echo(f"springtide: {line}", err=True)


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """A table as wide as the terminal, or as wide as it needs to be where there is none. Numbers are right-aligned."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    if title:
        console.print(title, style="bold")
    table = Table(header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        table.add_column(column, justify="right" if rows and numeric else "left")
    for row in rows:
        # What a host sends must not act as markup or as a terminal's control sequence.
        table.add_row(*("-" if cell is None else Text(printable(str(cell))) for cell in row))
    console.print(table)
