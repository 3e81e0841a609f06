"""Options that commands share, and what they open: the store, the fleet, the policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from springtide import instants
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, load_fleet
from springtide.jobs import site
from springtide.jobs.site import FLEET, POLICY, PUBLISH_DIR, STORE, STORE_WAIT_S
from springtide.policy import Policy
from springtide.store import Engine, Limits, Store
from springtide.store.address import PASSWORD_VARIABLE, carries_password

DAY_S = 86_400
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class StoreOptions:
    url: str
    wait_s: float

    @contextmanager
    def open(
        self, *, create: bool = False, check: bool = True, limits: Limits | None = None, engine: Engine | None = None
    ) -> Iterator[Store]:
        """The store; with `check`, an InputError unless it has the schema that this version needs; with `limits`, to
        read only; with `engine`, with that for an engine in this process."""

        def print_waiting(holder: str) -> None:
            click.echo(f"waiting up to {self.wait_s:g} s for {self.url}, held by {holder}", err=True)

        with site.opened(
            self.url, self.wait_s, print_waiting, create=create, check=check, limits=limits, engine=engine
        ) as store:
            yield store


def store_options(command: F) -> F:
    """--store and --store-wait, handed over as one `store: StoreOptions`."""

    def join(context: click.Context, _: click.Parameter, value: float) -> StoreOptions:
        given = context.get_parameter_source("store_url") is ParameterSource.COMMANDLINE
        url = context.params.pop("store_url")
        if given and carries_password(url):
            message = "has a password, which everyone on this machine can read in the list of processes"
            fix = f"put it into the variable {PASSWORD_VARIABLE}, or write ?password_file=FILE"
            raise InputError([Problem("--store", "url", message, fix)])
        return StoreOptions(url, value)

    wait = click.option(
        "--store-wait",
        "store",
        type=click.FloatRange(0, 86_400),
        default=STORE_WAIT_S,
        envvar="SPRINGTIDE_STORE_WAIT",
        show_envvar=True,
        show_default=True,
        callback=join,
        metavar="SECONDS",
        help="How long to wait for a store that another process has open.",
    )
    url = click.option(
        "--store",
        "store_url",
        default=STORE,
        envvar="SPRINGTIDE_STORE",
        show_envvar=True,
        show_default=True,
        is_eager=True,
        metavar="URL",
        help=f"The store: clickhouse://... or chdb:///DIR. Its password: {PASSWORD_VARIABLE}.",
    )
    return url(wait(command))


def _place(flag: str, name: str, default: str, text: str, *, folder: bool = False) -> Callable[[F], F]:
    """An option for a file or folder, with its default and its environment variable."""
    return click.option(
        flag,
        name,
        type=click.Path(file_okay=not folder, path_type=Path),
        default=default,
        envvar=f"SPRINGTIDE_{flag.removeprefix('--').replace('-', '_').upper()}",
        show_envvar=True,
        show_default=True,
        metavar="DIR" if folder else "FILE",
        help=text,
    )


fleet_option = _place("--fleet", "fleet_path", FLEET, "The fleet's PoPs, prefixes and edges.")
policy_option = _place("--policy", "policy_path", POLICY, "Tunables; the default file need not exist.")
publish_dir_option = _place(
    "--publish-dir",
    "publish_dir",
    PUBLISH_DIR,
    "The publisher's folder: publications, what is current, journal.",
    folder=True,
)


def kafka_options(command: F) -> F:
    """--kafka and --kafka-option, handed over as one `kafka: dict` of librdkafka's properties, with those of
    --kafka-options-file."""
    return _kafka_options(command, required=True)


def optional_kafka_options(command: F) -> F:
    """As kafka_options, for a site that may have no Kafka: then the dict is without brokers."""
    return _kafka_options(command, required=False)


def _kafka_options(command: F, *, required: bool) -> F:

    def join(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
        brokers, file = context.params.pop("brokers"), context.params.pop("kafka_options_file")
        own = {} if brokers is None else {"bootstrap.servers": brokers}
        # Imported here: only four commands need the client's library.
        from springtide.observe.kafka import options, properties

        return own | (properties(file) if file else {}) | options(given)

    more = click.option(
        "--kafka-option",
        "kafka",
        multiple=True,
        callback=join,
        metavar="KEY=VALUE",
        help="A property of librdkafka, TLS for instance.",
    )
    secrets = click.option(
        "--kafka-options-file",
        envvar="SPRINGTIDE_KAFKA_OPTIONS_FILE",
        show_envvar=True,
        is_eager=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The same in a file, a line each: the place for passwords.",
    )
    brokers = click.option(
        "--kafka",
        "brokers",
        envvar="SPRINGTIDE_KAFKA",
        show_envvar=True,
        required=required,
        is_eager=True,
        metavar="HOST:PORT,...",
        help="Brokers to begin with.",
    )
    return brokers(secrets(more(command)))


def sign_key_option(command: F) -> F:
    return click.option(
        "--sign-key",
        envvar="SPRINGTIDE_SIGN_KEY",
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="SSH key that signs each bundle into EDGE.json.sig.",
    )(command)


def cluster_option(help_text: str) -> Callable[[F], F]:
    return click.option("--cluster", envvar="SPRINGTIDE_CLUSTER", show_envvar=True, metavar="NAME", help=help_text)


def need_reason(force: bool, reason: str) -> None:
    """Raises InputError: what is forced needs a reason, which the audit keeps."""
    if force and not reason.strip():
        raise InputError([Problem("--force", "reason", "is missing", "give --reason TEXT; the audit keeps it")])


metrics_option = click.option(
    "--metrics",
    "metrics_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write gauges for node_exporter's textfile collector (FILE.prom).",
)
metrics_dir_option = click.option(
    "--metrics-dir",
    default="",
    metavar="DIR",
    help="Write gauges into files springtide-NAME.prom there, for node_exporter; an empty DIR is none.",
)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def round_option(command: F) -> F:
    return click.option(
        "--round",
        "round_text",
        metavar="INSTANT",
        help="2026-01-02T03:05:00Z, -1h, or due: the newest that waited for its samples. The newest by default.",
    )(command)


def span_options(command: F) -> F:
    """--from and --to, for `time_span`."""
    until = click.option(
        "--to", "to_text", metavar="INSTANT", help="The last round, such as -1h; the newest by default."
    )
    since = click.option(
        "--from", "from_text", metavar="INSTANT", help="The first round, such as -6h; those of a day by default."
    )
    return since(until(command))


def time_span(from_text: str | None, to_text: str | None, policy: Policy) -> tuple[int, int]:
    """The rounds since < round <= until that the options name, a day by default; raises InputError for none."""
    interval_s = policy.round.interval_s
    until = closed_round(to_text, policy, "--to") or instants.latest_round(instants.now(), interval_s)
    first = until - DAY_S + interval_s if from_text is None else instants.parse_round(from_text, interval_s, "--from")
    if first > until:
        message = f"{instants.show(first)} is after {instants.show(until)}"
        raise InputError([Problem("--from", "round", message, "give an earlier one, or a later --to")])
    return first - interval_s, until


def closed_round(text: str | None, policy: Policy, option: str = "--round", now: int | None = None) -> int | None:
    """The round that this option names, None without one; raises InputError when it has not closed yet.

    `due` is the newest whose samples had round.lateness_s to arrive, as timers decide it.
    """
    if text is None:
        return None
    now = instants.now() if now is None else now
    if text == "due":
        return policy.round.due(now)
    moment = instants.parse_round(text, policy.round.interval_s, option)
    newest = instants.latest_round(now, policy.round.interval_s)
    if moment > newest:
        fix = f"the newest is {instants.show(newest)}"
        raise InputError([Problem(option, "round", f"{text} has not closed yet", fix)])
    return moment


def read_fleet(path: Path) -> Fleet:
    return load_fleet(path)


def read_policy(path: Path) -> Policy:
    return site.read_policy(path)


def is_terminal() -> bool:
    return sys.stderr.isatty()
