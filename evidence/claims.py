"""A claim of a source, what was measured of it, and their one form in results.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# Each source's title, by the name of its page.
SOURCES = {
    "paper": 'Riptide, the paper: Flores, Khakpour and Bedi, "Jump-Starting Back-Office Connections in Cloud Systems"',
    "slides": "Riptide, the talk's slides",
    "blog": 'Riptide, the blog post: "Riding the Riptide"',
    "article": "Edgecast's article on xTCP and selective BBR",
    "gentle": 'Gentle aggression, the slides: Flach and others, "Reducing Web Latency"',
    "ours": "Springtide itself, beside Riptide as published",
}

Sense = Literal["least", "most", "same"]
Verdict = Literal["yes", "reached", "no"]


@dataclass(frozen=True)
class Claim:
    """A source's statement at a `place`: a number in `unit`, None where it gives none.

    `sense` says what keeps it: as much (`least`), as little (`most`), or the same (`same`) up to `within`. Without a
    number `within` is the bound, and ours. `why`: one sentence on what makes ours differ.
    """

    id: str
    source: str
    place: str
    text: str
    theirs: float | None
    sense: Sense = "same"
    unit: str = ""
    within: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Measured:
    """Ours, with the ends of its interval, from `n` single measurements."""

    ours: float
    low: float
    high: float
    n: int


def verdict(claim: Claim, found: Measured) -> Verdict:
    """`yes` where the whole interval keeps what the source states, `reached` where a part of it does."""
    bound, slack = (claim.within, 0.0) if claim.theirs is None else (claim.theirs, claim.within)
    least = -math.inf if claim.sense == "most" else bound - slack
    most = math.inf if claim.sense == "least" else bound + slack
    if least <= found.low and found.high <= most:
        return "yes"
    return "reached" if found.high >= least and found.low <= most else "no"


def holds(claim: Claim, found: Measured) -> bool:
    """Tells whether the interval reaches what the source states."""
    return verdict(claim, found) != "no"


def results(claims: Sequence[Claim], found: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """results.json: the claims that were measured, in their order."""
    rows = []
    for claim in claims:
        if claim.id in found:
            one = found[claim.id]
            rows.append(
                {
                    "id": claim.id,
                    "source": f"{claim.source}: {claim.place}",
                    "claim": claim.text + (f" ({claim.unit})" if claim.unit else ""),
                    "theirs": claim.theirs,
                    "ours": _short(one.ours),
                    "ci_low": _short(one.low),
                    "ci_high": _short(one.high),
                    "n": one.n,
                    "holds": holds(claim, one),
                }
            )
    return rows


def _short(value: float) -> float:
    return float(f"{value:.5g}")
