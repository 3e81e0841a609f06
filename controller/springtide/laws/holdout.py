"""Edges and connections that keep the kernel's default, so that the others' benefit is a difference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from springtide.document import Document
from springtide.errors import Problem
from springtide.fleet import Fleet
from springtide.section import Section

if TYPE_CHECKING:
    from springtide.policy import Policy


class HoldoutPolicy(Section):
    """Edges that keep the kernel's default for every destination, and connections of the others that do, so that the
    benefit is a measured difference."""

    edge_share: float = Field(default=0.05, ge=0.0, le=0.5)
    """Share of each PoP's edges that is held out, chosen by a hash of their names. 0 holds none out.
    Source: one edge in twenty pays for knowing; its connections work as without Springtide."""
    min_edges: int = Field(default=5, ge=2, le=1000)
    """A PoP with at least this many edges holds out at least one; a smaller one none.
    Source: with fewer, one edge is more than a fifth of the PoP."""
    connection_permille: int = Field(default=20, ge=0, le=500)
    """Connections of a thousand that begin with the kernel's default, where edges by bpf start the others at a rate.
    The edge draws them; 0 draws none. Not where a trial, an experiment or an override says who does.
    Source: one in fifty costs a fiftieth of the gain and leaves p95 alone; a path of 1,000 connections a day has 20."""


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys."""
    # The default gives way to a policy that allows less.
    if "connection_permille" in policy.holdout.model_fields_set:
        most = ("enforce", "max_trial_permille"), policy.enforce.max_trial_permille
        yield from document.not_above(("holdout", "connection_permille"), policy.holdout.connection_permille, *most)


def held_out_edges(fleet: Fleet, policy: HoldoutPolicy) -> frozenset[str]:
    """The edges held out, PoP by PoP: those whose names' hashes are smallest.

    A PoP with at least `min_edges` edges holds out `edge_share` of them, rounded, and at least one; a smaller PoP none.
    Among at least `min_edges` an edge that joins or leaves moves at most one other: treated edges stay treated.
    """
    if policy.edge_share == 0.0:
        return frozenset()
    chosen: set[str] = set()
    for pop in fleet.pops.values():
        if len(pop.edges) < policy.min_edges:
            continue
        count = max(1, round(policy.edge_share * len(pop.edges)))
        chosen.update(sorted(pop.edges, key=_hash)[:count])
    return frozenset(chosen)


def _hash(edge: str) -> bytes:
    return hashlib.sha256(b"springtide holdout\0" + edge.encode()).digest()
