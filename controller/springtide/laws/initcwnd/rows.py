"""Decisions on initial windows as rows, and one by one as people read them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from springtide.frame import Frame
from springtide.laws.columns import Keys, located, taken_at
from springtide.laws.initcwnd.decision import Action, Decision
from springtide.laws.initcwnd.law import DECIDED, PREVIOUS, only_guard
from springtide.laws.rows import TABLE, Decisions
from springtide.laws.units import UNIT_KEY, keys
from springtide.policy import MAX_HISTORY_S, Policy
from springtide.store import Row, Store

# Columns in which 0 is none.
_NONE = (
    *("initcwnd", "previous_initcwnd", "ceiling_initcwnd", "clean_initcwnd", "harmful_initcwnd"),
    *("min_cwnd", "max_cwnd"),
)


class _Windows(Decisions):
    def rows(self, decided: Frame) -> Iterator[Row]:
        for row in super().rows(decided):
            head = {"src_pop": row["src_pop"], "dst_pop": row.pop("destination")}
            yield head | row | {"action": Action(row["action"])} | {name: row[name] or None for name in _NONE}


WINDOWS = _Windows("initcwnd", DECIDED, PREVIOUS, ("smoothed_cwnd", "initcwnd", "harmful_initcwnd"))
_DUTY = np.dtype([*UNIT_KEY, ("round", "<u4")])
_COUNTED = np.dtype([*UNIT_KEY, ("measured_rounds", "<u4")])
# Decisions of rounds with sufficient evidence.
_MEASURED = """
            part = 'initcwnd'
            and round >= fromUnixTimestamp({since:UInt32})
            and round < fromUnixTimestamp({before:UInt32})
            and last_evidence = round
"""


def previous(store: Store, round_unix_s: int, policy: Policy) -> Frame:
    """Reads what earlier decisions left of each pair with history or a window in use, as PREVIOUS rows; no later round
    is read. After a gap of more than MAX_HISTORY_S only what the loss guard has learnt is left of them."""
    left = WINDOWS.left(store, round_unix_s, within_s=round_unix_s)
    if len(left) and int(left["round"][0]) < round_unix_s - MAX_HISTORY_S:
        left = only_guard(left)
    # Counted by the engine: of many pairs these are many rows.
    measured = store.frame(
        f"""
        select
            toFixedString(src_pop, 64) as src_pop, toFixedString(destination, 64) as destination, ip_version,
            toUInt32(count()) as measured_rounds
        from {TABLE} final
        where {_MEASURED}
        group by src_pop, destination, ip_version
        order by src_pop, destination, ip_version
        settings prefer_column_name_to_alias = 1
        """,
        _COUNTED,
        {
            "since": max(0, round_unix_s - (policy.initcwnd.duty_window_rounds - 1) * policy.round.interval_s),
            "before": round_unix_s,
        },
    )
    counts = taken_at(measured, ["measured_rounds"], located(keys(measured), keys(left)))
    return Frame(PREVIOUS, {**left.columns, **counts})


class DutyMemory:
    """Remembers which of the last rounds had sufficient evidence of each pair, for rounds without a store."""

    def __init__(self) -> None:
        self._measured: dict[int, Keys] = {}

    def remember(self, moment: int, measured: Keys) -> None:
        self._measured[moment] = measured

    def count(self, wanted: Frame, since: int) -> NDArray[np.uint32]:
        """The number of each pair's rounds from `since` on; those before are forgotten."""
        self._measured = {moment: own for moment, own in self._measured.items() if moment >= since}
        pairs, counts = keys(wanted), np.zeros(len(wanted), np.uint32)
        for own in self._measured.values():
            counts += np.isin(pairs, own)
        return counts


def duty_memory(store: Store, since_unix_s: int, before_unix_s: int) -> DutyMemory:
    """Each pair's rounds with sufficient evidence, since <= round < before."""
    found = store.columns(
        f"""
        select
            toFixedString(src_pop, 64) as src_pop, toFixedString(destination, 64) as destination, ip_version,
            toUInt32(toUnixTimestamp(round)) as round
        from {TABLE} final
        where {_MEASURED}
        settings prefer_column_name_to_alias = 1
        """,
        _DUTY,
        {"since": max(0, since_unix_s), "before": before_unix_s},
    )
    memory = DutyMemory()
    for moment in np.unique(found["round"]).tolist():
        memory.remember(moment, keys(found[found["round"] == moment]))
    return memory


def read_round(store: Store, round_unix_s: int, pair: tuple[str, str] | None = None) -> list[Decision]:
    """All decisions of a round, sorted by pair, or those of one pair."""
    return as_decisions(WINDOWS.read(store, round_unix_s - 1, round_unix_s, pair))


def as_decisions(decided: Frame, **common: object) -> list[Decision]:
    """Rows of WINDOWS one by one, each with what is `common` to them."""
    return [Decision(**row, **common) for row in WINDOWS.rows(decided)]
