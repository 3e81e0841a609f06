"""A round's decisions as bundles, one for each edge of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from springtide import instants
from springtide.bundles.model import Choice, Document, Route, seal
from springtide.fleet import Fleet, Prefix, prefix_order
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd.decision import Action, Decision, is_left_out
from springtide.laws.initcwnd.edges import EdgeDecision
from springtide.policy import Policy


@dataclass(frozen=True)
class Rendered:
    """A round's bundles, and the decisions whose evidence is too old to be promised for a bundle's lifetime."""

    documents: dict[str, Document]
    left_out: list[Decision]


def render(
    fleet: Fleet,
    policy: Policy,
    round_unix_s: int,
    decisions: Iterable[Decision],
    created_unix_s: int,
    on_bbr: Mapping[str, Iterable[Prefix]] | None = None,
    of_edges: Iterable[EdgeDecision] = (),
) -> Rendered:
    """A bundle for every edge of the fleet, those without routes included: that is how an edge loses its old ones.

    A bundle lives until its round + bundle.ttl_s, the edge taking it back by itself. A decision that dies before that
    is left out: so no edge can use a value for longer than initcwnd.ttl_s after its last evidence, whoever is down, and
    one silent pair shortens no other's life. Policy keeps bundle.ttl_s <= initcwnd.ttl_s, so fresh ones always fit. An
    override is an operator's decision and needs no evidence. Edges that are held out get no routes; what
    `of_edges` gives single edges stands above that too.

    `on_bbr` are each PoP's client prefixes that use BBR, None where that is not decided or not to be carried: then the
    field is left out. Held-out prefixes are not among them; every edge of the PoP gets them.
    """
    expires = round_unix_s + policy.bundle.ttl_s
    values: dict[tuple[str, str, int], int] = {}
    left_out = []
    for decision in decisions:
        if decision.action is not Action.SET or decision.initcwnd is None:
            continue
        if is_left_out(decision, expires):
            left_out.append(decision)
        else:
            values[decision.pair] = decision.initcwnd
    held_out = held_out_edges(fleet, policy.holdout)
    for_edges = {(one.edge, one.dst_pop, one.ip_version): one.initcwnd for one in of_edges}
    documents = {}
    for pop in fleet.pops:
        towards = [
            (prefix, other_name, values.get((pop, other_name, prefix.version)))
            for other_name, other in fleet.pops.items()
            if other_name != pop
            for prefix in other.prefixes
        ]
        towards.sort(key=lambda route: prefix_order(route[0]))
        # The edges of a PoP share them.
        routes = [_route(prefix, value) for prefix, _, value in towards if value is not None]
        chosen = [] if on_bbr is None else sorted(on_bbr.get(pop, ()), key=prefix_order)
        choices = [
            Choice(prefix=str(prefix), algorithm="bbr", min_object_bytes=policy.congestion.min_object_bytes)
            for prefix in chosen
        ]
        for edge in fleet.pops[pop].edges:
            own = [] if edge in held_out else routes
            if any(name == edge for name, _, _ in for_edges):
                own = _with_edge(edge, towards, for_edges, held_out=edge in held_out)
            fields: dict[str, Any] = {
                "schema_version": 1,
                "edge": edge,
                "pop": pop,
                "round": instants.show(round_unix_s),
                "policy_version": policy.version,
                "created_at": instants.show(created_unix_s),
                "expires_at": instants.show(expires),
                "routes": own,
            }
            if on_bbr is not None:
                fields["congestion"] = choices
            documents[edge] = seal(fields)
    return Rendered(documents, left_out)


def _with_edge(
    edge: str,
    towards: Iterable[tuple[Prefix, str, int | None]],
    for_edges: Mapping[tuple[str, str, int], int | None],
    *,
    held_out: bool,
) -> list[Route]:
    """The routes of an edge that has overrides of its own."""
    values = (
        (prefix, for_edges.get((edge, dst, prefix.version), None if held_out else value))
        for prefix, dst, value in towards
    )
    return [_route(prefix, value) for prefix, value in values if value is not None]


def _route(prefix: Prefix, initcwnd: int) -> Route:
    return Route(prefix=str(prefix), initcwnd=initcwnd)
