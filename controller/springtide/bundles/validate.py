"""Whether a bundle may be published: a shape, then named rules, each a pure function of the bundle and its context."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import ip_network
from itertools import pairwise

from springtide import instants
from springtide.bundles.model import Bundle, Document, digest, fields_of, parse
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, Prefix, prefix_order
from springtide.policy import CLIENT_PREFIX_LENGTH, MAX_OBJECT_BYTES, Policy

# Synchronised clocks of controllers agree better than this.
CLOCK_TOLERANCE_S = 60

# Field, what is wrong, and what to do.
Finding = tuple[str, str, str]


@dataclass(frozen=True)
class Context:
    """What a bundle is checked against; `edge` is the edge that it must be for, where that is known."""

    fleet: Fleet
    policy: Policy
    now_unix_s: int
    edge: str | None = None

    @cached_property
    def edges(self) -> Mapping[str, str]:
        """Edge -> PoP."""
        return self.fleet.edges()

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Prefix -> PoP."""
        return {str(prefix): pop for prefix, pop in self.fleet.prefixes()}


def problems(where: str, document: Document, context: Context) -> list[Problem]:
    """Why a bundle may not be published; empty when it may."""
    limit = context.policy.bundle.max_bytes
    if len(document.content) > limit:
        message = f"is larger than bundle.max_bytes = {limit}"
        return [Problem(where, "file", message, "find out what made it grow before raising the limit")]
    return [
        Problem(where, field, f"{message} (rule {name})", fix)
        for name, rule in RULES.items()
        for field, message, fix in rule(document.bundle, context)
    ]


def parsed_problems(where: str, content: bytes, context: Context) -> tuple[Document | None, list[Problem]]:
    """Bytes from elsewhere as a document, and its problems; no document where the shape is wrong."""
    try:
        document = parse(where, content, context.policy.bundle.max_bytes)
    except InputError as error:
        return None, [problem for problem in error.problems if isinstance(problem, Problem)]
    return document, problems(where, document, context)


def _for_this_edge(bundle: Bundle, context: Context) -> Iterator[Finding]:
    if context.edge is not None and bundle.edge != context.edge:
        yield "edge", f"is {bundle.edge!r}, not {context.edge!r}", f"use the bundle of {context.edge}"


def _known_edge(bundle: Bundle, context: Context) -> Iterator[Finding]:
    pop = context.edges.get(bundle.edge)
    if pop is None:
        yield "edge", f"{bundle.edge!r} is not in the fleet", "add it to fleet.yaml, or drop the bundle"
    elif pop != bundle.pop:
        yield "pop", f"is {bundle.pop!r}, but {bundle.edge} is in {pop}", "render it again with `springtide bundle`"


def _prefixes(bundle: Bundle, context: Context) -> Iterator[Finding]:
    owners = context.owners
    shortest = {4: context.policy.bundle.min_prefix_length_ipv4, 6: context.policy.bundle.min_prefix_length_ipv6}
    for index, route in enumerate(bundle.routes):
        field = f"routes[{index}].prefix"
        prefix = _prefix(route.prefix)
        if prefix is None:
            yield (
                field,
                f"{route.prefix!r} is not a prefix in its shortest form",
                "write it as 10.77.2.0/24 or fd77:2::/48",
            )
            continue
        if prefix.prefixlen == 0:
            yield field, f"{prefix} is a default route", "name a PoP's prefixes"
        elif prefix.prefixlen < shortest[prefix.version]:
            key = f"bundle.min_prefix_length_ipv{prefix.version}"
            yield field, f"{prefix} is wider than {key} = {shortest[prefix.version]}", "split it in fleet.yaml"
        owner = owners.get(str(prefix))
        if owner is None:
            yield field, f"{prefix} is not a prefix of the fleet", "add it to fleet.yaml, or drop the route"
        elif owner == bundle.pop:
            yield field, f"{prefix} belongs to the edge's own PoP {owner}", "drop the route"


def _unique(bundle: Bundle, _: Context) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, route in enumerate(bundle.routes):
        if route.prefix in seen:
            message = f"{route.prefix} is also routes[{seen[route.prefix]}]"
            yield f"routes[{index}].prefix", message, "keep one route for each prefix"
        seen.setdefault(route.prefix, index)


def _sorted(bundle: Bundle, _: Context) -> Iterator[Finding]:
    parsed = [prefix for prefix in (_prefix(route.prefix) for route in bundle.routes) if prefix is not None]
    for before, after in pairwise(parsed):
        if prefix_order(before) > prefix_order(after):
            fix = "sort by IP version, address and length"
            yield "routes", f"{before} is listed before {after}", fix
            return


def _bounds(bundle: Bundle, context: Context) -> Iterator[Finding]:
    low, high = context.policy.initcwnd.cmin, context.policy.initcwnd.cmax
    for index, route in enumerate(bundle.routes):
        if not low <= route.initcwnd <= high:
            message = f"{route.initcwnd} is outside initcwnd.cmin = {low} to initcwnd.cmax = {high}"
            yield f"routes[{index}].initcwnd", message, "decide the round again under this policy"


def _size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_routes
    if len(bundle.routes) > limit:
        message = f"{len(bundle.routes)} routes are over bundle.max_routes = {limit}"
        yield "routes", message, "find out what made it grow before raising the limit"


def _congestion_prefixes(bundle: Bundle, context: Context) -> Iterator[Finding]:
    for index, choice in enumerate(bundle.congestion):
        field, prefix = f"congestion[{index}].prefix", _prefix(choice.prefix)
        if prefix is None or prefix.prefixlen != CLIENT_PREFIX_LENGTH[prefix.version]:
            what = f"{choice.prefix!r} is not a client prefix in its shortest form"
            yield field, what, "write an IPv4 /24 or an IPv6 /56, like 192.0.2.0/24"


def _congestion_sorted(bundle: Bundle, _: Context) -> Iterator[Finding]:
    parsed = [prefix for prefix in (_prefix(choice.prefix) for choice in bundle.congestion) if prefix is not None]
    for before, after in pairwise(parsed):
        if before == after:
            yield "congestion", f"{after} is listed twice", "keep one choice for each prefix"
        elif prefix_order(before) > prefix_order(after):
            yield "congestion", f"{before} is listed before {after}", "sort by IP version, address and length"
            return


def _congestion_values(bundle: Bundle, _: Context) -> Iterator[Finding]:
    for index, choice in enumerate(bundle.congestion):
        if choice.algorithm != "bbr":
            field, what = f"congestion[{index}].algorithm", f"is {choice.algorithm!r}, not 'bbr'"
            yield field, what, "leave out prefixes that keep the default"
        if not 0 <= choice.min_object_bytes <= MAX_OBJECT_BYTES:
            field, what = (
                f"congestion[{index}].min_object_bytes",
                f"{choice.min_object_bytes} is not a valid object size",
            )
            yield field, what, "render it again with `springtide bundle`"


def _congestion_size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_congestion
    if len(bundle.congestion) > limit:
        message = f"{len(bundle.congestion)} prefixes are over bundle.max_congestion = {limit}"
        yield "congestion", message, "find out what made it grow before raising the limit"


def _times(bundle: Bundle, context: Context) -> Iterator[Finding]:
    moments: dict[str, int] = {}
    for field in ("round", "created_at", "expires_at"):
        try:
            moments[field] = instants.parse(getattr(bundle, field))
        except ValueError:
            yield field, f"{getattr(bundle, field)!r} is not an instant", "write it as 2026-01-02T03:05:00Z"
    if len(moments) < 3:
        return
    decided, created, expires = moments["round"], moments["created_at"], moments["expires_at"]
    policy = context.policy
    if decided % policy.round.interval_s:
        message = f"{bundle.round} is not a multiple of round.interval_s = {policy.round.interval_s}"
        yield "round", message, "decide with this policy"
    if created < decided:
        yield "created_at", f"{bundle.created_at} is before its round", "check the controller's clock"
    if created > context.now_unix_s + CLOCK_TOLERANCE_S:
        yield "created_at", f"{bundle.created_at} is in the future", "check the clocks"
    if expires > decided + policy.bundle.ttl_s:
        message = f"{bundle.expires_at} is more than bundle.ttl_s = {policy.bundle.ttl_s} after its round"
        yield "expires_at", message, "render it again under this policy"
    if expires <= max(created, context.now_unix_s):
        yield "expires_at", f"{bundle.expires_at} has passed", "publish a newer round"


def _policy_version(bundle: Bundle, _: Context) -> Iterator[Finding]:
    if not re.fullmatch(r"[0-9a-f]{12}", bundle.policy_version):
        yield "policy_version", f"{bundle.policy_version!r} is not 12 hex digits", "render it with `springtide bundle`"


def _digest(bundle: Bundle, _: Context) -> Iterator[Finding]:
    try:
        matches = bundle.digest == digest(fields_of(bundle))
    except UnicodeEncodeError:
        # JSON text can contain half a surrogate pair; the UTF-8 that is digested cannot.
        matches = False
    if not matches:
        yield "digest", "does not match the content", "the file was changed: take it from its source again"


RULES: Mapping[str, Callable[[Bundle, Context], Iterator[Finding]]] = {
    "for_this_edge": _for_this_edge,
    "known_edge": _known_edge,
    "prefixes": _prefixes,
    "unique": _unique,
    "sorted": _sorted,
    "bounds": _bounds,
    "size": _size,
    "times": _times,
    "congestion_prefixes": _congestion_prefixes,
    "congestion_sorted": _congestion_sorted,
    "congestion_values": _congestion_values,
    "congestion_size": _congestion_size,
    "policy_version": _policy_version,
    "digest": _digest,
}


# The bundles of all other PoPs contain the same prefixes.
@lru_cache(maxsize=100_000)
def _prefix(text: str) -> Prefix | None:
    """A prefix in its canonical form; None for anything else."""
    try:
        parsed = ip_network(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text else None
