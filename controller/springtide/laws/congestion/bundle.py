"""What the law of congestion control puts into bundles: the client prefixes that use BBR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field

from springtide.fleet import Fleet, Prefix, prefix_order
from springtide.laws.entry import Shape


class Choice(Shape):
    prefix: str = Field(description="client prefix in its shortest form, IPv4 /24 or IPv6 /56")
    algorithm: str = Field(description="congestion control by the kernel's name for it, like bbr")
    min_object_bytes: int = Field(
        description="for connections that have delivered this much; the others keep the default"
    )


def choices(fleet: Fleet, min_object_bytes: int, on_bbr: Mapping[str, Iterable[Prefix]]) -> dict[str, list[Choice]]:
    """Each edge's choices, of each PoP's client prefixes that use BBR: every edge of the PoP gets them. Held-out
    prefixes are not among them."""
    found: dict[str, list[Choice]] = {}
    for pop in fleet.pops:
        shared = [
            Choice(prefix=str(prefix), algorithm="bbr", min_object_bytes=min_object_bytes)
            for prefix in sorted(on_bbr.get(pop, ()), key=prefix_order)
        ]
        found.update(dict.fromkeys(fleet.pops[pop].edges, shared))
    return found
