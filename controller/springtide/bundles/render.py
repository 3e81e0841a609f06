"""A round's decisions as bundles, one for each edge of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from springtide import instants
from springtide._core import MAX_ENTRIES
from springtide.bundles.enforce import enforcement, own_sides
from springtide.bundles.model import SCHEMA_VERSION, Document, seal
from springtide.bundles.validate import Context, destination_findings
from springtide.document import dotted
from springtide.fleet import Fleet, parse_prefix, prefix_order
from springtide.laws.base import Contribution
from springtide.laws.entry import Part, to_json
from springtide.laws.holdout import held_out_edges
from springtide.policy import BundlePolicy, Policy
from springtide.policy.names import unknown

Given = Mapping[str, Mapping[str, int]]
# What a receiver announces by itself: 65,535 bytes in segments of 1460. A smaller value would lower it.
ANNOUNCED_ANYWAY = 44


@dataclass(frozen=True)
class Rendered:
    """A round's bundles, and what was decided and is left out of them.

    `left_out`: its evidence is too old. `unusable`, with the reason: no bundle may name its prefix, or the fleet lacks
    what an override names. `too_many`: starts that an edge's bundle has no room for, those that gain least."""

    documents: dict[str, Document]
    left_out: list[str]
    unusable: list[str] = field(default_factory=list)
    too_many: dict[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Lines for whoever publishes."""
        full = (f"{edge}: {no_room(count)}" for edge, count in sorted(self.too_many.items()))
        return [*self.unusable, *full]


def no_room(starts: int) -> str:
    return f"{starts:,} starts with least to gain, over bundle.max_bytes or max_routes"


def render(
    fleet: Fleet, policy: Policy, round_unix_s: int, created_unix_s: int, contributions: Iterable[Contribution]
) -> Rendered:
    """A bundle for every edge of the fleet, also for edges without entries: that removes what they had.

    A bundle expires at its round + bundle.ttl_s, when the edge withdraws it by itself.
    """
    given = list(contributions)
    merged = _Merged(fleet, policy, round_unix_s, given)
    documents, too_many = {}, {}
    opted_out = own_sides(fleet.tenant_rules())
    for pop in fleet.pops:
        for edge in fleet.pops[pop].edges:
            fields: dict[str, Any] = {
                "schema_version": SCHEMA_VERSION,
                "edge": edge,
                "pop": pop,
                "round": instants.show(round_unix_s),
                "policy_version": policy.version,
                "created_at": instants.show(created_unix_s),
                "expires_at": instants.show(round_unix_s + policy.bundle.ttl_s),
            }
            enforce = enforcement(policy.enforce_of(edge, pop, round_unix_s), policy.recovery, opted_out)
            fields |= {"enforce": enforce, "entries": merged.of(edge, pop, enforce)}
            documents[edge] = seal(fields)
            if enforce.by == "bpf":
                starts = [one for part in given if part.by == "bpf" for one in part.entries.get(edge, ())]
                fields["entries"], dropped = _fitting(fields["entries"], starts, documents[edge], policy.bundle)
                if dropped:
                    documents[edge], too_many[edge] = seal(fields), dropped
    left_out = [name for one in given for name in one.left_out]
    overrides = (f"{dotted(keys)}: {what}" for keys, what, _ in unknown(fleet, policy))
    return Rendered(documents, left_out, [*overrides, *sorted(merged.unusable)], too_many)


def _fitting(
    entries: list[Part], starts: Sequence[Part], document: Document, policy: BundlePolicy
) -> tuple[list[Part], int]:
    """The entries of an edge that paces, without the values of those at the end of `starts` for which a bundle has no
    room; and how many these are. One edge with too much is no reason to publish nothing for all others."""
    excess, count = len(document.content) - policy.max_bytes, len(entries)
    windows = sum(one.initcwnd is not None for one in entries)
    known = {one.prefix: one for one in entries}
    left: dict[str, Part | None] = {}
    for start in reversed(starts):
        if excess <= 0 and windows <= policy.max_routes and count <= MAX_ENTRIES:
            break
        # Two laws may have given it values.
        one = left.get(start.prefix, known.get(start.prefix))
        if one is None:
            continue
        rest = {name: value for name, value in vars(one).items() if name not in vars(start)}
        left[start.prefix] = kept = Part(prefix=start.prefix, **rest) if rest else None
        excess -= _size(one) - _size(kept)
        windows -= one.initcwnd is not None and (kept is None or kept.initcwnd is None)
        count -= kept is None
    return [found for one in entries if (found := left.get(one.prefix, one)) is not None], len(left)


def _size(entry: Part | None) -> int:
    """Bytes within a bundle: a comma in place of the object around it."""
    return 0 if entry is None else len(to_json(entry).encode()) + 1


class _Merged:
    """Entries of an edge: what all laws give it for a prefix is one."""

    def __init__(self, fleet: Fleet, policy: Policy, round_unix_s: int, given: Sequence[Contribution]) -> None:
        self.unusable: set[str] = set()
        self._context = Context(fleet, policy, round_unix_s)
        self._given = given
        self._receive: Given = {}
        if policy.enforce.receive_windows:
            ways = ((name, edge) for name, pop in fleet.pops.items() for edge in pop.edges)
            starts = (
                (name, one)
                for name, edge in ways
                for part in self._parts(edge, policy.enforce_of(edge, name, round_unix_s).by)
                for one in part
            )
            self._receive = _receive_windows(fleet, starts)
        self._held_out = held_out_edges(fleet, policy.holdout)
        # The edges of a PoP share most of what they are given.
        self._known: dict[tuple[object, ...], list[Part]] = {}

    def of(self, edge: str, pop: str, enforce: Part) -> list[Part]:
        parts = self._parts(edge, enforce.by)
        receives = enforce.by == "bpf" and edge not in self._held_out
        key = (pop, enforce.by, receives, *map(id, parts))
        if key not in self._known:
            self._known[key] = self._merge(pop, enforce.by, parts, self._receive.get(pop, {}) if receives else {})
        return self._known[key]

    def _parts(self, edge: str, by: str) -> list[Sequence[Part]]:
        return [one.entries.get(edge, ()) for one in self._given if one.by in ("", by)]

    def _merge(self, pop: str, by: str, parts: Sequence[Sequence[Part]], receive: Mapping[str, int]) -> list[Part]:
        found: dict[str, dict[str, Any]] = {prefix: {"receive_window": window} for prefix, window in receive.items()}
        # What only one law names is its entry as it is: a copy of each would take as much memory again.
        alone: dict[str, Part] = {}
        for part in parts:
            for one in part:
                if one.prefix not in found and one.prefix not in alone:
                    alone[one.prefix] = one
                    continue
                if (known := alone.pop(one.prefix, None)) is not None:
                    found[one.prefix] = _values(known)
                found[one.prefix].update(_values(one))
        usable = []
        for text in (*found, *alone):
            entry = alone[text] if text in alone else Part(prefix=text, **found[text])
            problem = next(destination_findings(entry, pop, by, self._context), None)
            if problem is not None:
                self.unusable.add(f"{pop}: {problem[0]}")
            elif (prefix := parse_prefix(text)) is not None:
                usable.append((prefix_order(prefix), entry))
        return [entry for _, entry in sorted(usable, key=lambda pair: pair[0])]


def _values(one: Part) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if name != "prefix"}


def _receive_windows(fleet: Fleet, starts: Iterable[tuple[str, Part]]) -> Given:
    """PoP -> prefix of another one -> the largest window with which that one's edges start towards it, where it is more
    than is announced anyway. `starts`: of each sending PoP what its edges are given."""
    owners = {str(prefix): (pop, prefix.version) for prefix, pop in fleet.prefixes()}
    most: dict[tuple[str, str, int], int] = {}
    for sender, one in starts:
        if one.prefix in owners:
            receiver, version = owners[one.prefix]
            pair: tuple[str, str, int] = (receiver, sender, version)
            most[pair] = max(most.get(pair, 0), _window(one))
    found: dict[str, dict[str, int]] = {}
    for (receiver, sender, ip_version), window in most.items():
        if window <= ANNOUNCED_ANYWAY:
            continue
        of_sender = (prefix for prefix in fleet.pops[sender].prefixes if prefix.version == ip_version)
        found.setdefault(receiver, {}).update({str(prefix): window for prefix in of_sender})
    return found


def _window(one: Part) -> int:
    """The largest with which connections may start."""
    trial = None if one.trial is None else one.trial.initcwnd
    return max(one.initcwnd or 0, trial or 0)
