"""A round's decisions as bundles, one for each edge of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import chain
from typing import Any

from springtide import instants
from springtide._core import MAX_ENTRIES
from springtide.bundles.model import SCHEMA_VERSION, Document, seal
from springtide.bundles.receivers import receive_windows
from springtide.bundles.validate import Context, destination_findings
from springtide.document import dotted
from springtide.fleet import Fleet, parse_prefix, prefix_order
from springtide.laws.base import Contribution
from springtide.laws.entry import Part, to_json
from springtide.laws.holdout import held_out_edges
from springtide.laws.recovery.policy import RecoveryPolicy
from springtide.policy import BundlePolicy, EnforcePolicy, Policy
from springtide.policy.names import unknown


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
    head = {
        "schema_version": SCHEMA_VERSION,
        "round": instants.show(round_unix_s),
        "policy_version": policy.version,
        "created_at": instants.show(created_unix_s),
        "expires_at": instants.show(round_unix_s + policy.bundle.ttl_s),
    }
    for edge, pop in fleet.edges().items():
        way = policy.enforce_of(edge, pop, round_unix_s)
        enforce = _enforcement(way, policy.recovery, merged.context.opted_out)
        entries = merged.of(edge, pop, enforce)
        fields = {**head, "edge": edge, "pop": pop, "enforce": enforce}
        documents[edge] = seal({**fields, "entries": entries})
        if enforce.by == "bpf":
            starts = [one for part in given if part.by == "bpf" for one in part.entries.get(edge, ())]
            entries, dropped = _fitting(entries, starts, documents[edge], policy.bundle)
            if dropped:
                documents[edge], too_many[edge] = seal({**fields, "entries": entries}), dropped
    left_out = [name for one in given for name in one.left_out]
    overrides = (f"{dotted(keys)}: {what}" for keys, what, _ in unknown(fleet, policy))
    return Rendered(documents, left_out, [*overrides, *sorted(merged.unusable)], too_many)


def _enforcement(policy: EnforcePolicy, recovery: RecoveryPolicy, opted_out: Sequence[Part]) -> Part:
    """Way of enforcing that `policy` asks of an edge.

    By routes, neither a lift nor a brake nor a record nor a copy means anything. Nor can routes leave a tenant alone:
    a rule of `validate` refuses such a bundle.
    """
    fields: dict[str, Any] = {"by": policy.by, "otherwise": policy.otherwise, "live": policy.live}
    if policy.excluded:
        fields["excluded"] = sorted(policy.excluded, key=lambda text: prefix_order(ip_network(text)))
    if policy.by == "routes":
        return Part(**fields)
    return Part(
        **fields,
        opted_out=opted_out or None,
        lift_bytes=policy.lift_bytes,
        lift_round_trips=policy.lift_round_trips or None,
        brake=Part(
            lost_permille=policy.brake_lost_permille,
            connections=policy.brake_connections,
            half_life_s=policy.brake_half_life_s,
        ),
        record_permille=policy.record_permille,
        copies_dscp=recovery.copies_dscp or None,
        copies_permille=recovery.copies_permille,
    )


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
        self.context = Context(fleet, policy, round_unix_s)
        self._given = given
        self._receive: Mapping[str, Mapping[str, int]] = {}
        if policy.enforce.receive_windows:
            starts = (
                (name, one.prefix, one.largest_window)
                for edge, name in fleet.edges().items()
                for part in self._parts(edge, policy.enforce_of(edge, name, round_unix_s).by)
                for one in part
            )
            self._receive = receive_windows(fleet, starts)
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
        found = {prefix: Part(prefix=prefix, receive_window=window) for prefix, window in receive.items()}
        for one in chain.from_iterable(parts):
            # An entry that only one law names is taken as it is: a copy of each would take as much memory again.
            found[one.prefix] = found[one.prefix].but(**vars(one)) if one.prefix in found else one
        usable = []
        for text, entry in found.items():
            problem = next(destination_findings(entry, pop, by, self.context), None)
            if problem is not None:
                self.unusable.add(f"{pop}: {problem[0]}")
            elif (prefix := parse_prefix(text)) is not None:
                usable.append((prefix_order(prefix), entry))
        return [entry for _, entry in sorted(usable, key=lambda pair: pair[0])]
