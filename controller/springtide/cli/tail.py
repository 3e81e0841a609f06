"""springtide tail"""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any

import click

from springtide.cli.options import kafka_options
from springtide.errors import InputError, Problem, StoreError
from springtide.fleet import Prefix
from springtide.observe.kafka_tables import TOPIC
from springtide.observe.tail import Sample, belongs, payloads, samples

# Each column's width; numbers are right-aligned.
_FORM = "{:<13} {:<12} {:<5} {:<24} {:<24} {:<12} {:>5} {:>8} {:>6} {:>8}"
_HEAD = _FORM.format("time", "host", "kind", "from", "to", "state", "cwnd", "rtt ms", "retr", "Mbit/s")


@click.command()
@kafka_options
@click.option("--topic", default=TOPIC, show_default=True)
@click.option("--from-beginning", is_flag=True, help="Start with what the topic already has.")
@click.option("--host", help="Samples of this host only.")
@click.option("--prefix", "prefix_text", metavar="PREFIX", help="Samples to it only: 10.77.2.0/24.")
@click.option("--count", type=click.IntRange(1), help="End after so many samples.")
@click.option("--seconds", type=click.FloatRange(0.1), help="End after so long.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every field.")
def tail(
    kafka: dict[str, Any],
    topic: str,
    from_beginning: bool,
    host: str | None,
    prefix_text: str | None,
    count: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Show samples as they pass through a Kafka topic, without affecting its consumers.

    \b
    Examples:
      springtide tail --kafka localhost:9092
      springtide tail --kafka localhost:9092 --host ams-1 --prefix 10.77.2.0/24
      springtide tail --kafka localhost:9092 --from-beginning --count 1 --json
    """
    prefix = _prefix(prefix_text)
    shown = 0
    if not as_json:
        click.echo(_HEAD)
    for payload in payloads(kafka, topic, beginning=from_beginning, seconds=seconds):
        try:
            rows = samples(payload)
        except StoreError as error:
            click.echo(
                f"springtide: a message of {len(payload)} bytes is not an envelope of samples: {error}", err=True
            )
            continue
        for sample in rows:
            if not belongs(sample, host, prefix):
                continue
            click.echo(json.dumps(sample) if as_json else _line(sample))
            shown += 1
            if shown == count:
                return


def _prefix(text: str | None) -> Prefix | None:
    try:
        return None if text is None else ip_network(text)
    except ValueError as error:
        raise InputError(
            [Problem("--prefix", "prefix", str(error), "write it as 10.77.2.0/24 or fd77:2::/48")]
        ) from error


def _line(sample: Sample) -> str:
    seconds = sample["time_unix_us"] // 1000 % 86_400_000 / 1000
    moment = f"{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}"
    kind = str(sample["kind"]).removeprefix("SAMPLE_KIND_").lower()
    state = str(sample["state"]).removeprefix("TCP_STATE_").lower()
    rtt = "-" if "rtt" not in sample else f"{sample['rtt'] / 1000:.1f}"
    rate = "-" if "delivery_rate" not in sample else f"{sample['delivery_rate'] * 8 / 1e6:.2f}"
    source, target = (f"{sample[f'{end}_ip']}:{sample[f'{end}_port']}" for end in ("src", "dst"))
    cwnd, retransmitted = sample.get("snd_cwnd", "-"), sample.get("total_retrans", "-")
    return _FORM.format(moment, sample["host"], kind, source, target, state, cwnd, rtt, retransmitted, rate)
