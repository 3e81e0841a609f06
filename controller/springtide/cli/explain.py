"""springtide explain"""

from __future__ import annotations

import difflib
from ipaddress import ip_network
from pathlib import Path

import click

from springtide import instants
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    publish_dir_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table, warn
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, destination_problem
from springtide.jobs.due import bring_audit
from springtide.laws.base import HISTORY_ROUNDS, Explained
from springtide.laws.registry import LAWS
from springtide.policy import CLIENT_PREFIX_LENGTH
from springtide.section import WRITE_CLIENT_PREFIX


@click.command()
@click.argument("src_pop")
@click.argument("destination")
@round_option
@json_option
@fleet_option
@policy_option
@publish_dir_option
@store_options
def explain(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    publish_dir: Path,
    src_pop: str,
    destination: str,
    round_text: str | None,
    as_json: bool,
) -> None:
    """Explain why new connections from SRC_POP start as they do, and what would change it.

    DESTINATION is a PoP, or a client prefix or an address in it. Shown is what acts on the PoP's edges: where all pace,
    no windows of routes.

    `decided` is what a round gives; `left out` why bundles do without it; `pushed` whether the newest publication went
    out; `in force` what new connections start with now on each edge, by what was recorded of waves, ways back and
    expiry. Whether sockets show it is another question: `springtide sql decided-and-seen`.

    With --json each law that decides on the destination has its round, explanations, decisions and last rounds.

    \b
    Examples:
      springtide explain ams nyc
      springtide explain ams nyc --round 2026-01-02T03:05:00Z
      springtide explain ams 192.0.2.0/24
    """
    fleet, policy = read_fleet(fleet_path), read_policy(policy_path)
    _require_pop(fleet, src_pop)
    kind = "prefix" if any(character in destination for character in "./:") else "pop"
    if kind == "prefix":
        destination = _prefix_of(destination)
    else:
        _require_pop(fleet, destination)
        if src_pop == destination:
            raise InputError([Problem("explain", "DESTINATION", f"{destination} is SRC_POP as well", "name two PoPs")])
    newest = instants.latest_round(instants.now(), policy.round.interval_s)
    requested = closed_round(round_text, policy)
    found = {}
    with store.open() as opened:
        bring_audit(opened, publish_dir, warn)
        for law in LAWS:
            moment = requested or law.latest(opened, newest) or newest
            if kind not in law.explains or not law.decides(policy, moment):
                continue
            explained = law.explain(opened, fleet, policy, src_pop, destination, moment)
            if explained is not None:
                found[law.name] = instants.show(moment), explained
    if not found:
        warn(f"explain: no law has decided how {src_pop} starts towards {destination}; run `springtide decide`")
    if as_json:
        head = {"src_pop": src_pop, "destination": destination}
        print_json(head | {name: _for_machines(*one) for name, one in found.items()})
        return
    for number, (name, (moment_text, one)) in enumerate(found.items()):
        click.echo(("\n" if number else "") + f"{name}: {src_pop} to {destination}, round {moment_text}")
        _print(one)


def _for_machines(moment_text: str, found: Explained) -> dict[str, object]:
    lines = [
        {"ip_version": version} | {label.replace(" ", "_"): text for label, text in own} for version, own in found.lines
    ]
    return {
        "round": moment_text,
        "explanations": lines,
        "decisions": found.decisions,
        "history": found.history,
        **found.more,
    }


def _print(found: Explained) -> None:
    for version, lines in found.lines:
        click.echo("" if version is None else f"\nIPv{version}")
        for label, text in lines:
            click.echo(f"  {label:<13} {text}")
    for note in found.notes:
        click.echo(f"  {note}")
    table = found.table or found.history
    if table:
        click.echo("")
        columns = [name.replace("_", " ") for name in table[0]]
        rows = [tuple(row.values()) for row in table]
        print_table(columns, rows, title=f"The last {HISTORY_ROUNDS} rounds")


def _prefix_of(text: str) -> str:
    """Give back the client prefix that is named, or the one that has the address. Raises InputError."""
    if "%" in text:
        raise _no_prefix(text, "it has a zone")
    try:
        network = ip_network(text)
    except ValueError as error:
        raise _no_prefix(text, str(error)) from None
    if "/" not in text:
        address = getattr(network.network_address, "ipv4_mapped", None) or network.network_address
        network = ip_network(f"{address}/{CLIENT_PREFIX_LENGTH[address.version]}", strict=False)
    if network.prefixlen != CLIENT_PREFIX_LENGTH[network.version]:
        raise _no_prefix(text, f"clients are grouped by /{CLIENT_PREFIX_LENGTH[network.version]}")
    problem = destination_problem(network)
    if problem is not None:
        raise _no_prefix(text, problem)
    return str(network)


def _no_prefix(text: str, why: str) -> InputError:
    what, fix = f"{text!r} is not a client prefix: {why}", f"{WRITE_CLIENT_PREFIX}, or an address in one"
    return InputError([Problem("explain", "DESTINATION", what, fix)])


def _require_pop(fleet: Fleet, name: str) -> None:
    if name not in fleet.pops:
        close = difflib.get_close_matches(name, fleet.pops, n=1)
        fix = f"did you mean {close[0]}?" if close else f"the fleet has {', '.join(sorted(fleet.pops))}"
        raise InputError([Problem("explain", "PoP", f"{name!r} is not in the fleet", fix)])
