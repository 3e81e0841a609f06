"""springtide topics"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from springtide.cli.options import json_option, kafka_options
from springtide.cli.output import print_json
from springtide.observe.kafka import admin
from springtide.observe.topics import Difference, differences, load_topics
from springtide.observe.topics import apply as apply_topics

_file = click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="topics.yaml; the defaults without it.",
)


@click.group()
def topics() -> None:
    """Kafka topics as topics.yaml describes them.

    \b
    topics.yaml, with its defaults:
      version: 1
      topics:
        springtide.tcp_samples:
          partitions: 12
          replication: 3
          retention_hours: 72
          compression: producer          # or zstd, lz4, snappy, gzip, uncompressed
          max_message_bytes: 5000000
        springtide.http_requests: {}
    """


@topics.command()
@kafka_options
@_file
@json_option
def apply(kafka: dict[str, Any], path: Path | None, as_json: bool) -> None:
    """Create missing topics, add partitions, set what differs. Nothing is ever removed.

    \b
    Examples:
      springtide topics apply --kafka localhost:9092
      springtide topics apply --kafka localhost:9092 --file /etc/springtide/topics.yaml --json
    """
    wanted = load_topics(path)
    _print_differences(apply_topics(admin(kafka), wanted), as_json, "was")


@topics.command()
@kafka_options
@_file
@json_option
def check(kafka: dict[str, Any], path: Path | None, as_json: bool) -> None:
    """Show what differs, and change nothing; exit code 1 when something does.

    \b
    Examples:
      springtide topics check --kafka localhost:9092
    """
    found = differences(admin(kafka), load_topics(path))
    _print_differences(found, as_json, "is")
    if found:
        raise click.exceptions.Exit(1)


def _print_differences(found: list[Difference], as_json: bool, verb: str) -> None:
    if as_json:
        print_json({"differences": [asdict(difference) for difference in found]})
        return
    for one in found:
        ending = f"; {one.refused}" if one.refused else ""
        click.echo(f"{one.topic}: {one.what} {verb} {one.found}, should be {one.wanted}{ending}")
    if not found:
        click.echo("every topic is as it should be")
