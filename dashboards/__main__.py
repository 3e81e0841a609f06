"""Writes dashboards/json anew; `draw` makes pictures of the dashboards."""

from __future__ import annotations

from pathlib import Path

import click
from springtide import instants
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
@click.option("--from", "since", default="-1d", metavar="INSTANT", show_default=True, help="The span's begin.")
@click.option("--to", "until", default="-0m", metavar="INSTANT", help="Its end; now by default.")
def draw_command(folder: Path, since: str, until: str) -> None:
    """Draw each dashboard over a span of time, as FOLDER/NAME.png, for places without Grafana.

    \b
    Examples:
      python -m dashboards draw out/boards --from -6h
      SPRINGTIDE_STORE=clickhouse://ch-1/springtide python -m dashboards draw out/boards
    """
    try:
        span = (instants.parse_round(since, 1, "--from"), instants.parse_round(until, 1, "--to"))
        if span[0] >= span[1]:
            raise click.UsageError(f"--from {since} is not before --to {until}")
        with Site.of().open() as store:
            for path in draw(store, documents(), folder, *span):
                click.echo(str(path))
    except (SpringtideError, OSError) as error:
        raise click.ClickException(str(error)) from error


main(prog_name="python -m dashboards")
