"""springtide explain POP PREFIX"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import click

from springtide import instants
from springtide.cli.output import print_json, print_table
from springtide.decide import congestion_rows
from springtide.decide.congestion import decide
from springtide.errors import InputError, Problem
from springtide.learn.explain_prefix import explain
from springtide.policy import CLIENT_PREFIX_LENGTH, Policy
from springtide.store import Store

HISTORY_ROUNDS = 12


def client_prefix(text: str) -> str | None:
    """The client prefix that is meant, or that an address lies in; None where no address was written."""
    if not any(character in text for character in "./:"):
        return None
    try:
        if "/" not in text:
            address = ip_address(text)
            return str(ip_network(f"{address}/{CLIENT_PREFIX_LENGTH[address.version]}", strict=False))
        network = ip_network(text)
    except ValueError as error:
        fix = "write an IPv4 /24 or an IPv6 /56, or an address"
        raise InputError([Problem("explain", "DESTINATION", f"{text!r} is no client prefix: {error}", fix)]) from None
    if network.prefixlen != CLIENT_PREFIX_LENGTH[network.version]:
        fix = f"write one of its /{CLIENT_PREFIX_LENGTH[network.version]}"
        raise InputError([Problem("explain", "DESTINATION", f"clients are not told apart by {text}", fix)])
    return str(network)


def show_prefix(store: Store, policy: Policy, pop: str, prefix: str, asked: int | None, as_json: bool) -> None:
    interval_s = policy.round.interval_s
    newest = instants.latest_round(instants.now(), interval_s)
    moment = asked or congestion_rows.last_round(store, newest + 1) or newest
    found = congestion_rows.one(congestion_rows.read_round(store, moment), pop, prefix)
    if not len(found):
        # Most prefixes have no row: nothing is remembered of them, so the tables say all there is to say.
        seen = congestion_rows.evidence(store, moment, policy, 0, least_low=0)
        own = congestion_rows.one(seen, pop, prefix)
        found = decide(moment, policy, own, congestion_rows.previous(store, 0), everyone=True)
    rows = [congestion_rows.as_dict(row) for row in congestion_rows.rows(found)]
    unranked = congestion_rows.unranked(store, moment, policy, pop, prefix)
    explanation = explain(rows[0] if rows else None, policy, unranked)
    history = congestion_rows.history(store, pop, prefix, moment - HISTORY_ROUNDS * interval_s, moment)
    if as_json:
        head = {"round": instants.show(moment), "pop": pop, "prefix": prefix}
        print_json(
            {**head, "explanation": vars(explanation), "decision": rows[0] if rows else None, "history": history}
        )
        return
    click.echo(f"{pop} to {prefix}, round {instants.show(moment)}\n")
    for name, text in vars(explanation).items():
        click.echo(f"  {name.replace('_', ' '):<13} {text}")
    if history:
        click.echo("")
        table = [tuple(row.values()) for row in history]
        print_table([name.replace("_", " ") for name in history[0]], table, title=f"The last {HISTORY_ROUNDS} rounds")
