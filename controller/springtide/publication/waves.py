"""In which order a rollout reaches the edges, and how often each wave's gate may be tried."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .. import instants

# Tries that a gate must have, where it may try again at all: its first try has seen nothing yet, and samples are on
# their way for up to a minute.
LEAST_TRIES = 2
# No wave is more than so many times the one before, however short the time is.
MOST_GROWTH = 30


class Candidate(NamedTuple):
    """An edge of a rollout: its region and how many routes, or entries, its bundle has."""

    name: str
    region: str
    routes: int


def waves(candidates: Sequence[Candidate], growth: int, salt: str) -> list[list[str]]:
    """One canary for each region, then waves that grow by `growth`, until no edge is left.

    A canary is an edge with the most routes, since an empty bundle tries nothing; among equals the round (`salt`)
    chooses, so that it is not always the same host that goes first.
    """

    def rank(candidate: Candidate) -> tuple[int, str]:
        return -candidate.routes, hashlib.sha256(f"{salt}/{candidate.name}".encode()).hexdigest()

    regions = sorted({candidate.region for candidate in candidates})
    first = [min((c for c in candidates if c.region == region), key=rank).name for region in regions]
    left = sorted((c for c in candidates if c.name not in first), key=rank)
    result = [first] if first else []
    size = len(first) * growth
    while left:
        result.append([candidate.name for candidate in left[:size]])
        left, size = left[size:], size * growth
    return result


def gate_tries(life_s: float, waves: int, tries: int, delay_s: float) -> int:
    """Number of tries that the gate of each wave has, `tries` at most, so that waiting takes half of the bundles' life.

    The other half is for the work itself, and for the next round to arrive before the first edge expires. 0: not even
    once for each wave.
    """
    if waves < 1 or delay_s <= 0:
        return tries
    return max(0, min(tries, int(life_s / 2 / waves / delay_s)))


def fitting_growth(edges: int, regions: int, growth: int, life_s: float, tries: int, delay_s: float) -> int:
    """The growth of waves, `growth` or the next larger one with which there are so few that each gate has time to try
    again LEAST_TRIES times. Where none up to MOST_GROWTH does, `growth` itself: then fewer tries or none are left."""
    for larger in range(growth, max(growth, MOST_GROWTH) + 1):
        if gate_tries(life_s, _count(edges, regions, larger), tries, delay_s) >= min(tries, LEAST_TRIES):
            return larger
    return growth


def _count(edges: int, regions: int, growth: int) -> int:
    """Counts the waves that `waves` makes."""
    count, size, left = 0, regions, edges
    while left > 0 and size > 0:
        count, left, size = count + 1, left - size, size * growth
    return count


def life_s(folder: Path, edges: Sequence[str], now: float) -> float:
    """For how long the first of these bundles to expire remains valid; what is not a bundle, the edge refuses."""
    ends = []
    for edge in edges:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = json.loads((folder / f"{edge}.json").read_bytes())["expires_at"]
            ends.append(instants.parse(text))
    return min(ends) - now if ends else 0.0


def read_publication(folder: Path, edges: Sequence[tuple[str, str]]) -> list[Candidate]:
    """(edge, region) with the routes of their bundles. Raises ValueError when one has none."""
    found = {path.name[: -len(".json")]: path for path in folder.glob("*.json")}
    missing = sorted({name for name, _ in edges} - set(found))
    if missing:
        raise ValueError(f"{folder}: no bundle for {', '.join(missing)}; publish a round for this fleet.yaml")
    candidates = []
    for name, region in edges:
        try:
            document = json.loads(found[name].read_bytes())
            routes = len(document["entries" if "entries" in document else "routes"])
        except (ValueError, KeyError, TypeError):
            routes = 0  # what is not a bundle, the edge refuses
        candidates.append(Candidate(name, region, routes))
    return candidates
