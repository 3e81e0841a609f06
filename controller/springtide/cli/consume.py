"""springtide consume"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import click

from springtide.cli.options import (
    StoreOptions,
    cluster_option,
    fleet_option,
    is_terminal,
    json_option,
    kafka_options,
    read_fleet,
    store_options,
)
from springtide.cli.output import print_json
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet
from springtide.observe.consume import LEAST_MEMORY_MB, MB, STALL_S, Consumer, Progress, memory_mb, take
from springtide.observe.enrich import publish_fleet
from springtide.observe.kafka import consumer as client
from springtide.observe.kafka_tables import (
    GROUP,
    SERVER_SCHEMA,
    TOPIC,
    Source,
    create_tables,
    drop_tables,
    removal,
    server_statements,
)
from springtide.observe.lag import Ends
from springtide.store import Engine, Store
from springtide.store.cluster import check_name
from springtide.store.embedded import EmbeddedStore


@click.command()
@kafka_options
@click.option(
    "--topic",
    envvar="SPRINGTIDE_KAFKA_TOPIC",
    show_envvar=True,
    default=TOPIC,
    show_default=True,
    help="Where the collectors send.",
)
@click.option(
    "--requests",
    envvar="SPRINGTIDE_KAFKA_REQUESTS",
    show_envvar=True,
    default="",
    metavar="TOPIC",
    help="Take access logs from this topic too.",
)
@click.option("--group", default=GROUP, show_default=True, help="The consumer group.")
@click.option("--consumers", type=click.IntRange(1, 64), default=1, show_default=True, help="At most one a partition.")
@click.option("--seconds", type=click.FloatRange(0.1), help="End after so long; by default on SIGINT or SIGTERM.")
@click.option("--until-caught-up", is_flag=True, help="End once all that the topics hold now is stored.")
@click.option(
    "--stall",
    "stall_s",
    type=click.FloatRange(1),
    default=STALL_S,
    show_default=True,
    help="End with exit code 1 when nothing that was read could be stored for so many seconds.",
)
@click.option(
    "--max-memory-mb",
    type=click.IntRange(LEAST_MEMORY_MB, 1_000_000),
    help="What the engine in this process may use; by default half of the machine's, 8000 at most.",
)
@cluster_option("On a server: on every server of this cluster.")
@click.option("--dry-run", is_flag=True, help="Print the SQL that a server would run; change nothing.")
@click.option("--remove", is_flag=True, help="On a server: remove its Kafka tables; the rows stay.")
@json_option
@fleet_option
@store_options
def consume(
    store: StoreOptions,
    fleet_path: Path,
    kafka: dict[str, str],
    topic: str,
    requests: str,
    group: str,
    consumers: int,
    seconds: float | None,
    until_caught_up: bool,
    stall_s: float,
    max_memory_mb: int | None,
    cluster: str | None,
    dry_run: bool,
    remove: bool,
    as_json: bool,
) -> None:
    """Take samples, and access logs, from Kafka topics into the store.

    Messages that cannot be decoded, and invalid samples, go to rejected_messages, with their offset and the reason, and
    block nothing; nor does a message that takes more than --max-memory-mb to read. What is delivered twice counts
    once. When nothing can be stored (a full disk) it ends with exit code 1.

    The embedded store is locked until this command ends: other commands wait, or limit it by --seconds or
    --until-caught-up; with both it ends at whichever is first, and says how many messages are left. On a server
    (clickhouse://) it creates Kafka tables and views, once, and the server consumes by itself from then on. Running it
    again changes nothing; different tables are refused until --remove has removed these.

    \b
    Examples:
      springtide consume --kafka localhost:9092
      springtide consume --kafka localhost:9092 --seconds 30 --json
      springtide consume --kafka localhost:9092 --until-caught-up --seconds 120
      springtide consume --kafka kafka-1:9092 --requests springtide.http_requests
      springtide consume --kafka kafka-1:9093 --kafka-options-file /etc/springtide/kafka.properties
      springtide consume --kafka kafka-1:9092 --store clickhouse://ch-1 --cluster main --dry-run
    """
    # Long: one option per line, and one command that starts, shows and removes.
    fleet = read_fleet(fleet_path)
    brokers = kafka.pop("bootstrap.servers")
    source = Source(brokers, topic, group, consumers, requests, kafka)
    if cluster is not None:
        check_name(cluster)
    if dry_run or remove or cluster:
        with store.open() as opened:
            if dry_run:
                found = (removal(source, cluster) if remove else server_statements(opened, source, cluster)).values()
                click.echo("\n\n".join(f"{statement};" for statements in found for statement in statements))
            elif remove:
                _refuse_embedded(opened)
                drop_tables(opened, source, cluster)
                click.echo(f"{opened.url} no longer consumes; its rows and the group's offsets stay")
            else:
                _set_up_server(opened, fleet, source, cluster)
        return
    if kafka:
        # The engine would only complain, again and again, of a property that it does not take.
        client(source.client).close()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    memory_bytes = (max_memory_mb or memory_mb()) * MB

    def print_complaint(line: str) -> None:
        click.echo(f"springtide: {brokers}: {line}", err=True)

    with store.open(engine=Engine(memory_bytes, kafka)) as opened:
        if not isinstance(opened, EmbeddedStore):
            _set_up_server(opened, fleet, source, None)
            return
        with ExitStack() as stack:
            ends = stack.enter_context(Ends(source)) if until_caught_up else None
            consumer = stack.enter_context(Consumer(opened, fleet, source, memory_bytes, print_complaint))
            taken = take(
                consumer,
                ended,
                stall_s=stall_s,
                seconds=seconds,
                ends=ends,
                report=print_complaint,
                show=_show if is_terminal() else lambda _: None,
            )
    if is_terminal():
        click.echo(err=True)
    progress = taken.progress
    if as_json:
        counts = {"messages": progress.messages, "rejected": progress.rejected, "rejected_rows": progress.rejected_rows}
        left = {"left": taken.left} if until_caught_up else {}
        print_json({**counts, **left, "complaints": taken.complaints})
        return
    rows = f", {progress.rejected_rows} samples of others" if progress.rejected_rows else ""
    left_text = f"; {taken.left} are left" if taken.left else ""
    click.echo(f"{topic}: {progress.messages} messages taken, {progress.rejected} of them rejected{rows}{left_text}")


def _show(progress: Progress) -> None:
    click.echo(f"\r{progress.messages} messages, {progress.rejected} rejected", err=True, nl=False)


def _set_up_server(store: Store, fleet: Fleet, source: Source, cluster: str | None) -> None:
    _refuse_embedded(store)
    publish_fleet(store, fleet)
    create_tables(store, source, cluster)
    topics = " and ".join(filter(None, (source.topic, source.requests)))
    click.echo(f"{store.url} consumes {topics}; it reads the contract from {SERVER_SCHEMA}")
    if source.properties:
        text = "does not take properties of librdkafka from here: they belong into <kafka> of its configuration"
        click.echo(f"springtide: {store.url}: {text}", err=True)


def _refuse_embedded(store: Store) -> None:
    if isinstance(store, EmbeddedStore):
        what = "is embedded: it consumes while this command runs"
        fix = "leave out --cluster (SPRINGTIDE_CLUSTER) and --remove"
        raise InputError([Problem(store.url, "store", what, fix)])
