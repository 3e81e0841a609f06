"""The destinations of decisions as prefixes of a bundle."""

from __future__ import annotations

from springtide.fleet import Fleet, Prefix, parse_prefix


def prefixes(fleet: Fleet, destination: str, ip_version: int) -> list[str]:
    """A client prefix itself, or the prefixes of a PoP."""
    if "/" in destination:
        return [destination]
    pop = fleet.pops.get(destination)
    return [] if pop is None else [str(one) for one in pop.prefixes if one.version == ip_version]


class Owned:
    """Client prefixes that are, or are in, a prefix of the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._prefixes = {self._begin(one, one.prefixlen) for one, _ in fleet.prefixes()}
        self._lengths = {(one.version, one.prefixlen) for one, _ in fleet.prefixes()}

    def __contains__(self, destination: str) -> bool:
        prefix = parse_prefix(destination) if "/" in destination else None
        return prefix is not None and any(
            self._begin(prefix, length) in self._prefixes
            for version, length in self._lengths
            if version == prefix.version and length <= prefix.prefixlen
        )

    @staticmethod
    def _begin(prefix: Prefix, length: int) -> tuple[int, int, int]:
        return prefix.version, length, int(prefix.network_address) >> (prefix.max_prefixlen - length)
