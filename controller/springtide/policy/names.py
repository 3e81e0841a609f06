"""Names in overrides, against the fleet: an override of what is not there says nothing, and nobody would notice."""

from __future__ import annotations

from collections.abc import Iterator

from springtide.document import Keys
from springtide.fleet import Fleet
from springtide.laws.destinations import Owned
from springtide.laws.recovery.policy import RecoveryOverride
from springtide.laws.start.policy import StartOverride
from springtide.policy.whole import Policy

# Where, what is wrong, and what to do.
Finding = tuple[Keys, str, str]
NAME_IT = "name it as in fleet.yaml"


def unknown(fleet: Fleet, policy: Policy) -> Iterator[Finding]:
    """PoPs, edges and client prefixes of overrides that the override could never apply to."""
    owners = fleet.edges()
    for keys, pop in _pops(policy):
        if pop not in fleet.pops:
            yield keys, f"{pop!r} is not a PoP of the fleet", NAME_IT
    for index, override in enumerate(policy.overrides):
        for at, edge in enumerate(override.edges or ()):
            if owners.get(edge) != override.src:
                fix = "name edges of the override's src in fleet.yaml"
                yield ("overrides", index, "edges", at), f"{edge!r} is not an edge of {override.src}", fix
    for index, one in enumerate(policy.enforce_overrides):
        for at, edge in enumerate(one.edges or ()):
            if edge not in owners or one.pop not in (None, owners[edge]):
                what = f"{edge!r} is not an edge of {one.pop or 'the fleet'}"
                yield ("enforce_overrides", index, "edges", at), what, NAME_IT
    yield from _within_pops(fleet, policy)


def _pops(policy: Policy) -> Iterator[tuple[Keys, str]]:
    """Where each PoP is named."""
    for index, pair in enumerate(policy.overrides):
        yield ("overrides", index, "src"), pair.src
        yield ("overrides", index, "dst"), pair.dst
    for keys, word in _of_paths(policy):
        yield (*keys, "src"), word.src
        if "/" not in word.to:
            yield (*keys, "to"), word.to
    for index, choice in enumerate(policy.congestion_overrides):
        yield ("congestion_overrides", index, "pop"), choice.pop
    for index, way in enumerate(policy.enforce_overrides):
        if way.pop is not None:
            yield ("enforce_overrides", index, "pop"), way.pop


def _within_pops(fleet: Fleet, policy: Policy) -> Iterator[Finding]:
    """Client prefixes that are a PoP's: of the src itself no bundle may name them, and of another what is left to the
    kernel's default would start as the wider prefix does."""
    owned = Owned(fleet)
    for (section, index), word in _of_paths(policy):
        if (found := owned.around(word.to)) is None:
            continue
        keys, (around, owner) = (section, index, "to"), found
        if owner == word.src:
            yield keys, f"{word.to} is in {around} of the src itself", "name another PoP, or a client prefix"
        elif not isinstance(word, StartOverride):
            yield keys, f"{word.to} is in {around} of {owner}, and recovers as that does", f"name {owner}"
        elif word.initcwnd is None and str(around) != word.to:
            what = f"{word.to} is in {around} of {owner}, and would start as that does"
            yield keys, what, f"name {owner}, or give a window"


def _of_paths(policy: Policy) -> Iterator[tuple[tuple[str, int], StartOverride | RecoveryOverride]]:
    """Overrides of a path, each with its place."""
    for index, start in enumerate(policy.start_overrides):
        yield ("start_overrides", index), start
    for index, recovery in enumerate(policy.recovery_overrides):
        yield ("recovery_overrides", index), recovery
