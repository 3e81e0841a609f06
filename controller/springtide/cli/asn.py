"""springtide asn"""

from __future__ import annotations

from pathlib import Path

import click

from springtide.cli.options import StoreOptions, json_option, store_options
from springtide.cli.output import print_json
from springtide.observe.asn import publish_origins, read_origins


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@store_options
def asn(file: Path, store: StoreOptions, as_json: bool) -> None:
    """Load which autonomous system originates which prefix: FILE is CSV with the header `prefix,asn,name`.

    The file replaces the earlier one. Samples loaded from then on carry their peer's number in dst_asn; a query looks
    up any address: dictGetOrDefault('asns', 'name', client_prefix, ''). A file with a bad line is refused as a whole.

    \b
    Examples:
      springtide asn origins.csv
      springtide sql "select dst_asn, count() from tcp_samples final group by dst_asn"
    """
    origins = read_origins(file)
    with store.open() as opened:
        publish_origins(opened, origins)
    if as_json:
        print_json({"prefixes": len(origins)})
    else:
        click.echo(f"{file}: {len(origins)} prefixes known")
