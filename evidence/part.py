"""A part of the evidence: what it measures in one go, and the claims that this is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.claims import Claim, Measured

DRAWS, ENDS = 1000, (0.025, 0.975)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A table of a source's page, with the sentence that names its conditions, and a plot where there is one."""

    source: str
    name: str
    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    plot: Callable[[Path], None] | None = None


@dataclass
class Found:
    """A part's measurements, by the claims' ids, and what its pages show."""

    measured: dict[str, Measured] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """`measure` takes whether it is a quick run. `seconds`: about how long it takes, full and quick."""

    name: str
    summary: str
    claims: Sequence[Claim]
    measure: Callable[[bool], Found]
    seconds: tuple[int, int]
    root: bool = False


def intervals(
    statistics: Callable[..., Mapping[str, float]], *samples: Sequence[float] | Floats, seed: int = 1
) -> dict[str, Measured]:
    """Statistics of samples by name, with intervals of 95 % by bootstrap: each sample is drawn anew by itself. What the
    samples cannot tell (nan) is left out."""
    chance = np.random.default_rng(seed)
    arrays: list[Floats] = [np.asarray(one, np.float64) for one in samples]
    drawn = [statistics(*(one[chance.integers(0, len(one), len(one))] for one in arrays)) for _ in range(DRAWS)]
    found = {}
    for name, value in statistics(*arrays).items():
        if np.isnan(value):
            continue
        low, high = np.nanquantile([one[name] for one in drawn], ENDS)
        found[name] = Measured(float(value), float(low), float(high), sum(len(one) for one in arrays))
    return found


def interval(statistic: Callable[..., Any], *samples: Sequence[float] | Floats) -> Measured:
    """One statistic, as `intervals`."""
    return intervals(lambda *drawn: {"": float(statistic(*drawn))}, *samples)[""]
