"""fleet.yaml: the PoPs, their prefixes and their edges; tenants, which share the edges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from springtide import _core
from springtide.document import Document, fault, load, validate
from springtide.errors import InputError, Problem

Prefix = IPv4Network | IPv6Network

# Ansible's inventory plugin repeats these rules, since it cannot import this package.
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ADDRESS = re.compile(r"[0-9A-Za-z][0-9A-Za-z.:_-]{0,252}")
REGION = re.compile(r"[^\W_][\w .-]{0,62}")
# Names with a meaning of their own in Ansible, and the one under which folders of spools keep what is bad.
RESERVED = frozenset({"all", "edges", "localhost", "ungrouped", "rejected"})
# An IPv4 address is sent and stored as ::ffff:a.b.c.d: an IPv6 prefix over that range would claim it.
MAPPED_IPV4 = IPv6Network("::ffff:0:0/96")
MAX_TENANTS = 64
# Pairs of a port and an address; and those that have an address. Every socket of a round is compared with each of
# these: 256 of them doubled the time of a roll-up of 300,000 sockets, 64 did not show.
MAX_TENANT_RULES = 256
MAX_ADDRESS_RULES = 64
# Rules of tenants with `start: off`: the edges' program compares every new connection with them.
MAX_OPTED_OUT = _core.MAX_OPTED_OUT


def _name(value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        fix = "use 1 to 63 lower-case letters, digits and hyphens, not beginning with a hyphen"
        raise fault(f"{value!r} is not a name", fix)
    return value


def _edge_name(value: object) -> str:
    if isinstance(value, str) and value in RESERVED:
        raise fault(f"{value!r} is not a name for an edge: it is reserved", "rename it")
    return _name(value)


def _region(value: object) -> str:
    if not isinstance(value, str) or not REGION.fullmatch(value):
        fix = "use 1 to 63 letters, digits, spaces and . _ -, beginning with a letter or digit"
        raise fault(f"{value!r} is not a region", fix)
    return value


def _is_host(text: str) -> bool:
    """Whether a text is an IP address or may be a host's name, which has no colon and not numbers alone."""
    if ":" not in text and text.strip(".0123456789"):
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _address(value: object) -> str:
    if not isinstance(value, str) or not ADDRESS.fullmatch(value) or not _is_host(value):
        raise fault(f"{value!r} is not an address", "give the IP address or host name that ssh reaches it by, no port")
    return value


def _prefix(value: object) -> Prefix:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if not isinstance(value, str):
        raise fault(f"{value!r} is not a prefix", "write it as text, for instance '10.77.1.0/24'")
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        raise fault(f"{value!r} is not an IPv4 or IPv6 prefix", "write it as 10.77.1.0/24 or fd77:1::/48") from None
    if "%" in value:
        raise fault(f"{value!r} has a zone, which is of one host", "write the prefix without it")
    if network.prefixlen == 0:
        raise fault(f"{value} is a default route", "name the PoP's own prefixes")
    if isinstance(network, IPv6Network) and network.overlaps(MAPPED_IPV4):
        raise fault(f"{value} covers IPv4-mapped addresses ({MAPPED_IPV4})", "write the IPv4 prefix itself")
    try:
        return ip_network(value)
    except ValueError:
        raise fault(f"{value} has bits set after its length", f"write {network}") from None


def destination_problem(prefix: Prefix) -> str | None:
    """Why no bundle may name it, None where it may."""
    return _core.destination_problem(str(prefix))


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise fault(f"{value!r} is not a port", "give the server's port, 1 to 65535")
    return value


def _push(value: object) -> bool:
    if not isinstance(value, bool):
        raise fault(f"{value!r} is neither true nor false", "write push: false, or leave it out")
    return value


def _switch(value: object) -> str:
    # YAML 1.1 reads a bare on or off as true or false.
    if isinstance(value, bool):
        return "on" if value else "off"
    if value not in ("on", "off"):
        raise fault(f"{value!r} is neither on nor off", "write start: off, or leave it out")
    return str(value)


Name = Annotated[str, BeforeValidator(_name)]
EdgeName = Annotated[str, BeforeValidator(_edge_name)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Edge(_Frozen):
    """A host that serves connections; its name in the fleet is its collector's `host`."""

    address: Annotated[str, BeforeValidator(_address)]
    # False: plays that push leave it alone.
    push: Annotated[bool, BeforeValidator(_push)] = True


class Pop(_Frozen):
    region: Annotated[str, BeforeValidator(_region)] = "default"
    prefixes: Annotated[list[Annotated[Prefix, BeforeValidator(_prefix)]], Field(min_length=1)]
    edges: dict[EdgeName, Edge] = {}


@dataclass(frozen=True)
class TenantRule:
    """Connections of a tenant: with this port on the edge's side (None: any) and with the edge's own address in this
    prefix (None: any)."""

    tenant: str
    port: int | None
    prefix: Prefix | None
    opted_out: bool

    def meets(self, other: TenantRule) -> bool:
        """Whether some connection would match both."""
        if self.port is not None and other.port is not None and self.port != other.port:
            return False
        if self.prefix is None or other.prefix is None:
            return True
        return self.prefix.version == other.prefix.version and self.prefix.overlaps(other.prefix)

    def __str__(self) -> str:
        port = "any port" if self.port is None else f"port {self.port}"
        return port if self.prefix is None else f"{port} of {self.prefix}"


class Tenant(_Frozen):
    """A tenant's connections: those to one of the ports and one of the addresses, where either is given."""

    ports: Annotated[list[Annotated[int, BeforeValidator(_port)]], Field(min_length=1)] | None = None
    addresses: Annotated[list[Annotated[Prefix, BeforeValidator(_prefix)]], Field(min_length=1)] | None = None
    # Off: the tenant's connections keep the kernel's default start.
    start: Annotated[Literal["on", "off"], BeforeValidator(_switch)] = "on"

    def rules(self, name: str) -> Iterator[TenantRule]:
        ports: Sequence[int | None] = self.ports or (None,)
        addresses: Sequence[Prefix | None] = self.addresses or (None,)
        for port, prefix in product(ports, addresses):
            yield TenantRule(name, port, prefix, self.start == "off")


def _version(value: object) -> object:
    # Python's True equals 1.
    if isinstance(value, bool):
        raise fault(f"{str(value).lower()} is not a version", "write version: 1")
    return value


class Fleet(_Frozen):
    version: Annotated[Literal[1], BeforeValidator(_version)]
    pops: Annotated[dict[Name, Pop], Field(min_length=1)]
    tenants: dict[Name, Tenant] = {}

    def prefixes(self) -> Iterator[tuple[Prefix, str]]:
        """Every prefix with its PoP, in the order of network addresses, IPv4 first."""
        pairs = [(prefix, name) for name, pop in self.pops.items() for prefix in pop.prefixes]
        yield from sorted(pairs, key=lambda pair: prefix_order(pair[0]))

    def edges(self) -> Mapping[str, str]:
        """Each edge's PoP."""
        return {edge: name for name, pop in self.pops.items() for edge in pop.edges}

    def left_alone(self) -> list[str]:
        """Edges that nothing is pushed to, sorted."""
        return sorted(edge for pop in self.pops.values() for edge, host in pop.edges.items() if not host.push)

    def tenant_rules(self) -> list[TenantRule]:
        """The rules of every tenant; no connection matches those of two."""
        return [rule for name, tenant in sorted(self.tenants.items()) for rule in tenant.rules(name)]


def prefix_order(prefix: Prefix) -> tuple[int, int, int]:
    """Sorting key: IP version, network address, length."""
    return prefix.version, int(prefix.network_address), prefix.prefixlen


# The bundles of all other PoPs contain the same prefixes.
@lru_cache(maxsize=100_000)
def parse_prefix(text: str) -> Prefix | None:
    """A prefix in its canonical form; None for anything else, a zone included."""
    try:
        parsed = ip_network(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text and "%" not in text else None


def load_fleet(path: Path) -> Fleet:
    """Raises InputError with every problem of the file."""
    document = load(path)
    fleet = validate(document, Fleet)
    problems = [*_overlaps(document, fleet), *_shared_edges(document, fleet), *_tenants(document, fleet)]
    if problems:
        raise InputError(problems)
    return fleet


def _overlaps(document: Document, fleet: Fleet) -> Iterator[Problem]:
    """Prefixes nest or are disjoint: in address order, the one that encloses a prefix is the last one open."""
    entries = [
        (prefix, name, ("pops", name, "prefixes", index))
        for name, pop in fleet.pops.items()
        for index, prefix in enumerate(pop.prefixes)
    ]
    open_entries: list[tuple[Prefix, str, tuple[str | int, ...]]] = []
    for prefix, name, keys in sorted(entries, key=lambda entry: prefix_order(entry[0])):
        while open_entries and not _covers(open_entries[-1][0], prefix):
            open_entries.pop()
        if open_entries:
            wider, owner, wider_keys = open_entries[-1]
            owned = f"of pop {owner} (line {document.line(wider_keys)})"
            yield document.problem(
                keys, f"{prefix} overlaps {wider} {owned}", "give each address to one prefix of one PoP"
            )
        open_entries.append((prefix, name, keys))


def _covers(wider: Prefix, narrower: Prefix) -> bool:
    return wider.version == narrower.version and wider.overlaps(narrower)


def _shared_edges(document: Document, fleet: Fleet) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, pop in fleet.pops.items():
        for edge in pop.edges:
            keys = ("pops", name, "edges", edge)
            if edge in seen:
                line = document.line(("pops", seen[edge], "edges", edge))
                yield document.problem(keys, f"is also an edge of pop {seen[edge]} (line {line})", "rename one of them")
            seen[edge] = name


def _tenants(document: Document, fleet: Fleet) -> Iterator[Problem]:
    if len(fleet.tenants) > MAX_TENANTS:
        yield document.problem(("tenants",), f"has {len(fleet.tenants)}", f"name at most {MAX_TENANTS}")
        return
    for name, tenant in fleet.tenants.items():
        keys = ("tenants", name)
        if tenant.ports is None and tenant.addresses is None:
            yield document.problem(keys, "has neither ports nor addresses", "give one of them, or both")
        for field, listed in (("ports", tenant.ports), ("addresses", tenant.addresses)):
            if listed is not None and len(set(listed)) < len(listed):
                yield document.problem((*keys, field), "lists something twice", "list each once")
    rules = fleet.tenant_rules()
    opted_out = [rule for rule in rules if rule.opted_out]
    for what, found, most in (
        ("", rules, MAX_TENANT_RULES),
        (" that are not ports alone", [rule for rule in rules if rule.prefix is not None], MAX_ADDRESS_RULES),
        (" with start: off", opted_out, MAX_OPTED_OUT),
    ):
        if len(found) > most:
            text = f"have {len(found)} pairs of a port and an address{what}, where there is room for {most}"
            yield document.problem(("tenants",), text, "name wider prefixes, or fewer ports")
            return
    reported: set[tuple[str, str]] = set()
    for at, rule in enumerate(rules):
        for other in rules[:at]:
            pair = (rule.tenant, other.tenant)
            if rule.tenant != other.tenant and pair not in reported and rule.meets(other):
                reported.add(pair)
                line = document.line(("tenants", other.tenant))
                what = f"{rule} is also {other} of tenant {other.tenant} (line {line})"
                yield document.problem(("tenants", rule.tenant), what, "give each connection to one tenant")
