"""A round's decisions as bundles, one for each edge of the fleet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from springtide import instants
from springtide.bundles.model import Document, seal
from springtide.fleet import Fleet
from springtide.laws.base import Contribution
from springtide.policy import Policy


@dataclass(frozen=True)
class Rendered:
    """A round's bundles, and what was decided and is left out of them because its evidence is too old."""

    documents: dict[str, Document]
    left_out: list[str]


def render(
    fleet: Fleet, policy: Policy, round_unix_s: int, created_unix_s: int, contributions: Iterable[Contribution]
) -> Rendered:
    """A bundle for every edge of the fleet, also for edges without routes: that removes the routes that they had.

    A bundle expires at its round + bundle.ttl_s, when the edge withdraws it by itself. A field without a contribution
    is left out; routes are always there.
    """
    given = [one for one in contributions if one.bundle_field]
    documents = {}
    for pop in fleet.pops:
        for edge in fleet.pops[pop].edges:
            fields: dict[str, Any] = {
                "schema_version": 1,
                "edge": edge,
                "pop": pop,
                "round": instants.show(round_unix_s),
                "policy_version": policy.version,
                "created_at": instants.show(created_unix_s),
                "expires_at": instants.show(round_unix_s + policy.bundle.ttl_s),
                "routes": [],
            }
            documents[edge] = seal(fields | {one.bundle_field: one.entries[edge] for one in given})
    return Rendered(documents, [name for one in given for name in one.left_out])
