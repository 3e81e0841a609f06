"""How edges enforce their bundles, and when an entry stops by itself: what bundles carry as `enforce`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from springtide import instants
from springtide.document import Document
from springtide.errors import Problem
from springtide.fleet import MAPPED_IPV4, parse_prefix, prefix_order
from springtide.override import Why
from springtide.section import MAX_OBJECT_BYTES, Instant, Section, tunable

By = Literal["routes", "bpf"]
Otherwise = Literal["default", "routes"]


def _checked_destination(text: str) -> str:
    prefix = parse_prefix(text)
    # Edges write IPv4-mapped addresses in another way than Python does: they would refuse the whole bundle.
    if prefix is None or prefix.network_address in MAPPED_IPV4:
        what, fix = f"{text!r} is not a prefix in its shortest form", "write it as 10.0.0.0/8 or fd00::/8"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix})
    return text


Destination = Annotated[str, AfterValidator(_checked_destination)]


class EnforcePolicy(Section):
    """How edges enforce their bundles."""

    by: By = tunable(
        "routes",
        "By routes, or by an eBPF program that sets the values of each connection and touches no route.",
        source="routes work on every kernel; the program paces what it starts, and acts from a number of bytes on",
    )
    otherwise: Otherwise = tunable(
        "default",
        "With by: bpf, what an edge does that cannot load the program: the kernel's default, or as much as routes can.",
        source="a window that was meant to be paced is a burst as a route",
    )
    live: Literal["leave", "restore"] = tunable(
        "leave",
        "Connections that are open when the program is withdrawn: left as they are, or put back to the default.",
        source="what a connection started with is past; changing the control of all open ones at once is a risk itself",
    )
    excluded: list[Destination] = tunable(
        [],
        "Destinations that are left alone, whatever was decided; by routes, so is every entry that overlaps one.",
        source="none: PoPs' prefixes are what windows are decided for; name back-office networks that must keep theirs",
        choices="IPv4 and IPv6 prefixes, at most 1000",
        max_length=1000,
    )
    congestion_always: bool = tunable(
        False,
        "Whether BBR may act from the first byte on where bytes cannot be waited for, as by routes.",
        source="the article: little to no benefit below 100 KB, so small objects would pay for large ones",
    )
    receive_windows: bool = tunable(
        False,
        "With by: bpf, whether an edge announces towards each PoP, at first, as many segments as that PoP's edges "
        "start with towards it, where these are more than 64 KB.",
        source="Riptide III-C: a receiver's first window may not take the burst; it costs the receiver's memory",
    )
    lift_bytes: int = tunable(
        1_000_000,
        "Bytes acknowledged at which a start rate is lifted.",
        source="lifted after 60 kB, the window that fills the path is doubled by slow start: of objects of 1 MB a "
        "seventh was sent again on a short queue, by the kernel's default a twentieth (`make bench-start`)",
        ge=1,
        le=MAX_OBJECT_BYTES,
    )
    lift_round_trips: int = tunable(
        0,
        "Round trips after which a start rate is lifted, whatever was acknowledged; 0 is no bound.",
        source="bytes say what the path carried; round trips say nothing of it",
        ge=0,
        le=1000,
    )
    brake_lost_permille: int = tunable(
        400,
        "With by: bpf, of a thousand connections that sent more than the kernel's first window those that may lose of "
        "their first flights before an entry stops by itself, until a newer bundle; 1000 never.",
        source="of 20 connections nine or more lose in 1 of 4000 looks where 12 % do (initcwnd.loss_bound), in 99 % "
        "where a burst fits no longer and 70 % do; less is found by the law",
        ge=1,
        le=1000,
    )
    brake_connections: int = tunable(
        20,
        "Connections that must have started before an entry may stop (decayed as brake_half_life_s says).",
        source="as initcwnd.loss_min_connections",
        ge=1,
        le=1_000_000,
    )
    brake_half_life_s: int = tunable(
        60,
        "Seconds after which a connection counts half for that.",
        source="a fifth of a round: the brake is for what happens between two rounds",
        ge=1,
        le=86_400,
    )
    record_permille: int = tunable(
        1000,
        "With by: bpf, of a thousand connections to other hosts those that leave a first-flight record, whether the "
        "bundle names their destination or not.",
        source="the law of starts judges by them and by nothing else; each costs a row, as a close record does",
        ge=0,
        le=1000,
    )
    max_trial_permille: int = tunable(
        500,
        "Most of a thousand connections of an entry that may be given other values on trial.",
        source="of few connections two equal halves show most; of many the law asks for less (start.trial_permille)",
        ge=1,
        le=1000,
    )


class EnforceOverride(Section):
    """Edges that enforce their bundles in another way. The first in the file that names an edge or its PoP counts."""

    pop: str | None = None
    edges: Annotated[list[str], Field(min_length=1)] | None = None
    by: By
    otherwise: Otherwise | None = None
    # None: as long as it stands here.
    until: Instant | None = None
    reason: Why

    def covers(self, edge: str, pop: str, now: int) -> bool:
        named = edge in self.edges if self.edges is not None else True
        return named and self.pop in (None, pop) and (self.until is None or now < instants.parse(self.until))

    @staticmethod
    def commented() -> str:
        """The empty section as the default policy.yaml has it."""
        return f"""\
# {EnforceOverride.__doc__}
# Each item: {{pop: ams, edges: [ams-1], by: bpf, until: '2026-01-02T03:05:00Z', reason: first edge}}; a pop alone
# means all of its edges. otherwise replaces enforce.otherwise; without until it holds as long as it stands here.
enforce_overrides: []"""


def enforce_of(
    policy: EnforcePolicy, overrides: Sequence[EnforceOverride], edge: str, pop: str, now_unix_s: int
) -> EnforcePolicy:
    """The section as it is for one edge at this time."""
    found = next((one for one in overrides if one.covers(edge, pop, now_unix_s)), None)
    if found is None:
        return policy
    return policy.model_copy(update={"by": found.by, "otherwise": found.otherwise or policy.otherwise})


def paces(policy: EnforcePolicy, overrides: Sequence[EnforceOverride], now_unix_s: int) -> bool:
    """Whether any edge may enforce by bpf."""
    alive = (one for one in overrides if one.until is None or now_unix_s < instants.parse(one.until))
    return policy.by == "bpf" or any(one.by == "bpf" for one in alive)


def contradictions(
    document: Document, policy: EnforcePolicy, overrides: Sequence[EnforceOverride]
) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    seen: set[str] = set()
    for index, text in enumerate(policy.excluded):
        if text in seen:
            yield document.problem(("enforce", "excluded", index), f"{text} is listed twice", "list each once")
        seen.add(text)
    for index, override in enumerate(overrides):
        if override.pop is None and override.edges is None:
            yield document.problem(("enforce_overrides", index), "names neither a pop nor edges", "name one of them")
        if override.edges is not None and len(set(override.edges)) < len(override.edges):
            yield document.problem(("enforce_overrides", index, "edges"), "names an edge twice", "name each once")


def excluded(policy: EnforcePolicy) -> list[str]:
    """Sorted as bundles are."""
    prefixes = (parse_prefix(text) for text in policy.excluded)
    return [str(one) for one in sorted((one for one in prefixes if one is not None), key=prefix_order)]
