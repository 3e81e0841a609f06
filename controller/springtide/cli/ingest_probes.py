"""springtide ingest-probes"""

from __future__ import annotations

from pathlib import Path

import click

from springtide.cli.ingest_logs import finish
from springtide.cli.options import StoreOptions, fleet_option, json_option, read_fleet, store_options
from springtide.observe.probes import ingest_probes as run


@click.command("ingest-probes")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@fleet_option
@store_options
def ingest_probes(files: tuple[Path, ...], store: StoreOptions, fleet_path: Path, as_json: bool) -> None:
    """Load the results of `springtide-edge probe`, one JSON object a line.

    An edge's newest probe in five minutes counts, for each other PoP and size, however often it is loaded. Lines that
    are not in the format, or of a host that fleet.yaml does not name, are reported, and kept in FILE.rejected, each
    once. Files that cannot be read are reported too. In both cases the exit code is 2, though everything good has been
    loaded. It is 1 where a line could not be kept.

    \b
    Examples:
      springtide ingest-probes /var/spool/springtide-probe/*/*.jsonl
      springtide sql probe-times
    """
    fleet = read_fleet(fleet_path)
    with store.open() as opened:
        summary = run(opened, fleet, files)
    finish(summary, "probes", as_json)
