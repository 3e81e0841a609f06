"""How much one publication may change at once, compared with what is current on the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from springtide import instants
from springtide.bundles.model import Documents
from springtide.errors import Problem
from springtide.fleet import Fleet
from springtide.laws.switchback import off_pairs
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
    """Of a difference how many routes the policy's experiment withdraws, and how many it gives back."""

    withdrawn: int = 0
    returned: int = 0


def by_design(found: Difference, before: Documents, after: Documents, fleet: Fleet, policy: Policy) -> ByDesign:
    """Known by the policy's experiment alone, and not by what was decided: whatever else is gone counts as ever. A
    route counts by its source PoP, the PoP that owns its prefix, and each bundle's own round."""
    pops, owners = fleet.edges(), {str(prefix): pop for prefix, pop in fleet.prefixes()}
    off: dict[str, frozenset[tuple[str, str]]] = {}

    def is_off(value: Value, documents: Documents) -> bool:
        edge, prefix = value
        if edge not in documents or edge not in pops:
            return False
        moment = documents[edge].bundle.round
        if moment not in off:
            off[moment] = off_pairs(policy.experiment, policy.round.interval_s, fleet.pops, instants.parse(moment))
        return (pops[edge], owners.get(prefix, "")) in off[moment]

    return ByDesign(
        withdrawn=sum(is_off(value, after) for value in found.withdrawn),
        returned=sum(is_off(value, before) for value in found.added),
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
    the routes with which the experiment does nothing."""
    if found.before < policy.caps_from_routes:
        return
    before, withdrawn = found.before - designed.withdrawn, len(found.withdrawn) - designed.withdrawn
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
    if after > policy.max_growth * found.before:
        message = f"{found.before} routes become {after}, over bundle.max_growth = {policy.max_growth}"
        yield Problem(where, "cap max_growth", message, FIX)
