"""Whether a bundle may be published: a shape, then named rules, each a pure function of the bundle and its context."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from springtide import instants
from springtide.bundles.enforce import own_sides
from springtide.bundles.model import Bundle, Document, digest, fields_of, parse
from springtide.errors import InputError, Problem
from springtide.fleet import MAPPED_IPV4, MAX_OPTED_OUT, Fleet, destination_problem, parse_prefix, prefix_order
from springtide.laws.entry import MAX_DEFAULT_RESENT, MAX_RATE, MIN_RATE, Entry, Trial
from springtide.laws.initcwnd.loss_guard import KERNEL_DEFAULT
from springtide.policy import CLIENT_PREFIX_LENGTH, MAX_OBJECT_BYTES, Policy

# As edges bound them (core/src/check.rs).
MAX_ENTRIES = 100_000
MAX_WINDOW = 1000

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
    for index, entry in enumerate(bundle.entries):
        for message, fix in destination_findings(entry, bundle.pop, bundle.by, context):
            yield f"entries[{index}].prefix", message, fix


def destination_findings(entry: Entry, pop: str, by: str, context: Context) -> Iterator[tuple[str, str]]:
    """Why edges of this PoP may not be given the prefix: what is wrong, and what to do."""
    policy, prefix, owner = context.policy.bundle, parse_prefix(entry.prefix), context.owners.get(entry.prefix)
    if prefix is None:
        yield f"{entry.prefix!r} is not a prefix in its shortest form", "write it as 10.77.2.0/24 or fd77:2::/48"
        return
    shortest = policy.min_prefix_length_ipv4 if prefix.version == 4 else policy.min_prefix_length_ipv6
    # A window by a route is decided for pairs of PoPs only; edges that pace start towards client prefixes as well.
    needs_pop = by != "bpf" and entry.initcwnd is not None
    if prefix.prefixlen == 0:
        yield f"{prefix} is a default route", "name a PoP's prefixes"
    elif (problem := destination_problem(prefix)) is not None:
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
    elif owner == pop and not entry.model_fields_set <= {"prefix", "congestion"}:
        yield f"{prefix} belongs to the edge's own PoP {owner}", "drop the route"


def _unique(bundle: Bundle, _: Context) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, entry in enumerate(bundle.entries):
        if entry.prefix in seen:
            message = f"{entry.prefix} is also entries[{seen[entry.prefix]}]"
            yield f"entries[{index}].prefix", message, "keep one of the entries for each prefix"
        seen.setdefault(entry.prefix, index)


def _sorted(bundle: Bundle, _: Context) -> Iterator[Finding]:
    yield from _order("entries", [entry.prefix for entry in bundle.entries])


def _order(name: str, prefixes: Iterable[str]) -> Iterator[Finding]:
    parsed = [prefix for prefix in map(parse_prefix, prefixes) if prefix is not None]
    for before, after in pairwise(parsed):
        if prefix_order(before) > prefix_order(after):
            yield name, f"{before} is listed before {after}", "sort by IP version, address and length"
            return


def _bounds(bundle: Bundle, context: Context) -> Iterator[Finding]:
    paced = bundle.by == "bpf"
    low = KERNEL_DEFAULT if paced else context.policy.initcwnd.cmin
    high, named = context.policy.initcwnd.cmax, "initcwnd.cmin = {low} to initcwnd.cmax"
    if paced:
        high, named = context.policy.start.cmax, "the kernel's {low} to start.cmax"
    for index, entry in enumerate(bundle.entries):
        windows = [("initcwnd", entry.initcwnd)]
        if entry.trial is not None:
            windows.append(("trial.initcwnd", entry.trial.initcwnd))
        for field, window in windows:
            if window is not None and not low <= window <= high:
                message = f"{window} is outside {named.format(low=low)} = {high}"
                yield f"entries[{index}].{field}", message, "decide the round again under this policy"


def _size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_routes
    if len(bundle.windows) > limit:
        message = f"{len(bundle.windows)} with a window are over bundle.max_routes = {limit}"
        yield "entries", message, "find out what made it grow before raising the limit"
    if len(bundle.entries) > MAX_ENTRIES:
        message = f"{len(bundle.entries)} are more than the {MAX_ENTRIES} that an edge takes"
        yield "entries", message, "lower bundle.max_routes or bundle.max_congestion"


def _entry_values(bundle: Bundle, context: Context) -> Iterator[Finding]:
    most_on_trial = context.policy.enforce.max_trial_permille
    for index, entry in enumerate(bundle.entries):
        field = f"entries[{index}]"
        if entry.model_fields_set <= {"prefix"}:
            yield field, f"{entry.prefix} has no value", "leave it out"
        yield from _rates(field, entry)
        yield from _whole(f"{field}.receive_window", entry.receive_window, 1, MAX_WINDOW)
        yield from _whole(f"{field}.default_resent", entry.default_resent, 1, MAX_DEFAULT_RESENT)
        if entry.trial is not None:
            yield from _whole(f"{field}.trial.permille", entry.trial.permille, 1, 1000)
            yield from _rates(f"{field}.trial", entry.trial)
            if most_on_trial < entry.trial.permille <= 1000:
                message = f"{entry.trial.permille} is over enforce.max_trial_permille = {most_on_trial}"
                yield f"{field}.trial.permille", message, "decide the round again under this policy"


def _rates(field: str, values: Entry | Trial) -> Iterator[Finding]:
    yield from _whole(f"{field}.start_rate", values.start_rate, MIN_RATE, MAX_RATE)
    yield from _whole(f"{field}.connection_rate", values.connection_rate, MIN_RATE, MAX_RATE)
    if values.start_rate is None and values.connection_rate is not None:
        yield f"{field}.connection_rate", "is there without start_rate, of which it is a part", "leave it out"


def _enforce(bundle: Bundle, context: Context) -> Iterator[Finding]:
    enforce, policy = bundle.enforce, context.policy
    yield from _whole("enforce.lift_bytes", enforce.lift_bytes, 1, MAX_OBJECT_BYTES)
    yield from _whole("enforce.lift_round_trips", enforce.lift_round_trips, 1, 1000)
    yield from _whole("enforce.record_permille", enforce.record_permille, 0, 1000)
    if enforce.brake is not None:
        yield from _whole("enforce.brake.lost_permille", enforce.brake.lost_permille, 1, 1000)
        yield from _whole("enforce.brake.connections", enforce.brake.connections, 1, 1_000_000)
        yield from _whole("enforce.brake.half_life_s", enforce.brake.half_life_s, 1, 86_400)
    if len(enforce.excluded) > MAX_ENTRIES:
        yield "enforce.excluded", f"is more than {MAX_ENTRIES} prefixes", "exclude wider prefixes"
    for index, text in enumerate(enforce.excluded):
        prefix = parse_prefix(text)
        if prefix is None or prefix.network_address in MAPPED_IPV4:
            what = f"{text!r} is not a prefix in its shortest form"
            yield f"enforce.excluded[{index}]", what, "write it as 10.0.0.0/8 or fd00::/8"
    if len(set(enforce.excluded)) < len(enforce.excluded):
        yield "enforce.excluded", "lists a prefix twice", "list each once"
    yield from _order("enforce.excluded", enforce.excluded)
    try:
        moment = instants.parse(bundle.round)
    except ValueError:
        return  # rule times
    if enforce.by == "bpf" and policy.enforce_of(bundle.edge, bundle.pop, moment).by != "bpf":
        what = f"is 'bpf', but the policy has {bundle.edge} enforce by routes"
        yield "enforce.by", what, "publish a newer round, or change enforce or enforce_overrides in policy.yaml"


def _opted_out(bundle: Bundle, context: Context) -> Iterator[Finding]:
    """As edges check it; and what fleet.yaml has opted out by now is not started by an older round either."""
    found = bundle.enforce.opted_out
    again = "render it again with `springtide bundle`"
    field = "enforce.opted_out"
    if len(found) > MAX_OPTED_OUT:
        yield field, f"is more than {MAX_OPTED_OUT}", "name wider prefixes, or fewer ports, in fleet.yaml"
    orders = []
    for index, side in enumerate(found):
        prefix = None if side.prefix is None else parse_prefix(side.prefix)
        if side.port is None and side.prefix is None:
            yield f"{field}[{index}]", "has neither a port nor a prefix", again
        yield from _whole(f"{field}[{index}].port", side.port, 1, 65_535)
        if side.prefix is not None and (prefix is None or prefix.network_address in MAPPED_IPV4):
            yield f"{field}[{index}].prefix", f"{side.prefix!r} is not a prefix in its shortest form", again
        orders.append((side.port or 0, (0, 0, 0) if prefix is None else prefix_order(prefix)))
    if any(later <= earlier for earlier, later in pairwise(orders)):
        yield field, "is not sorted by port and prefix, or lists something twice", again
    wanted = own_sides(context.fleet.tenant_rules())
    fix = "set enforce.by: bpf and enforce.otherwise: default in policy.yaml, or take start: off out of fleet.yaml"
    if not (found or wanted) or bundle.empty:
        return
    if bundle.by != "bpf" or bundle.enforce.otherwise != "default":
        yield field, "cannot be kept by routes, which know destinations only", fix
    elif any(side not in found for side in wanted):
        yield field, "lacks a tenant that fleet.yaml has with start: off", "publish a newer round"


def _whole(field: str, value: int | None, least: int, most: int) -> Iterator[Finding]:
    if value is not None and not least <= value <= most:
        yield field, f"{value} is outside {least} to {most}", "render it again with `springtide bundle`"


def _congestion_values(bundle: Bundle, _: Context) -> Iterator[Finding]:
    for index, entry in enumerate(bundle.entries):
        if (one := entry.congestion) is None:
            continue
        field = f"entries[{index}].congestion"
        if one.algorithm != "bbr":
            yield f"{field}.algorithm", f"is {one.algorithm!r}, not 'bbr'", "leave out prefixes that keep the default"
        if not 0 <= one.from_bytes <= MAX_OBJECT_BYTES:
            what = f"{one.from_bytes} is not a valid object size"
            yield f"{field}.from_bytes", what, "render it again with `springtide bundle`"


def _congestion_size(bundle: Bundle, context: Context) -> Iterator[Finding]:
    limit = context.policy.bundle.max_congestion
    if len(bundle.congestion) > limit:
        message = f"{len(bundle.congestion)} with a congestion control are over bundle.max_congestion = {limit}"
        yield "entries", message, "find out what made it grow before raising the limit"


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
    if created > context.now_unix_s + instants.EDGE_TOLERANCE_S:
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
    "congestion_values": _congestion_values,
    "congestion_size": _congestion_size,
    "entry_values": _entry_values,
    "enforce": _enforce,
    "opted_out": _opted_out,
    "policy_version": _policy_version,
    "digest": _digest,
}
