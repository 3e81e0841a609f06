"""springtide migrate"""

from __future__ import annotations

from collections.abc import Sequence

import click

from springtide.cli.options import StoreOptions, json_option, store_options
from springtide.cli.output import print_json, print_table
from springtide.store import exists, migrations


@click.command()
@click.option("--status", is_flag=True, help="Say what is applied and what is not; change nothing.")
@click.option("--dry-run", is_flag=True, help="Print the SQL that would be applied; change nothing.")
@json_option
@store_options
def migrate(store: StoreOptions, status: bool, dry_run: bool, as_json: bool) -> None:
    """Bring the store's schema up to date.

    Repeats safely. Refuses when a file differs from what was applied under its number.

    \b
    Examples:
      springtide migrate
      springtide migrate --status
      springtide migrate --dry-run --store chdb:///tmp/trial
    """
    files = migrations.read_migrations()
    if dry_run and not exists(store.url):
        _print_sql(files)
        return
    with store.open(create=not (status or dry_run), check=False) as opened:
        if status:
            states = migrations.status(opened, files)
            if as_json:
                print_json([vars(state) for state in states])
            else:
                rows = [(s.number, s.name, s.state, s.applied_at) for s in states]
                print_table(["number", "migration", "state", "applied at (UTC)"], rows)
            migrations.refuse_differences(opened, states)
            return
        if dry_run:
            states = migrations.status(opened, files)
            migrations.refuse_differences(opened, states)
            pending = {state.number for state in states if state.state == "pending"}
            _print_sql([file for file in files if file.number in pending])
            return
        applied = [migration.path.name for migration in migrations.migrate(opened, files)]
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "the schema is up to date")


def _print_sql(files: Sequence[migrations.Migration]) -> None:
    click.echo("\n\n".join(f"-- {file.path.name}\n{file.sql}" for file in files), nl=False)
