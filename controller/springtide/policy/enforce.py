"""Enforcement of bundles by edges, and when an entry stops by itself: what bundles carry as `enforce`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from springtide import instants
from springtide.document import Document, fault
from springtide.errors import Problem
from springtide.fleet import MAPPED_IPV4, parse_prefix
from springtide.override import Why
from springtide.section import MAX_OBJECT_BYTES, Edges, Instant, Section

if TYPE_CHECKING:
    from springtide.policy import Policy

By = Literal["routes", "bpf"]
Otherwise = Literal["default", "routes"]


def _checked_destination(text: str) -> str:
    prefix = parse_prefix(text)
    # Edges write IPv4-mapped addresses in another way than Python does: they would refuse the whole bundle.
    if prefix is None or prefix.network_address in MAPPED_IPV4:
        raise fault(f"{text!r} is not a prefix in its shortest form", "write it as 10.0.0.0/8 or fd00::/8")
    return text


Destination = Annotated[str, AfterValidator(_checked_destination)]


class EnforcePolicy(Section):
    """The way in which edges enforce their bundles."""

    by: By = "routes"
    """By routes, or by an eBPF program that sets the values of each connection and touches no route.
    Source: routes work on every kernel; the program paces what it starts, and acts from a number of bytes on."""
    otherwise: Otherwise = "default"
    """With by: bpf, what an edge does that cannot load the program: the kernel's default, or as much as routes can.
    Source: a window that was meant to be paced is a burst as a route."""
    live: Literal["leave", "restore"] = "leave"
    """Connections that are open when the program is withdrawn: left as they are, or put back to the default.
    Source: what a connection started with is past; changing the control of all open ones at once is a risk itself."""
    excluded: list[Destination] = Field(default=[], max_length=1000)
    """Destinations that are left alone, whatever was decided; by routes, so is every entry that overlaps one.
    Range: IPv4 and IPv6 prefixes, at most 1000.
    Source: none: PoPs' prefixes are what windows are decided for; name back-office networks that must keep theirs."""
    congestion_always: bool = False
    """Whether BBR may act from the first byte on where bytes cannot be waited for, as by routes.
    Source: the article: little to no benefit below 100 KB, so small objects would pay for large ones."""
    receive_windows: bool = False
    """With by: bpf, whether an edge announces towards each PoP, at first, as many segments as that PoP's edges start
    with towards it, where these are more than 64 KB.
    Source: Riptide III-C: a receiver's first window may not take the burst; it costs the receiver's memory."""
    lift_bytes: int = Field(default=1_000_000, ge=1, le=MAX_OBJECT_BYTES)
    """Bytes acknowledged at which a start rate is lifted.
    Source: lifted after 60 kB, the window that fills the path is doubled by slow start: of objects of 1 MB a seventh
    was sent again on a short queue, by the kernel's default a twentieth (`make bench-start`)."""
    lift_round_trips: int = Field(default=0, ge=0, le=1000)
    """Round trips after which a start rate is lifted, whatever was acknowledged; 0 is no bound.
    Source: bytes say what the path carried; round trips say nothing of it."""
    brake_lost_permille: int = Field(default=400, ge=1, le=1000)
    """With by: bpf, of a thousand connections that sent more than the kernel's first window those that may lose of
    their first flights before an entry stops by itself, until a newer bundle; 1000 never.
    Source: of 20 connections nine or more lose in 1 of 4000 looks where 12 % do (initcwnd.loss_bound), in 99 % where a
    burst fits no longer and 70 % do; less is found by the law."""
    brake_connections: int = Field(default=20, ge=1, le=1_000_000)
    """Connections that must have started before an entry may stop (decayed as brake_half_life_s says).
    Source: as initcwnd.loss_min_connections."""
    brake_half_life_s: int = Field(default=60, ge=1, le=86_400)
    """Seconds after which a connection counts half for that.
    Source: a fifth of a round: the brake is for what happens between two rounds."""
    record_permille: int = Field(default=1000, ge=0, le=1000)
    """With by: bpf, of a thousand connections to other hosts those that leave a first-flight record, whether the bundle
    names their destination or not.
    Source: the law of starts judges by them and by nothing else; each costs a row, as a close record does."""
    max_trial_permille: int = Field(default=500, ge=1, le=1000)
    """Most of a thousand connections of an entry that may be given other values on trial.
    Source: of few connections two equal halves show most; of many the law asks for less (start.trial_permille)."""


class EnforceOverride(Section):
    """Edges that enforce their bundles in another way. The first in the file that names an edge or its PoP counts.
    Each item: {pop: ams, edges: [ams-1], by: bpf, until: '2026-01-02T03:05:00Z', reason: first edge}; a pop alone
    means all of its edges. otherwise replaces enforce.otherwise; without until it holds as long as it stands here."""

    pop: str | None = None
    edges: Edges | None = None
    by: By
    otherwise: Otherwise | None = None
    # None: as long as it stands here.
    until: Instant | None = None
    reason: Why

    def covers(self, edge: str, pop: str, now: int) -> bool:
        named = self.edges is None or edge in self.edges
        return named and self.pop in (None, pop) and self.holds(now)

    def holds(self, now: int) -> bool:
        return self.until is None or now < instants.parse(self.until)


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys."""
    excluded = policy.enforce.excluded
    for index, text in enumerate(excluded):
        if text in excluded[:index]:
            yield document.problem(("enforce", "excluded", index), f"{text} is listed twice", "list each once")
    for index, override in enumerate(policy.enforce_overrides):
        if override.pop is None and override.edges is None:
            yield document.problem(("enforce_overrides", index), "names neither a pop nor edges", "name one of them")
