"""Policy of recovery: the tunables of handshakes and copies, and its overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from springtide._core import MAX_COPIED_BYTES, MAX_HANDSHAKE_TIMEOUT_MS, MIN_HANDSHAKE_TIMEOUT_MS
from springtide.document import Document
from springtide.errors import Problem
from springtide.override import PathWord
from springtide.override import contradictions as contradicting
from springtide.section import Section

if TYPE_CHECKING:
    from springtide.policy import Policy

# A segment.
MIN_COPIED_BYTES = 1460


class RecoveryPolicy(Section):
    """Time after which a lost SYN or SYN-ACK is sent again, and where segments are sent twice, on edges by: bpf."""

    handshake: bool = False
    """Whether paths get a timeout of their own. A connection to a host that does not answer then fails sooner too: the
    kernel tries as often as before.
    Source: off: it departs from RFC 6298, which asks for a second where nothing is known."""
    window_rounds: int = Field(default=12, ge=1, le=288)
    """Rounds whose connections count, the present one included. A value outlives its last evidence by as long, and
    where one did harm nothing is given for as long; twice as long each time that it is within a day.
    Source: an hour of five-minute rounds: most prefixes see few connections in one."""
    min_connections: int = Field(default=100, ge=10, le=1_000_000)
    """Handshakes that these rounds must show of a path; of copies, first flights.
    Source: of 100 the 99 % quantile is the second largest."""
    margin: float = Field(default=1.5, ge=1.1, le=5)
    """Timeout as a multiple of the 99 % quantile of handshakes' round trips, on the edge where it is largest.
    Source: at 100 ms a lost SYN costs 150 ms instead of 1000, a lost SYN-ACK 200; below 1 each SYN is sent twice."""
    copies: bool = False
    """Whether the SYN-ACK and the first segments are sent twice on paths that lose at random.
    Source: off: copies cost bytes, and do harm where a path is full."""
    copied_bytes: int = Field(default=20_000, ge=MIN_COPIED_BYTES, le=MAX_COPIED_BYTES)
    """Bytes at the beginning of each such connection that are sent twice.
    Source: at 100 ms and 2 % loss 10 kB took 209 ms in the mean instead of 272, and 100 kB 512 instead of 640; copies
    of everything gave 100 kB 30 ms more, for half more bytes."""
    copies_permille: int = Field(default=20, ge=1, le=1000)
    """Bytes of copies for each thousand bytes that an edge sends, at most.
    Source: two in a hundred are within what a network's load changes from minute to minute."""
    parity_every: int = Field(default=0, ge=0, le=10)
    """Segments that one of parity stands for, towards other PoPs, instead of copies: of so many times copied_bytes. The
    edges of both run the service of parity. 0: copies.
    Source: off: both ends need the service and its port. At 50 ms and 2 % loss 100 kB took 253 ms in the mean with one
    in 5, and 259 with as many bytes of copies; 10 kB on a full queue 242 and 308."""
    copies_dscp: int = Field(default=0, ge=0, le=63)
    """DSCP of copies, so that networks may drop them first: 1 is RFC 8622's lower effort. 0: that of their connection.
    Source: off: a network may send a packet of another DSCP another way, or later."""


class RecoveryOverride(PathWord):
    """An operator's word for how connections to one PoP or client prefix recover, until an instant; edges by: bpf.
    Each item: {src: ams, to: 192.0.2.0/24, copied_bytes: 0, until: '2026-01-02T03:05:00Z', reason: their firewall};
    handshake_timeout_ms: 0 keeps the kernel's second, copied_bytes: 0 sends nothing twice; what is not named is
    decided."""

    # None: as the law decides. 0: as the kernel does.
    handshake_timeout_ms: Annotated[int, Field(ge=0, le=MAX_HANDSHAKE_TIMEOUT_MS)] | None = None
    copied_bytes: Annotated[int, Field(ge=0, le=MAX_COPIED_BYTES)] | None = None


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys."""
    words = policy.recovery_overrides
    yield from contradicting(document, "recovery_overrides", words)
    for index, word in enumerate(words):
        if word.handshake_timeout_ms is None and word.copied_bytes is None:
            message, fix = "names neither handshake_timeout_ms nor copied_bytes", "name one of them"
            yield document.problem(("recovery_overrides", index), message, fix)
        bounds = (
            ("handshake_timeout_ms", MIN_HANDSHAKE_TIMEOUT_MS, "the kernel's second"),
            ("copied_bytes", MIN_COPIED_BYTES, "no copies"),
        )
        for name, least, nothing in bounds:
            if 0 < (getattr(word, name) or 0) < least:
                message = f"is {getattr(word, name)}; the least is {least}"
                yield document.problem(
                    ("recovery_overrides", index, name), message, f"raise it, or give 0 for {nothing}"
                )
