"""springtide migrate"""

from __future__ import annotations

from collections.abc import Sequence

import click

from springtide.cli.options import StoreOptions, cluster_option, json_option, store_options
from springtide.cli.output import print_json, print_table
from springtide.store import exists, migrations
from springtide.store.cluster import check_name, check_server


@click.command()
@click.option("--status", is_flag=True, help="Show what is applied and what is not; change nothing.")
@click.option("--dry-run", is_flag=True, help="Print the SQL that would be applied; change nothing.")
@cluster_option("For this cluster: replicated, and sharded where needed.")
@json_option
@store_options
def migrate(store: StoreOptions, status: bool, dry_run: bool, cluster: str | None, as_json: bool) -> None:
    """Bring the store's schema up to date.

    Repeats safely, also after a kill and while another one runs. Refuses when a file differs from what was applied
    under its number. With --cluster every table is replicated, through the macros {shard} and {replica} that each
    server of the cluster must have; samples are also sharded, by connection.

    \b
    Examples:
      springtide migrate
      springtide migrate --status
      springtide migrate --dry-run --store chdb:///tmp/trial
      springtide migrate --cluster main --dry-run
    """
    files = migrations.read_migrations()
    if cluster is not None:
        check_name(cluster)
        if not dry_run:
            check_server(store.url)
    if dry_run and not exists(store.url):
        _print_sql(files, migrations.functions(cluster), cluster, as_json)
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
            functions = migrations.functions_to_create(opened, cluster)
            _print_sql([file for file in files if file.number in pending], functions, cluster, as_json)
            return
        applied = [migration.path.name for migration in migrations.migrate(opened, files, cluster)]
    if as_json:
        print_json({"applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "the schema is up to date")


def _print_sql(
    files: Sequence[migrations.Migration], functions: Sequence[str], cluster: str | None, as_json: bool
) -> None:
    if as_json:
        made = [{"name": "functions.sql", "statements": functions}] if functions else []
        print_json([*made, *({"name": file.path.name, "statements": file.rendered(cluster)} for file in files)])
        return
    if functions:
        click.echo("-- functions.sql\n" + "".join(f"{statement};\n" for statement in functions))
    if cluster:
        rendered = [f"-- {file.path.name}\n" + "".join(f"{s};\n" for s in file.rendered(cluster)) for file in files]
        click.echo("\n".join(rendered), nl=False)
    else:
        click.echo("\n\n".join(f"-- {file.path.name}\n{file.sql}" for file in files), nl=False)
