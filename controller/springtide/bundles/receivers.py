"""Windows of receivers: those that edges that pace announce, and pairs whose buffers are too small for their routes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from springtide.bundles.model import Documents
from springtide.fleet import Fleet
from springtide.laws.initcwnd.decision import Action, Decision

# A receiver advertises about half of the middle value of its tcp_rmem at first; an Ethernet's segment has 1460 bytes.
BUFFER_PER_WINDOW = 2
SEGMENT_BYTES = 1460
# Receivers announce this much by themselves: 65,535 bytes in segments of 1460. A smaller value would lower it.
ANNOUNCED_ANYWAY = 44

# Source PoP, prefix of its destination, window in segments.
Window = tuple[str, str, int]


def receive_windows(fleet: Fleet, starts: Iterable[Window]) -> Mapping[str, Mapping[str, int]]:
    """PoP -> prefix of another one -> the largest window with which that one's edges start towards it, where it is more
    than is announced anyway."""
    found: dict[str, dict[str, int]] = {}
    for (sender, receiver, ip_version), window in _largest(fleet, starts).items():
        if window > ANNOUNCED_ANYWAY:
            of_sender = (prefix for prefix in fleet.pops[sender].prefixes if prefix.version == ip_version)
            found.setdefault(receiver, {}).update({str(prefix): window for prefix in of_sender})
    return found


def narrow(documents: Documents, decided: Iterable[Decision], fleet: Fleet) -> Iterator[str]:
    """Advice for pairs that have a route in these bundles and a window above what their median receiver advertised, and
    for those whose window the receivers have limited already."""
    bundles = [document.bundle for document in documents.values()]
    given = _largest(fleet, ((one.pop, prefix, window) for one in bundles for prefix, window in one.windows.items()))
    for decision in sorted(decided, key=lambda one: (one.src_pop, one.dst_pop)):
        asked = given.get(decision.pair)
        if asked is None or decision.receiver_cwnd is None or decision.action is not Action.SET:
            continue
        held = decision.reason == "receiver_limited" and decision.smoothed_cwnd is not None
        wanted = max(asked, math.ceil(decision.smoothed_cwnd or 0)) if held else asked
        if wanted > decision.receiver_cwnd:
            # The middle value of tcp_rmem that suffices.
            buffer_bytes = wanted * SEGMENT_BYTES * BUFFER_PER_WINDOW
            yield (
                f"{decision.src_pop} to {decision.dst_pop} (IPv{decision.ip_version}): receivers advertise"
                f" {decision.receiver_cwnd:.0f} segments, {wanted} are wanted: set"
                f" edge_receive_buffer_bytes={buffer_bytes} of the role edge on {decision.dst_pop}'s edges"
            )


def _largest(fleet: Fleet, windows: Iterable[Window]) -> dict[tuple[str, str, int], int]:
    """By pair of PoPs and IP version; what is towards clients does not count."""
    owners = {str(prefix): (pop, prefix.version) for prefix, pop in fleet.prefixes()}
    found: dict[tuple[str, str, int], int] = {}
    for sender, prefix, window in windows:
        if prefix in owners:
            pair = (sender, *owners[prefix])
            found[pair] = max(found.get(pair, 0), window)
    return found
