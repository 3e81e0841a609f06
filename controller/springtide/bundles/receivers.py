"""Pairs whose receivers' buffers are too small for the window of their routes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_network

from springtide.bundles.model import Documents
from springtide.fleet import Fleet
from springtide.laws.initcwnd.decision import Action, Decision

# A receiver advertises about half of the middle value of its tcp_rmem at first; an Ethernet's segment has 1460 bytes.
BUFFER_PER_WINDOW = 2
SEGMENT_BYTES = 1460


@dataclass(frozen=True)
class Narrow:
    """A pair, its window and the one that its median receiver advertises, both in segments."""

    src_pop: str
    dst_pop: str
    ip_version: int
    wanted: int
    advertised: float

    @property
    def buffer_bytes(self) -> int:
        """The middle value of tcp_rmem that suffices for the window."""
        return self.wanted * SEGMENT_BYTES * BUFFER_PER_WINDOW

    def __str__(self) -> str:
        seen = f"{self.advertised:.0f} segments,"
        return (
            f"{self.src_pop} to {self.dst_pop} (IPv{self.ip_version}): receivers advertise {seen}"
            f" {self.wanted} are wanted: set edge_receive_buffer_bytes={self.buffer_bytes} of the role edge"
            f" on {self.dst_pop}'s edges"
        )


def narrow(documents: Documents, decided: Iterable[Decision], fleet: Fleet) -> Iterator[Narrow]:
    """The pairs that have a route in these bundles and a window above what their receivers advertised, and those
    whose window the receivers have limited already.
    """
    owners = {str(prefix): pop for prefix, pop in fleet.prefixes()}
    given: dict[tuple[str, str, int], int] = {}
    for document in documents.values():
        for prefix, window in document.bundle.windows.items():
            owner = owners.get(prefix)
            if owner is not None:
                pair = document.bundle.pop, owner, ip_network(prefix).version
                given[pair] = max(given.get(pair, 0), window)
    for decision in decided:
        asked = given.get(decision.pair)
        if asked is None or decision.receiver_cwnd is None or decision.action is not Action.SET:
            continue
        held = decision.reason == "receiver_limited" and decision.smoothed_cwnd is not None
        wanted = max(asked, math.ceil(decision.smoothed_cwnd or 0)) if held else asked
        if wanted > decision.receiver_cwnd:
            yield Narrow(*decision.pair, wanted, decision.receiver_cwnd)
