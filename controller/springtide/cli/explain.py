"""springtide explain"""

from __future__ import annotations

import difflib
from dataclasses import asdict
from pathlib import Path

import click

from springtide import instants
from springtide.cli.decide import as_dict
from springtide.cli.explain_prefix import client_prefix, show_prefix
from springtide.cli.options import (
    StoreOptions,
    closed_round,
    fleet_option,
    json_option,
    policy_option,
    read_fleet,
    read_policy,
    round_option,
    store_options,
)
from springtide.cli.output import print_json, print_table
from springtide.decide import decisions, edges
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet
from springtide.learn.explain import Explanation, history_rows, without_decision
from springtide.learn.explain import explain as explain_decision

HISTORY_ROUNDS = 12


@click.command()
@click.argument("src_pop")
@click.argument("destination")
@round_option
@json_option
@fleet_option
@policy_option
@store_options
def explain(
    store: StoreOptions,
    fleet_path: Path,
    policy_path: Path,
    src_pop: str,
    destination: str,
    round_text: str | None,
    as_json: bool,
) -> None:
    """Say why new connections from SRC_POP start as they do, and what would change it.

    DESTINATION is a PoP, for their initial window, or a client prefix or an address in it, for BBR or not.

    \b
    Examples:
      springtide explain ams nyc
      springtide explain ams nyc --round 2026-01-02T03:05:00Z
      springtide explain ams 192.0.2.0/24
    """
    fleet = read_fleet(fleet_path)
    policy = read_policy(policy_path)
    prefix = client_prefix(destination)
    if prefix is not None:
        _require_pop(fleet, src_pop)
        with store.open() as opened:
            show_prefix(opened, policy, src_pop, prefix, closed_round(round_text, policy), as_json)
        return
    dst_pop = destination
    for name in (src_pop, dst_pop):
        _require_pop(fleet, name)
    if src_pop == dst_pop:
        raise InputError([Problem("explain", "DESTINATION", f"{dst_pop} is SRC_POP as well", "name two PoPs")])
    interval_s = policy.round.interval_s
    asked = closed_round(round_text, policy)
    with store.open() as opened:
        newest = instants.latest_round(instants.now(), interval_s)
        moment = asked or decisions.latest_decided(opened, newest) or newest
        since = moment - HISTORY_ROUNDS * interval_s
        history = decisions.read_pair(opened, src_pop, dst_pop, moment, since)
        decided = decisions.latest_decided(opened, moment) == moment
        of_edges = [one for one in edges.read_round(opened, moment) if (one.src_pop, one.dst_pop) == (src_pop, dst_pop)]
    explanations = [explain_decision(d, policy) for d in history if d.round == moment]
    if not explanations:
        explanations = [without_decision(src_pop, dst_pop, moment, decided)]
    if as_json:
        head = {"round": instants.show(moment), "src_pop": src_pop, "dst_pop": dst_pop}
        print_json(
            {
                **head,
                "explanations": [_as_dict(e) for e in explanations],
                "edges": [asdict(one) | {"until": instants.show(one.until)} for one in of_edges],
                "history": [as_dict(d) for d in history],
            }
        )
        return
    click.echo(f"{src_pop} to {dst_pop}, round {instants.show(moment)}")
    for explanation in explanations:
        click.echo("")
        if explanation.ip_version is not None:
            click.echo(f"IPv{explanation.ip_version}")
        click.echo(f"  value         {explanation.verdict}")
        click.echo(f"  because       {explanation.because}")
        click.echo(f"  rule          {explanation.rule}")
        found = explanation.decision
        if found is not None:
            ratio = "unknown" if found.retransmit_ratio is None else f"{found.retransmit_ratio:.2%}"
            click.echo(f"  retransmitted {ratio} of the bytes sent in the round")
            now_other = "" if found.policy_version == policy.version else f"; the policy at hand is {policy.version}"
            click.echo(f"  policy        {found.policy_version}{now_other}")
        click.echo(f"  would change  {explanation.would_change}")
    for one in of_edges:
        value = "the kernel's default" if one.initcwnd is None else f"{one.initcwnd} segments"
        click.echo(f"  but on {one.edge}, IPv{one.ip_version}: {value} until {instants.show(one.until)}: {one.why}")
    if history:
        click.echo("")
        columns = ["round", "ip", "action", "initcwnd", "reason", "observed", "smoothed", "earned", "seen", "policy"]
        print_table(columns, history_rows(history, policy), title=f"The last {HISTORY_ROUNDS} rounds")


def _require_pop(fleet: Fleet, name: str) -> None:
    if name not in fleet.pops:
        close = difflib.get_close_matches(name, fleet.pops, n=1)
        fix = f"did you mean {close[0]}?" if close else f"the fleet has {', '.join(sorted(fleet.pops))}"
        raise InputError([Problem("explain", "PoP", f"{name!r} is not in the fleet", fix)])


def _as_dict(explanation: Explanation) -> dict[str, object]:
    decision = None if explanation.decision is None else as_dict(explanation.decision)
    return {**vars(explanation), "decision": decision}
