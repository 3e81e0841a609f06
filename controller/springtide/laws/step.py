"""Steps of springtide-core (core/src/step) over columns: what a law hands over, and what it is given back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from springtide import _core
from springtide.frame import Coded, Frame
from springtide.laws.columns import coded
from springtide.laws.units import UNIT_KEY
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


def step(
    part: Part,
    now: int,
    policy: str,
    units: Frame,
    tables: tuple[Rows, Rows, Rows],
    decided: np.dtype[np.void],
    given: Mapping[str, NDArray[Any] | Coded],
    frozen: Collection[str] = (),
    groups: NDArray[np.uint32] | None = None,
) -> Frame:
    """The decisions of a round on these units, as rows of `decided`: columns that the step makes beside those that are
    `given`. Those of PoPs that are `frozen` stand. `tables` are what the round showed, what the decisions before it
    left (with their `round`), and operators' overrides. `groups` are numbers from 1 on; 0 is none."""
    pops = coded(units.columns["src_pop"])
    is_frozen = np.isin(pops.texts, np.array(sorted(frozen), "S64"))[pops.numbers]
    state, count = forms(part, "state"), len(units)
    named = {name: units.columns[name] for name, _ in UNIT_KEY} | {"src_pop": pops}
    found = Frame(decided, {**Frame.empty(count, decided).columns, **named, **given})
    seen, before, overrides = tables
    paths = SimpleNamespace(
        seen=_columns(seen.table, forms(part, "seen")),
        at_seen=seen.at.astype(np.int64, copy=False),
        before=_columns(before.table, [*state, ("round", "<u4")]),
        at_before=before.at.astype(np.int64, copy=False),
        overrides=_columns(overrides.table, forms(part, "override")),
        at_override=overrides.at.astype(np.int64, copy=False),
        groups=np.zeros(count, np.uint32) if groups is None else groups,
        frozen=is_frozen.astype(np.uint8),
    )
    _core.decide(part, now, policy, paths, [found[name] for name, _ in [*state, *forms(part, "decided")]])
    return found


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
