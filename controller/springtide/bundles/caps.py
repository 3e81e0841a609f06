"""How much one publication may change at once, compared with what is current on the fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from springtide import instants
from springtide.bundles.model import Documents
from springtide.errors import Problem
from springtide.fleet import Fleet
from springtide.laws.switchback import disable_test, last_rounds, off_pairs
from springtide.policy import BundlePolicy, Policy

Value = tuple[str, str]
Choice = tuple[str, int]
FIX = "look at `springtide diff`; if it is intended, use --force --reason TEXT"


@dataclass(frozen=True)
class Difference:
    """Routes as (edge, prefix) -> initcwnd, and what happens to each."""

    added: Mapping[Value, int]
    changed: Mapping[Value, tuple[int, int]]
    withdrawn: Mapping[Value, int]
    before: int
    after: int


def routes(documents: Documents) -> dict[Value, int]:
    return {
        (edge, route.prefix): route.initcwnd for edge, document in documents.items() for route in document.bundle.routes
    }


def difference(before: Documents, after: Documents) -> Difference:
    old, new = routes(before), routes(after)
    return Difference(
        added={key: new[key] for key in new.keys() - old.keys()},
        changed={key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]},
        withdrawn={key: old[key] for key in old.keys() - new.keys()},
        before=len(old),
        after=len(new),
    )


@dataclass(frozen=True)
class ByDesign:
    """Of a difference how many routes the policy's experiment withdraws, and how many it gives back. `due`: those that
    it had switched off before and gives back now, `missing`: of these, those that did not come back."""

    withdrawn: int = 0
    returned: int = 0
    due: int = 0
    missing: int = 0


class Turns:
    """Which routes the policy's experiment switches off. Known by it alone, and not by what was decided. A route counts
    by its source PoP, and the PoP that owns its prefix; a client's prefix, which no PoP owns, is off in tests only."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._law, self._interval_s = policy.experiment, policy.round.interval_s
        self._pops, self._edges = fleet.pops, fleet.edges()
        self._owners = {str(prefix): pop for prefix, pop in fleet.prefixes()}
        self._off: dict[int, frozenset[tuple[str, str]]] = {}

    def off(self, round_unix_s: int) -> frozenset[tuple[str, str]]:
        """(source PoP, owner or nothing) that are off."""
        if round_unix_s not in self._off:
            found = off_pairs(self._law, self._interval_s, self._pops, round_unix_s)
            if disable_test(self._law, round_unix_s) is not None:
                found |= {(pop, "") for pop in self._pops}
            self._off[round_unix_s] = found
        return self._off[round_unix_s]

    def pair(self, value: Value) -> tuple[str, str]:
        edge, prefix = value
        return self._edges.get(edge, ""), self._owners.get(prefix, "")

    def last_on(self, round_unix_s: int) -> dict[int, set[tuple[str, str]]]:
        """When those that are off in a round were on last: the last round before each of its own turns."""
        found: dict[int, set[tuple[str, str]]] = {}
        waiting = set(self.off(round_unix_s))
        for moment in last_rounds(self._law, self._interval_s, round_unix_s):
            if on := waiting - self.off(moment):
                found[moment] = on
                waiting -= on
        return found


def by_design(
    found: Difference, before: Documents, after: Documents, turns: Turns, resting: Collection[Value] = ()
) -> ByDesign:
    """By the turns of each bundle's own round: whatever else is gone counts as ever. `resting` routes were switched off
    in `before`: those whose turn is over are to be there again."""

    def is_off(value: Value, documents: Documents) -> bool:
        document = documents.get(value[0])
        return document is not None and turns.pair(value) in turns.off(instants.parse(document.bundle.round))

    due = {value for value in resting if value[0] in after and not is_off(value, after)}
    return ByDesign(
        withdrawn=sum(is_off(value, after) for value in found.withdrawn),
        returned=sum(is_off(value, before) for value in found.added),
        due=len(due),
        missing=len(due - found.added.keys()),
    )


@dataclass(frozen=True)
class CongestionDifference:
    """Which congestion control clients of a PoP get: (PoP, prefix) -> (algorithm, from how many bytes)."""

    added: Mapping[Value, Choice]
    changed: Mapping[Value, tuple[Choice, Choice]]
    withdrawn: Mapping[Value, Choice]
    before: int


def choices(documents: Documents) -> dict[Value, Choice]:
    """Edges of one PoP get the same."""
    return {
        (document.bundle.pop, choice.prefix): (choice.algorithm, choice.min_object_bytes)
        for document in documents.values()
        for choice in document.bundle.congestion
    }


def congestion_difference(before: Documents, after: Documents) -> CongestionDifference:
    old, new = choices(before), choices(after)
    return CongestionDifference(
        added={key: new[key] for key in new.keys() - old.keys()},
        changed={key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]},
        withdrawn={key: old[key] for key in old.keys() - new.keys()},
        before=len(old),
    )


def congestion_problems(where: str, found: CongestionDifference, policy: BundlePolicy) -> Iterator[Problem]:
    """As `problems`. What is added needs no cap: the law itself lets in congestion.max_new a round and PoP."""
    limit = policy.max_congestion_withdrawn_share
    if found.before >= policy.caps_from_routes and len(found.withdrawn) > limit * found.before:
        message = f"{len(found.withdrawn)} of {found.before} client prefixes leave BBR, over "
        message += f"bundle.max_congestion_withdrawn_share = {limit}"
        yield Problem(where, "cap max_congestion_withdrawn_share", message, FIX)


NOTHING = ByDesign()


def problems(where: str, found: Difference, policy: BundlePolicy, designed: ByDesign = NOTHING) -> Iterator[Problem]:
    """Changes above a cap. A fleet with fewer than `caps_from_routes` routes is learning, and has none. Caps hold for
    the routes with which the experiment does nothing, or that it gives back."""
    if found.before + designed.due < policy.caps_from_routes:
        return
    before = found.before - designed.withdrawn + designed.due
    withdrawn = len(found.withdrawn) - designed.withdrawn + designed.missing
    besides = f" besides {designed.withdrawn} that the experiment switches off" if designed.withdrawn else ""
    shares = (
        ("max_changed_share", "changed or withdrawn", len(found.changed) + withdrawn),
        ("max_withdrawn_share", "withdrawn", withdrawn),
    )
    for key, what, count in shares:
        limit = getattr(policy, key)
        if count > limit * before:
            message = f"{count} of {before} routes are {what}{besides}, over bundle.{key} = {limit}"
            yield Problem(where, f"cap {key}", message, FIX)
    after = found.after - designed.returned
    if found.before >= policy.caps_from_routes and after > policy.max_growth * found.before:
        message = f"{found.before} routes become {after}, over bundle.max_growth = {policy.max_growth}"
        yield Problem(where, "cap max_growth", message, FIX)
