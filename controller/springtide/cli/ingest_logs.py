"""springtide ingest-logs"""

from __future__ import annotations

from pathlib import Path

import click

from springtide.cli.options import StoreOptions, fleet_option, json_option, read_fleet, store_options
from springtide.cli.output import print_json
from springtide.errors import InputError, SpringtideError
from springtide.observe.accesslog import ingest_logs as run
from springtide.observe.json_lines import Summary


@click.command("ingest-logs")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@fleet_option
@store_options
def ingest_logs(files: tuple[Path, ...], store: StoreOptions, fleet_path: Path, as_json: bool) -> None:
    """Load access logs, one JSON object a line, for goodput.

    A request counts once, however often its line is loaded. Lines that are not in the format are kept in FILE.rejected,
    each once, and reported, and so are files that cannot be read; then the exit code is 2, though everything good has
    been loaded. It is 1 where a line could not be kept.

    \b
    Examples:
      springtide ingest-logs /var/log/nginx/springtide.json
    """
    fleet = read_fleet(fleet_path)
    with store.open() as opened:
        summary = run(opened, fleet, files)
    finish(summary, "requests", as_json)


def finish(summary: Summary, what: str, as_json: bool) -> None:
    """Say what was loaded, and of what kind; raise what ends the command with its exit code."""
    if as_json:
        print_json(summary.as_json())
    else:
        bad = f", {summary.rejected_lines} rejected" if summary.rejected_lines else ""
        none = f", {summary.unreadable_files} files unreadable" if summary.unreadable_files else ""
        click.echo(f"{summary.files} files: {summary.rows} {what} loaded{bad}{none}")
    if summary.unkept_lines:
        raise SpringtideError("\n".join(map(str, summary.problems)))
    if summary.problems:
        raise InputError(summary.problems)
