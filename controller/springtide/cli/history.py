"""springtide history: who did what to the fleet, when and why"""

from __future__ import annotations

from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import StoreOptions, json_option, publish_dir_option, store_options
from springtide.cli.output import print_json, print_table
from springtide.jobs import audit
from springtide.publication.journal import EVENTS

COLUMNS = "toUnixTimestamp(at) as at, id, who, event, publication, digest, edges, verdict, reason, details"


@click.command()
@publish_dir_option
@click.option("--event", "event_name", type=click.Choice(EVENTS), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Newest rows.")
@json_option
@store_options
def history(store: StoreOptions, publish_dir: Path, event_name: str | None, limit: int, as_json: bool) -> None:
    """Every publish, wave, gate, rollback, withdrawal and forced action, newest first.

    Where the policy's mode is advise, an event `advise` says what would have been published, once a round.

    What playbooks recorded in the publisher's folder goes into the store first, so that nothing done while the store
    was down is missing. A line of its journal that cannot be read is an event `damaged`, with what is left of it.

    \b
    Examples:
      springtide history
      springtide history --event gate --json
    """
    with store.open() as opened:
        audit.send(publish_dir, opened)
        rows = opened.query(
            f"""
            select {COLUMNS} from audit final
            where {{event:String}} = '' or event = {{event:String}}
            order by audit.at desc, id limit {{limit:UInt32}}
            """,
            {"event": event_name or "", "limit": limit},
        )
    if as_json:
        print_json([{**row, "at": instants.show(row["at"])} for row in rows])
        return
    table = [
        (
            instants.show(row["at"]),
            row["who"],
            row["event"],
            row["verdict"] or None,
            row["publication"] or None,
            len(row["edges"]),
            row["reason"] or None,
        )
        for row in rows
    ]
    print_table(["at", "who", "event", "verdict", "publication", "edges", "reason"], table)
