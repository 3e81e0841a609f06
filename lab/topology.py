"""The topology file: PoPs, edges, the paths between them, who asks whom for data, and the kernel's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import combinations, permutations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from springtide.document import Document, Keys, dotted, load
from springtide.errors import InputError as UnreadableError

from lab.errors import InputError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Kind = Literal["mixed", "bulk", "chunks", "small"]
By = Literal["routes", "bpf"]
Pair = tuple[str, str]

# Names become parts of namespace names, file names and fleet.yaml.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# The emulator itself lives in a namespace of this name.
HUB = "wan"

# Receivers: the window that a fresh connection announces is half of tcp_rmem[1], so twice the largest initial window
# (100 segments of 1448 bytes) is the least; the rest is room for jitter in the reader. Senders: tcp_wmem[1] lets nginx
# hand over most objects at once, so that the congestion window and not the send buffer decides.
# tcp_slow_start_after_idle=0: connections pause between requests, and the window that they earned is what the lab
# wants to observe; tcp_no_metrics_save=1: no connection inherits from an earlier one but through a route.
SYSCTLS = {
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_rmem": "4096 1048576 16777216",
    "net.ipv4.tcp_wmem": "4096 262144 16777216",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv6.conf.default.accept_dad": "0",
    "net.ipv6.conf.default.accept_ra": "0",
    # Without link-local addresses the devices carry no neighbour discovery.
    "net.ipv6.conf.default.addr_gen_mode": "1",
}


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("topology", "{message}", {"message": message})


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _fault(f"{value!r} is not a name; use 1 to 63 lower-case letters, digits and hyphens")
    return value


def _prefix(value: object) -> Network:
    try:
        if isinstance(value, str):
            return ip_network(value)
    except ValueError as error:
        raise _fault(f"{error}; write a prefix as 10.77.1.0/24 or fd77:1::/48") from None
    raise _fault(f"{value!r} is not text; write a prefix as 10.77.1.0/24 or 'fd77:1::/48'")


def _address(value: object) -> Address:
    try:
        if isinstance(value, str):
            return ip_address(value)
    except ValueError as error:
        raise _fault(f"{error}; write an address as 10.77.1.1 or fd77:1::1") from None
    raise _fault(f"{value!r} is not text; write an address as 10.77.1.1 or 'fd77:1::1'")


Name = Annotated[str, BeforeValidator(_name)]
Prefix = Annotated[Network, BeforeValidator(_prefix)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0.001, le=100_000)]
QueueBytes = Annotated[int, Field(ge=1500, le=1 << 30)]
QueuePackets = Annotated[int, Field(ge=1, le=1_000_000)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Edge(_Frozen):
    """`enforce` None: as its PoP."""

    enforce: By | None = None
    addresses: Annotated[list[Annotated[Address, BeforeValidator(_address)]], Field(min_length=1)]


class Pop(_Frozen):
    """`enforce` None: as the lab."""

    enforce: By | None = None
    region: str = "default"
    prefixes: Annotated[list[Prefix], Field(min_length=1)]
    edges: Annotated[dict[Name, Edge], Field(min_length=1)]


class GilbertElliott(_Frozen):
    """Loss in bursts: the probabilities to enter and to leave the bad state at each packet, and of loss in both."""

    enter_bad: Share
    leave_bad: Share
    loss_good: Share = 0.0
    loss_bad: Share = 1.0


class Policer(_Frozen):
    """A token bucket without a queue: what exceeds `burst_bytes` and the rate is dropped."""

    rate_mbit: Rate
    burst_bytes: QueueBytes


class Shape(_Frozen):
    """Effects of a directed path beside its delay. `loss` is a probability or a burst model; no rate means no queue.

    The queue holds `queue_packets` where that is given, else `queue_bytes`; the packet on the link is one of them.
    """

    jitter_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    loss: Share | GilbertElliott = 0.0
    rate_mbit: Rate | None = None
    # Packets leave at random, at the rate in the mean: a cellular link.
    poisson: bool = False
    policer: Policer | None = None
    queue_bytes: QueueBytes = 1_000_000
    queue_packets: QueuePackets | None = None
    duplicate: Share = 0.0

    def least_rate_mbit(self) -> float | None:
        """The rate that the path carries for long: the lesser of the link's and the policer's; None without either."""
        rates = [self.rate_mbit, self.policer.rate_mbit if self.policer else None]
        return min((rate for rate in rates if rate is not None), default=None)


class Override(_Frozen):
    """A directed path that differs from `defaults`; what is not named stays."""

    src: Name
    dst: Name
    delay_ms: Annotated[float, Field(ge=0, le=60_000)] | None = None
    jitter_ms: Annotated[float, Field(ge=0, le=60_000)] | None = None
    loss: Share | GilbertElliott | None = None
    rate_mbit: Rate | None = None
    poisson: bool | None = None
    policer: Policer | None = None
    queue_bytes: QueueBytes | None = None
    queue_packets: QueuePackets | None = None
    duplicate: Share | None = None


class OrderedPair(_Frozen):
    src: Name
    dst: Name


class Traffic(_Frozen):
    """Every edge keeps `connections` to every edge of the PoPs that serve, and asks each of them for objects.

    `kind` says of which sizes and when (`lab.sizes.KINDS`), `requests_per_s` how often. `servers` are the PoPs that
    serve, all unless they are named; `silent` the ordered pairs (`src` serves, `dst` asks) without any traffic.
    """

    kind: Kind = "mixed"
    connections: Annotated[int, Field(ge=1, le=1000)] = 2
    requests_per_s: Annotated[float, Field(gt=0, le=1000)] = 1.0
    servers: Annotated[list[Name], Field(min_length=1)] | None = None
    silent: list[OrderedPair] = []


class Topology(_Frozen):
    """A checked topology; `load_topology` reads one."""

    name: Annotated[str, BeforeValidator(_name), Field(max_length=31)]
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 1
    # Edges enforce bundles by routes, or by an eBPF program on the edge's own cgroup.
    enforce: By = "routes"
    pops: Annotated[dict[Name, Pop], Field(min_length=1)]
    rtt_ms: dict[Name, dict[Name, Annotated[float, Field(ge=0, le=60_000)]]] = {}
    # For the pairs that rtt_ms does not name; without it, rtt_ms has to name all.
    default_rtt_ms: Annotated[float, Field(ge=0, le=60_000)] | None = None
    intra_rtt_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.2
    defaults: Shape = Shape()
    paths: list[Override] = []
    traffic: Traffic = Traffic()
    sysctls: dict[str, str | int | None] = {}

    def edges(self) -> dict[str, str]:
        """Each edge's PoP."""
        return {edge: name for name, pop in self.pops.items() for edge in pop.edges}

    def edge(self, name: str) -> Edge:
        """Raises InputError for a name that no edge has."""
        for pop in self.pops.values():
            if name in pop.edges:
                return pop.edges[name]
        raise InputError(f"{name}: no edge of lab {self.name} has this name; it has {', '.join(self.edges())}")

    def enforced_by(self, edge: str) -> By:
        """The way in which an edge enforces its bundles: its own setting, or its PoP's, or the lab's."""
        pop = self.pops[self.edges()[edge]]
        return pop.edges[edge].enforce or pop.enforce or self.enforce

    def address(self, edge: str) -> Address:
        """The edge's first address: where its nginx is asked."""
        return self.edge(edge).addresses[0]

    def pairs(self) -> list[Pair]:
        """Every ordered pair of different PoPs."""
        return list(permutations(self.pops, 2))

    def busy_pairs(self) -> list[Pair]:
        """The ordered pairs that carry load."""
        silent = {(pair.src, pair.dst) for pair in self.traffic.silent}
        servers = self.traffic.servers or list(self.pops)
        return [pair for pair in self.pairs() if pair[0] in servers and pair not in silent]

    def rtt(self, src: str, dst: str) -> float:
        """The nominal round trip in ms: both directed delays, without jitter and queues."""
        return self.delay_ms(src, dst) + self.delay_ms(dst, src)

    def delay_ms(self, src: str, dst: str) -> float:
        """One way: half of the RTT, unless the path has a delay of its own."""
        if src == dst:
            return self.intra_rtt_ms / 2
        override = self._override(src, dst)
        if override is not None and override.delay_ms is not None:
            return override.delay_ms
        for row, column in ((src, dst), (dst, src)):
            if column in self.rtt_ms.get(row, {}):
                return self.rtt_ms[row][column] / 2
        if self.default_rtt_ms is None:
            raise InputError(f"topology {self.name} has no RTT between {src} and {dst}")
        return self.default_rtt_ms / 2

    def shape(self, src: str, dst: str) -> Shape:
        """The directed path's jitter, loss, rate, queue and duplication."""
        override = self._override(src, dst)
        if override is None:
            return self.defaults
        named = override.model_dump(exclude={"src", "dst", "delay_ms"}, exclude_none=True)
        if "queue_bytes" in named:
            named.setdefault("queue_packets", None)
        return Shape.model_validate(self.defaults.model_dump() | named)

    def sysctl_values(self) -> dict[str, str]:
        """Values set inside each namespace: the lab's own, then the file's; null leaves the kernel's."""
        return {name: str(value) for name, value in (SYSCTLS | self.sysctls).items() if value is not None}

    def _override(self, src: str, dst: str) -> Override | None:
        return next((path for path in self.paths if (path.src, path.dst) == (src, dst)), None)


def load_topology(path: Path) -> Topology:
    """Raises InputError with one line for every fault of the file."""
    try:
        document = load(path)
    except UnreadableError as error:
        raise InputError(str(error)) from error
    try:
        topology = Topology.model_validate(document.data)
    except ValidationError as error:
        lines = [_explain(document, dict(item)) for item in error.errors()]
        raise InputError("\n".join(dict.fromkeys(lines))) from error
    faults = [_fault_at(document, keys, message) for keys, message in _cross_check(topology)]
    if faults:
        raise InputError("\n".join(faults))
    return topology


# A union reports its alternatives, a mapping its keys, as further steps of the location.
_STEPS = {"[key]", "float", "int", "str", "GilbertElliott", "constrained-float", "constrained-int"}


def _explain(document: Document, item: dict[str, Any]) -> str:
    keys: Keys = tuple(step for step in item["loc"] if step not in _STEPS and not str(step).startswith("function-"))
    message = str(item["msg"])
    if item["type"] == "extra_forbidden":
        message = "is not a key here; lab/topologies/demo.yaml shows those that are"
    elif item["type"] == "missing":
        message = "is missing; add it"
    return _fault_at(document, keys, message)


def _fault_at(document: Document, keys: Keys, message: str) -> str:
    return f"{document.path}:{document.line(keys)}: {dotted(keys)}: {message}"


def _cross_check(topology: Topology) -> Iterator[tuple[Keys, str]]:
    yield from _check_edges(topology)
    yield from _check_prefixes(topology)
    yield from _check_rtts(topology)
    named = [(("paths", index), path.src, path.dst) for index, path in enumerate(topology.paths)]
    silent = [(("traffic", "silent", index), pair.src, pair.dst) for index, pair in enumerate(topology.traffic.silent)]
    for listing in (named, silent):
        first: dict[Pair, Keys] = {}
        for keys, src, dst in listing:
            for field, pop in (("src", src), ("dst", dst)):
                if pop not in topology.pops:
                    yield (*keys, field), f"there is no PoP {pop!r}; name one of {', '.join(topology.pops)}"
            if src == dst:
                yield (*keys, "dst"), "is the PoP itself; name two different PoPs"
            if (src, dst) in first:
                yield keys, f"{src} to {dst} is given twice; keep one"
            first[src, dst] = keys
    for index, pop in enumerate(topology.traffic.servers or ()):
        if pop not in topology.pops:
            yield ("traffic", "servers", index), f"there is no PoP {pop!r}; name one of {', '.join(topology.pops)}"
    shapes: dict[Keys, Shape | Override] = {("defaults",): topology.defaults}
    shapes |= {("paths", index): path for index, path in enumerate(topology.paths)}
    for place, shape in shapes.items():
        if shape.poisson and shape.rate_mbit is None and topology.defaults.rate_mbit is None:
            yield (*place, "poisson"), "needs a rate_mbit; add it"
        if {"queue_bytes", "queue_packets"} <= shape.model_fields_set:
            yield (*place, "queue_packets"), "is given beside queue_bytes; keep one"


def _check_edges(topology: Topology) -> Iterator[tuple[Keys, str]]:
    owners: dict[str, str] = {}
    addresses: dict[Address, str] = {}
    families: set[int] = set()
    for name, pop in topology.pops.items():
        for edge, about in pop.edges.items():
            keys: Keys = ("pops", name, "edges", edge)
            if edge == HUB:
                yield keys, f"the name {HUB} is the emulator's own; choose another"
            if edge in owners:
                yield keys, f"PoP {owners[edge]} has an edge of this name; choose another"
            owners[edge] = name
            for index, address in enumerate(about.addresses):
                place = (*keys, "addresses", index)
                homes = [prefix for prefix in pop.prefixes if address in prefix]
                if not homes:
                    yield place, f"{address} is in none of the PoP's prefixes; choose one inside"
                elif address in (gateway(homes[0]), homes[0].network_address):
                    yield place, f"{address} is the network's or its gateway's; choose another"
                if address in addresses:
                    yield place, f"{address} is also an address of {addresses[address]}; choose another"
                addresses[address] = edge
            found: set[int] = {address.version for address in about.addresses}
            if families and found != families:
                yield (*keys, "addresses"), "is of other IP versions than the first edge's; give every edge the same"
            families = families or found


def _check_prefixes(topology: Topology) -> Iterator[tuple[Keys, str]]:
    listed = [
        (("pops", name, "prefixes", index), prefix)
        for name, pop in topology.pops.items()
        for index, prefix in enumerate(pop.prefixes)
    ]
    for (_, first), (keys, second) in combinations(listed, 2):
        if first.version == second.version and first.overlaps(second):
            yield keys, f"{second} overlaps {first}; keep prefixes apart"
    for keys, prefix in listed:
        if prefix.num_addresses < 4:
            yield keys, f"{prefix} has no room for an edge and its gateway; use a wider one"


def _check_rtts(topology: Topology) -> Iterator[tuple[Keys, str]]:
    for row, columns in topology.rtt_ms.items():
        for column in columns:
            keys: Keys = ("rtt_ms", row, column)
            for pop in (row, column):
                if pop not in topology.pops:
                    yield keys, f"there is no PoP {pop!r}; name one of {', '.join(topology.pops)}"
            if row == column:
                yield keys, "is the PoP itself; that RTT is called intra_rtt_ms"
            elif row in topology.rtt_ms.get(column, {}) and row > column:
                yield keys, f"is given for {column}, {row} as well; keep one"
    for one, other in combinations(topology.pops, 2) if topology.default_rtt_ms is None else ():
        if other not in topology.rtt_ms.get(one, {}) and one not in topology.rtt_ms.get(other, {}):
            yield ("rtt_ms",), f"has no RTT between {one} and {other}; add it"


def gateway(prefix: Network) -> Address:
    """The router of a PoP's prefix, which the emulator stands in for: the last host address (IPv6: at most ::fffe)."""
    if isinstance(prefix, IPv4Network):
        return prefix.broadcast_address - 1
    return prefix.network_address + min(0xFFFE, prefix.num_addresses - 2)
