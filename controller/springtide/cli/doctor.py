"""springtide doctor"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    fleet_option,
    json_option,
    optional_kafka_options,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    sign_key_option,
    store_options,
)
from springtide.cli.output import print_json
from springtide.doctor import examine
from springtide.doctor.finding import Finding, Verdict
from springtide.errors import SpringtideError
from springtide.jobs.site import POLICY
from springtide.policy import Policy

STYLES = {Verdict.FIX: "bold red", Verdict.ADVICE: "yellow", Verdict.UNKNOWN: "dim", Verdict.FINE: "green"}


@click.command()
@click.option("--host", is_flag=True, help="Check this machine as an edge that runs a collector.")
@click.option("--site", is_flag=True, help="Check this machine as controller and publisher.")
@click.option("--all", "show_all", is_flag=True, help="Print passed checks as well.")
@click.option(
    "--collector-config",
    type=click.Path(dir_okay=False, path_type=Path),
    default="/etc/springtide/collector.toml",
    envvar="SPRINGTIDE_COLLECTOR_CONFIG",
    show_envvar=True,
    show_default=True,
    metavar="FILE",
    help="The collector's configuration.",
)
@click.option(
    "--collector-address",
    default="127.0.0.1:9462",
    show_default=True,
    metavar="HOST:PORT",
    help="Where the collector's /healthz answers.",
)
@click.option(
    "--allowed-signers",
    type=click.Path(dir_okay=False, path_type=Path),
    default="/etc/springtide/allowed_signers",
    show_default=True,
    metavar="FILE",
    help="The keys that edges trust.",
)
@click.option(
    "--topics",
    "topics_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="topics.yaml; the defaults without it.",
)
@sign_key_option
@publish_dir_option
@optional_kafka_options
@json_option
@fleet_option
@policy_option
@store_options
def doctor(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    kafka: dict[str, Any],
    publish_dir: Path,
    sign_key: Path | None,
    topics_path: Path | None,
    allowed_signers: Path,
    collector_address: str,
    collector_config: Path,
    host: bool,
    site: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Show what is wrong with a host or a site, and what to do, in the order in which one thing blocks the next.

    --host: kernel, programs, clock, disk, collector, trusted keys, sysctls. --site: clock, disk, fleet and policy,
    Kafka and its topics, keys and signatures, the store with its schema, hosts' clocks, and how fresh everything is.
    Without either, both. Nothing is changed. Brokers do not report their time, so their clocks are not compared.

    Exit codes: 0 nothing to fix (there may be advice), 1 something to fix, 2 bad usage.

    \b
    Examples:
      springtide doctor --host
      springtide doctor --site --sign-key /etc/springtide/publisher --kafka kafka-1:9092
      springtide doctor --json
    """
    found: list[Finding] = []
    if host or not site:
        about = examine.HostPlaces(collector_config, collector_address, allowed_signers)
        found += examine.host(about, _largest_window(policy_path))
    if site or not host:
        controller = examine.ControllerPlaces(
            url=store.url,
            store=lambda: store.open(check=False),
            fleet_path=fleet_path,
            read_fleet=read_fleet,
            policy_path=policy_path,
            read_policy=read_policy,
            publish_dir=publish_dir,
            allowed_signers=allowed_signers,
            key=sign_key,
            kafka=kafka,
            topics=topics_path,
        )
        found += examine.site(controller)
    # Both check the clock and the trusted keys.
    found = list(dict.fromkeys(found))
    to_fix = sum(1 for one in found if one.verdict is Verdict.FIX)
    if as_json:
        print_json({"fine": to_fix == 0, "to_fix": to_fix, "findings": [asdict(one) for one in found]})
    else:
        _print(found, show_all)
    sys.exit(1 if to_fix else 0)


def _largest_window(policy_path: Path) -> int:
    """The largest window that the policy allows, or the default policy: an edge need not have the file."""
    try:
        policy = read_policy(policy_path) if policy_path.exists() or str(policy_path) != POLICY else Policy()
    except SpringtideError:
        policy = Policy()
    return max(policy.initcwnd.cmax, policy.start.cmax) if policy.paces(instants.now()) else policy.initcwnd.cmax


def _print(found: Sequence[Finding], show_all: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    by_verdict = {verdict: [one for one in found if one.verdict is verdict] for verdict in Verdict}
    for number, one in enumerate(by_verdict[Verdict.FIX], 1):
        console.print(Text(f"{number:>2}. ", STYLES[Verdict.FIX]).append(str(one), "default"))
    shown = [Verdict.ADVICE, Verdict.UNKNOWN, *([Verdict.FINE] if show_all else [])]
    for verdict in shown:
        for one in by_verdict[verdict]:
            console.print(Text(f"{verdict:<7} ", STYLES[verdict]).append(str(one), "default"))
    counts = ", ".join(f"{len(by_verdict[verdict])} {verdict}" for verdict in Verdict)
    console.print(Text(counts, style="bold"))
