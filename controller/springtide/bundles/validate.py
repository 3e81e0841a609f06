"""Whether a bundle may be published: a shape, then named rules, each a pure function of the bundle and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from springtide import instants
from springtide._core import KERNEL_DEFAULT, bundle_problems
from springtide.bundles.model import Bundle, Document, parse
from springtide.errors import InputError, Problem
from springtide.fleet import Fleet, TenantRule, destination_problem, parse_prefix, prefix_order
from springtide.laws.entry import Part
from springtide.policy import CLIENT_PREFIX_LENGTH, Policy

# Field, what is wrong, and what to do.
Finding = tuple[str, str, str]
GREW = "find out what made it grow before raising the limit"


@dataclass(frozen=True)
class Context:
    """Facts that a bundle is checked against; `edge` is the edge that it must be for, where that is known."""

    fleet: Fleet
    policy: Policy
    now_unix_s: int
    edge: str | None = None

    @cached_property
    def edges(self) -> Mapping[str, str]:
        """Edge -> PoP."""
        return self.fleet.edges()

    @cached_property
    def opted_out(self) -> list[Part]:
        """Sides of tenants that keep the kernel's default start, as bundles have them."""

        def order(rule: TenantRule) -> tuple[int, tuple[int, int, int]]:
            return rule.port or 0, (0, 0, 0) if rule.prefix is None else prefix_order(rule.prefix)

        rules = sorted((rule for rule in self.fleet.tenant_rules() if rule.opted_out), key=order)
        return [Part(port=rule.port, prefix=None if rule.prefix is None else str(rule.prefix)) for rule in rules]

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Prefix -> PoP."""
        return {str(prefix): pop for prefix, pop in self.fleet.prefixes()}


def problems(where: str, document: Document, context: Context) -> list[Problem]:
    """Why a bundle may not be published; empty when it may. What every edge would refuse, then what fleet and
    policy do not allow."""
    if found := _size_problems(where, document.content, context):
        return found
    found = [Problem(where, field, what, fix) for field, what, fix in bundle_problems(document.content)]
    return found + [
        Problem(where, field, f"{message} (rule {name})", fix)
        for name, rule in RULES.items()
        for field, message, fix in rule(document.bundle, context)
    ]


def parsed_problems(where: str, content: bytes, context: Context) -> tuple[Document | None, list[Problem]]:
    """Bytes from elsewhere as a document, and its problems; no document where the shape is wrong."""
    if found := _size_problems(where, content, context):
        return None, found
    try:
        document = parse(where, content)
    except InputError as error:
        return None, [problem for problem in error.problems if isinstance(problem, Problem)]
    return document, problems(where, document, context)


def _size_problems(where: str, content: bytes, context: Context) -> list[Problem]:
    limit = context.policy.bundle.max_bytes
    if len(content) <= limit:
        return []
    message = f"is larger than bundle.max_bytes = {limit}"
    return [Problem(where, "file", message, GREW)]


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
    for index, entry in enumerate(bundle.entries):
        for message, fix in destination_findings(entry, bundle.pop, bundle.by, context):
            yield f"entries[{index}].prefix", message, fix


def destination_findings(entry: Part, pop: str, by: str, context: Context) -> Iterator[tuple[str, str]]:
    """Why edges of this PoP may not be given the prefix: what is wrong, and what to do."""
    policy, prefix, owner = context.policy.bundle, parse_prefix(entry.prefix), context.owners.get(entry.prefix)
    if prefix is None:
        yield f"{entry.prefix!r} is not a prefix in its shortest form", "write it as 10.77.2.0/24 or fd77:2::/48"
        return
    shortest = policy.min_prefix_length_ipv4 if prefix.version == 4 else policy.min_prefix_length_ipv6
    # A window by a route is decided for pairs of PoPs only; edges that pace start towards client prefixes as well.
    needs_pop = by != "bpf" and entry.initcwnd is not None
    if (problem := destination_problem(prefix)) is not None:
        yield f"{prefix} {problem}", "drop it: edges refuse the whole bundle"
    # A client prefix is as long as it is.
    elif prefix.prefixlen < shortest and (owner is not None or needs_pop):
        key = f"bundle.min_prefix_length_ipv{prefix.version}"
        yield f"{prefix} is wider than {key} = {shortest}", "split it in fleet.yaml"
    if owner is None and needs_pop:
        yield f"{prefix} is not a prefix of the fleet", "add it to fleet.yaml, or drop the route"
    elif owner is None and prefix.prefixlen != CLIENT_PREFIX_LENGTH[prefix.version]:
        what = f"{prefix} is neither a prefix of the fleet nor an IPv4 /24 or an IPv6 /56"
        yield what, "add it to fleet.yaml, or drop the entry"
    # Clients in the PoP's own networks may have a congestion control, and nothing else.
    elif owner == pop and not vars(entry).keys() <= {"prefix", "congestion"}:
        yield f"{prefix} belongs to the edge's own PoP {owner}", "drop the route"


def _bounds(bundle: Bundle, context: Context) -> Iterator[Finding]:
    paced = bundle.by == "bpf"
    low = KERNEL_DEFAULT if paced else context.policy.initcwnd.cmin
    high, named = context.policy.initcwnd.cmax, "initcwnd.cmin = {low} to initcwnd.cmax"
    if paced:
        high, named = context.policy.start.cmax, "the kernel's {low} to start.cmax"
    for index, entry in enumerate(bundle.entries):
        for field, part in (("initcwnd", entry), ("trial.initcwnd", entry.trial)):
            window = None if part is None else part.initcwnd
            if window is not None and not low <= window <= high:
                message = f"{window} is outside {named.format(low=low)} = {high}"
                yield f"entries[{index}].{field}", message, "decide the round again under this policy"


def _size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_routes
    if len(bundle.windows) > limit:
        message = f"{len(bundle.windows)} with a window are over bundle.max_routes = {limit}"
        yield "entries", message, GREW


def _trials(bundle: Bundle, context: Context) -> Iterator[Finding]:
    most = context.policy.enforce.max_trial_permille
    for index, entry in enumerate(bundle.entries):
        if entry.trial is not None and entry.trial.permille > most:
            message = f"{entry.trial.permille} is over enforce.max_trial_permille = {most}"
            yield f"entries[{index}].trial.permille", message, "decide the round again under this policy"


def _way(bundle: Bundle, context: Context) -> Iterator[Finding]:
    moment = instants.parse(bundle.round)
    if bundle.by == "bpf" and context.policy.enforce_of(bundle.edge, bundle.pop, moment).by != "bpf":
        what = f"is 'bpf', but the policy has {bundle.edge} enforce by routes"
        yield "enforce.by", what, "publish a newer round, or change enforce or enforce_overrides in policy.yaml"


def _opted_out(bundle: Bundle, context: Context) -> Iterator[Finding]:
    """Tenants that fleet.yaml has opted out by now, and that an older round would start."""
    found, wanted = bundle.enforce.opted_out, context.opted_out
    if not wanted or bundle.empty:
        return
    field = "enforce.opted_out"
    if bundle.by != "bpf":
        fix = "set enforce.by: bpf and enforce.otherwise: default in policy.yaml, or take start: off out of fleet.yaml"
        yield field, "cannot be kept by routes, which know destinations only", fix
    elif any(side not in found for side in wanted):
        yield field, "lacks a tenant that fleet.yaml has with start: off", "publish a newer round"


def _congestion_values(bundle: Bundle, _: Context) -> Iterator[Finding]:
    for index, entry in enumerate(bundle.entries):
        if (one := entry.congestion) is not None and one.algorithm != "bbr":
            field = f"entries[{index}].congestion.algorithm"
            yield field, f"is {one.algorithm!r}, not 'bbr'", "leave out prefixes that keep the default"


def _congestion_size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_congestion
    if len(bundle.congestion) > limit:
        message = f"{len(bundle.congestion)} with a congestion control are over bundle.max_congestion = {limit}"
        yield "entries", message, GREW


def _times(bundle: Bundle, context: Context) -> Iterator[Finding]:
    decided, created, expires = map(instants.parse, (bundle.round, bundle.created_at, bundle.expires_at))
    policy = context.policy
    if decided % policy.round.interval_s:
        message = f"{bundle.round} is not a multiple of round.interval_s = {policy.round.interval_s}"
        yield "round", message, "decide with this policy"
    if created < decided:
        yield "created_at", f"{bundle.created_at} is before its round", "check the controller's clock"
    if created > context.now_unix_s + instants.EDGE_TOLERANCE_S:
        yield "created_at", f"{bundle.created_at} is in the future", "check the clocks"
    if expires > decided + policy.bundle.ttl_s:
        message = f"{bundle.expires_at} is more than bundle.ttl_s = {policy.bundle.ttl_s} after its round"
        yield "expires_at", message, "render it again under this policy"
    if created < expires <= context.now_unix_s:
        yield "expires_at", f"{bundle.expires_at} has passed", "publish a newer round"


RULES: Mapping[str, Callable[[Bundle, Context], Iterator[Finding]]] = {
    "for_this_edge": _for_this_edge,
    "known_edge": _known_edge,
    "prefixes": _prefixes,
    "bounds": _bounds,
    "size": _size,
    "times": _times,
    "congestion_values": _congestion_values,
    "congestion_size": _congestion_size,
    "trials": _trials,
    "way": _way,
    "opted_out": _opted_out,
}
