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
    """Prefixes of the fleet by what lies in them."""

    def __init__(self, fleet: Fleet) -> None:
        self._owners = {self._begin(one, one.prefixlen): (one, pop) for one, pop in fleet.prefixes()}
        self._lengths = {(version, length) for version, length, _ in self._owners}

    def around(self, destination: str) -> tuple[Prefix, str] | None:
        """The prefix of the fleet that a client prefix is, or is in, and its PoP."""
        prefix = parse_prefix(destination) if "/" in destination else None
        if prefix is None:
            return None
        shorter = (length for version, length in self._lengths if version == prefix.version)
        begins = (self._begin(prefix, length) for length in shorter if length <= prefix.prefixlen)
        return next((self._owners[begin] for begin in begins if begin in self._owners), None)

    def __contains__(self, destination: str) -> bool:
        return self.around(destination) is not None

    @staticmethod
    def _begin(prefix: Prefix, length: int) -> tuple[int, int, int]:
        return prefix.version, length, int(prefix.network_address) >> (prefix.max_prefixlen - length)
