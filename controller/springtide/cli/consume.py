"""springtide consume"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from springtide.cli.options import StoreOptions, fleet_option, is_terminal, json_option, read_fleet, store_options
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.observe.consume import GROUP, TOPIC, Consumer, Source
from springtide.store.embedded import EmbeddedStore


@click.command()
@click.option("--kafka", "brokers", required=True, metavar="HOST:PORT,...", help="Brokers to begin with.")
@click.option("--topic", default=TOPIC, show_default=True, help="Where the collectors send.")
@click.option("--group", default=GROUP, show_default=True, help="Whose offsets count.")
@click.option("--consumers", type=click.IntRange(1, 64), default=1, show_default=True, help="At most one a partition.")
@click.option("--seconds", type=click.FloatRange(0.1), help="End after so long; by default on SIGINT or SIGTERM.")
@json_option
@fleet_option
@store_options
def consume(
    store: StoreOptions,
    fleet_path: Path,
    brokers: str,
    topic: str,
    group: str,
    consumers: int,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Take samples from a Kafka topic into the embedded store, until told to stop.

    Messages that are no samples go to rejected_messages, with their offset and the reason, and hold nothing up. What is
    delivered twice counts once. The store is held all the while: other commands wait, or give this one --seconds.

    \b
    Examples:
      springtide consume --kafka localhost:9092
      springtide consume --kafka localhost:9092 --seconds 30 --json
    """
    fleet = read_fleet(fleet_path)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with store.open() as opened:
        if not isinstance(opened, EmbeddedStore):
            what, fix = "has Kafka tables of its own", "consume is for chdb:// stores"
            raise InputError([Problem(opened.url, "store", what, fix)])
        said: set[str] = set()
        with Consumer(opened, fleet, Source(brokers, topic, group, consumers)) as consumer:
            while not ended.wait(0.5 if seconds is None else min(0.5, seconds)):
                for complaint in set(consumer.complaints()) - said:
                    said.add(complaint)
                    click.echo(f"springtide: {brokers}: {complaint}", err=True)
                progress = consumer.progress()
                if is_terminal():
                    click.echo(f"\r{progress.messages} messages, {progress.rejected} rejected", err=True, nl=False)
                if seconds is not None and progress.seconds >= seconds:
                    break
            progress = consumer.progress()
    if is_terminal():
        click.echo(err=True)
    if as_json:
        print_json({"messages": progress.messages, "rejected": progress.rejected, "complaints": sorted(said)})
    else:
        click.echo(f"{topic}: {progress.messages} messages taken, {progress.rejected} of them rejected")
