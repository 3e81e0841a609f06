"""Entries of bundles by the law of congestion control: the client prefixes that use BBR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from springtide.fleet import Fleet, Prefix, prefix_order
from springtide.laws.entry import Part


def entries(
    fleet: Fleet, min_object_bytes: int, on_bbr: Mapping[str, Iterable[Prefix]], *, always: bool = False
) -> dict[str, list[Part]]:
    """Each edge's entries, of each PoP's client prefixes that use BBR: every edge of the PoP gets them. Held-out
    prefixes are not among them. `always`: where bytes cannot be waited for, it may act from the first one."""
    given = {"always": True} if always else {}
    bbr = Part(algorithm="bbr", from_bytes=min_object_bytes, **given)
    found: dict[str, list[Part]] = {}
    for pop in fleet.pops:
        shared = [Part(prefix=str(prefix), congestion=bbr) for prefix in sorted(on_bbr.get(pop, ()), key=prefix_order)]
        found.update(dict.fromkeys(fleet.pops[pop].edges, shared))
    return found
