"""Writes dashboards/json anew; `draw` makes pictures of the dashboards."""

from __future__ import annotations

from pathlib import Path

import click
from springtide.errors import SpringtideError
from springtide.jobs.site import Site

from dashboards.drawing import draw
from dashboards.generate import FOLDER, documents, write


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Write dashboards/json anew."""
    if context.invoked_subcommand is None:
        write()
        click.echo(f"{len(list(FOLDER.glob('*.json')))} dashboards in {FOLDER}")


@main.command("draw")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def draw_command(folder: Path) -> None:
    """Draw each dashboard over the last day, as FOLDER/NAME.png, for places without Grafana.

    \b
    Examples:
      python -m dashboards draw out/boards
      SPRINGTIDE_STORE=clickhouse://ch-1/springtide python -m dashboards draw out/boards
    """
    try:
        with Site.of().open() as store:
            for path in draw(store, documents(), folder):
                click.echo(str(path))
    except SpringtideError as error:
        raise click.ClickException(str(error)) from error


main(prog_name="python -m dashboards")
