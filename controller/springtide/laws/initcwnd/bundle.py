"""Entries of bundles by the law of the initial window: each edge's windows, by destination."""

from __future__ import annotations

from collections.abc import Iterable

from springtide.fleet import Fleet
from springtide.laws.entry import Part
from springtide.laws.holdout import HoldoutPolicy, held_out_edges
from springtide.laws.initcwnd.decision import Action, Decision, is_left_out
from springtide.laws.initcwnd.edges import EdgeDecision


def entries(
    fleet: Fleet,
    holdout: HoldoutPolicy,
    decisions: Iterable[Decision],
    expires_unix_s: int,
    of_edges: Iterable[EdgeDecision] = (),
) -> tuple[dict[str, list[Part]], list[Decision]]:
    """Each edge's entries, and the decisions whose evidence is too old to be promised for a bundle's lifetime.

    A decision that expires before the bundle is left out: so no edge can use a value for longer than initcwnd.ttl_s
    after its last evidence, whatever is down, and a pair without evidence shortens no other's life. Policy keeps
    bundle.ttl_s <= initcwnd.ttl_s, so fresh ones always fit. An override is an operator's decision and needs no
    evidence. Edges that are held out get none; what `of_edges` gives single edges precedes that too.
    """
    values: dict[tuple[str, str, int], int] = {}
    left_out = []
    for decision in decisions:
        if decision.action is not Action.SET or decision.initcwnd is None:
            continue
        if is_left_out(decision, expires_unix_s):
            left_out.append(decision)
        else:
            values[decision.pair] = decision.initcwnd
    held_out = held_out_edges(fleet, holdout)
    for_edges = {(one.edge, one.dst_pop, one.ip_version): one.initcwnd for one in of_edges}
    with_their_own = {edge for edge, _, _ in for_edges}
    prefixes = list(fleet.prefixes())
    found: dict[str, list[Part]] = {}
    for pop in fleet.pops:
        towards = [(one, dst, values.get((pop, dst, one.version))) for one, dst in prefixes if dst != pop]
        # The edges of a PoP share them.
        shared = [Part(prefix=str(one), initcwnd=window) for one, _, window in towards if window is not None]
        for edge in fleet.pops[pop].edges:
            found[edge] = [] if edge in held_out else shared
            if edge in with_their_own:
                usual = {one: None if edge in held_out else window for one, _, window in towards}
                windows = ((one, for_edges.get((edge, dst, one.version), usual[one])) for one, dst, _ in towards)
                found[edge] = [Part(prefix=str(one), initcwnd=own) for one, own in windows if own is not None]
    return found, left_out
