"""springtide topics"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from confluent_kafka.admin import AdminClient

from springtide.cli.options import json_option
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.observe.topics import Difference, differences, load_topics
from springtide.observe.topics import apply as apply_topics

_file = click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="topics.yaml; the defaults without it.",
)
_kafka = click.option("--kafka", "brokers", required=True, metavar="HOST:PORT,...", help="Brokers to begin with.")
_option = click.option(
    "--kafka-option", "options", multiple=True, metavar="KEY=VALUE", help="A property of librdkafka, TLS for instance."
)


@click.group()
def topics() -> None:
    """Kafka topics as a file says they should be.

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
@_kafka
@_option
@_file
@json_option
def apply(brokers: str, options: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Make missing topics, add partitions, set what differs. Nothing is ever taken away.

    \b
    Examples:
      springtide topics apply --kafka localhost:9092
      springtide topics apply --kafka localhost:9092 --file /etc/springtide/topics.yaml --json
    """
    wanted = load_topics(path)
    _tell(apply_topics(_admin(brokers, options), wanted), as_json, "was")


@topics.command()
@_kafka
@_option
@_file
@json_option
def check(brokers: str, options: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Say what differs, and change nothing; exit code 1 when something does.

    \b
    Examples:
      springtide topics check --kafka localhost:9092
    """
    found = differences(_admin(brokers, options), load_topics(path))
    _tell(found, as_json, "is")
    if found:
        raise click.exceptions.Exit(1)


def _tell(found: list[Difference], as_json: bool, verb: str) -> None:
    if as_json:
        print_json({"differences": [asdict(difference) for difference in found]})
        return
    for one in found:
        ending = f"; {one.refused}" if one.refused else ""
        click.echo(f"{one.topic}: {one.what} {verb} {one.found}, should be {one.wanted}{ending}")
    if not found:
        click.echo("every topic is as it should be")


def _admin(brokers: str, options: tuple[str, ...]) -> AdminClient:
    wrong = [option for option in options if "=" not in option]
    if wrong:
        raise InputError([Problem("--kafka-option", "property", f"{wrong[0]!r} is none", "write KEY=VALUE")])
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": brokers}
    settings.update(dict(option.split("=", 1) for option in options))
    return AdminClient(settings)
