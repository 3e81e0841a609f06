"""Steps of springtide-core (core/src/step) over columns: what a law hands over, and what it is given back."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from springtide import _core
from springtide.frame import Frame
from springtide.policy import Policy

Forms = list[tuple[str, str]]
# Part of a path's decision, by its law's name.
Part = Literal["initcwnd", "congestion", "start", "recovery"]


def forms(part: Part, table: Literal["seen", "state", "decided", "override"]) -> Forms:
    """The columns of a table of springtide-core, each with what its numbers are."""
    return [(name, f"<{form}") for name, form, _ in _core.columns(part, table)]


@dataclass(frozen=True)
class Rows:
    """A table, and the row of it that is each path's; -1 is none."""

    table: Frame
    at: NDArray[np.intp]


@dataclass(frozen=True)
class _Paths:
    """As springtide-core reads them."""

    seen: Sequence[NDArray[Any]]
    at_seen: NDArray[np.int64]
    before: Sequence[NDArray[Any]]
    at_before: NDArray[np.int64]
    overrides: Sequence[NDArray[Any]]
    at_override: NDArray[np.int64]
    groups: NDArray[np.uint32]
    frozen: NDArray[np.uint8]


def step(
    part: Part,
    now: int,
    policy: str,
    tables: tuple[Rows, Rows, Rows],
    frozen: NDArray[np.bool_],
    decided: Frame,
    groups: NDArray[np.uint32] | None = None,
) -> None:
    """Write the decisions of a round into columns of `decided`. `tables` are what the round showed, what the decisions
    before it left (with their `round`), and operators' overrides. `groups` are numbers from 1 on; 0 is none."""
    seen, before, overrides = tables
    state = forms(part, "state")
    paths = _Paths(
        _columns(seen.table, forms(part, "seen")),
        seen.at.astype(np.int64, copy=False),
        _columns(before.table, [*state, ("round", "<u4")]),
        before.at.astype(np.int64, copy=False),
        _columns(overrides.table, forms(part, "override")),
        overrides.at.astype(np.int64, copy=False),
        np.zeros(len(frozen), np.uint32) if groups is None else groups,
        frozen.astype(np.uint8),
    )
    _core.decide(part, now, policy, paths, [decided[name] for name, _ in [*state, *forms(part, "decided")]])


def as_json(policy: Policy, sections: Collection[str], **more: object) -> str:
    """The sections of the policy that a step reads."""
    return json.dumps(policy.model_dump(include=set(sections)) | more)


def _columns(rows: Frame, wanted: Forms) -> list[NDArray[Any]]:
    return [_column(rows[name], np.dtype(form)) for name, form in wanted]


def _column(column: NDArray[Any], form: np.dtype[Any]) -> NDArray[Any]:
    """Counts stop at the most that the form holds."""
    if form.kind == "u" and column.dtype.itemsize > form.itemsize:
        column = np.minimum(column, np.iinfo(form).max)
    return np.ascontiguousarray(column, form)
