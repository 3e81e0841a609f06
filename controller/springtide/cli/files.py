"""springtide files: where the plays, DAGs, dashboards and units of this installation are"""

from __future__ import annotations

import click

from springtide.cli.options import json_option
from springtide.cli.output import print_json
from springtide.shipped import NAMES, named


@click.command()
@click.argument("name", required=False, type=click.Choice(list(NAMES)))
@json_option
def files(name: str | None, as_json: bool) -> None:
    """Where this installation keeps what other programs read: plays, DAGs, dashboards, alerts, units, SQL.

    With NAME its path alone, for scripts. An upgrade replaces the files: copy what you change.

    \b
    Examples:
      springtide files
      cd "$(springtide files ansible)"
      airflow pools import "$(springtide files pools)"
    """
    if name is not None:
        path = str(named(name))
        print_json({name: path}) if as_json else click.echo(path)
        return
    paths = {each: str(named(each)) for each in NAMES}
    if as_json:
        print_json(paths)
    else:
        width = max(map(len, paths))
        for each, path in paths.items():
            click.echo(f"{each:{width}}  {path}")
