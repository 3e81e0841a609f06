"""Decisions on initial windows as rows, and one by one as people read them."""

from __future__ import annotations

import numpy as np

from springtide import instants
from springtide.frame import Frame
from springtide.laws.columns import located, taken_at
from springtide.laws.initcwnd.decision import Action, Decision, Reason
from springtide.laws.initcwnd.law import DECIDED, PREVIOUS, only_guard
from springtide.laws.initcwnd.pairs import DutyMemory
from springtide.laws.rows import TABLE, Decisions
from springtide.laws.units import UNIT_KEY, keys
from springtide.policy import MAX_HISTORY_S, Policy
from springtide.store import Row, Store

WINDOWS = Decisions("initcwnd", DECIDED, PREVIOUS, ("smoothed_cwnd", "initcwnd", "harmful_initcwnd"))
# Columns in which 0 is none.
_NONE = (
    "initcwnd",
    "previous_initcwnd",
    "ceiling_initcwnd",
    "clean_initcwnd",
    "harmful_initcwnd",
    "min_cwnd",
    "max_cwnd",
)
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
    """What earlier decisions left of each pair with history or a window in use, as PREVIOUS rows; no later round is
    read. After a gap of more than MAX_HISTORY_S only what the loss guard has learnt is left of them."""
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


def read_round(store: Store, round_unix_s: int) -> list[Decision]:
    """All decisions of a round, sorted by pair."""
    return list(map(_decision, WINDOWS.rows(WINDOWS.read(store, round_unix_s - 1, round_unix_s))))


def read_pair(store: Store, src_pop: str, dst_pop: str, until_unix_s: int, since_unix_s: int) -> list[Decision]:
    """A pair's decisions with since < round <= until, newest first."""
    found = WINDOWS.read(store, since_unix_s, until_unix_s, (src_pop, dst_pop))
    return list(map(_decision, WINDOWS.rows(found)))


def as_decisions(decided: Frame, round_unix_s: int, policy_version: str) -> list[Decision]:
    """DECIDED rows one by one."""
    common = {"round": round_unix_s, "policy_version": policy_version}
    return [_decision({**row, **common}) for row in WINDOWS.rows(decided)]


def _decision(row: Row) -> Decision:
    values = {name: value for name, value in row.items() if name != "destination"}
    values |= {name: row[name] or None for name in _NONE}
    words = {"action": Action(row["action"]), "reason": Reason(row["reason"]), "dst_pop": row["destination"]}
    return Decision(**{**values, **words})


def as_dict(decision: Decision) -> dict[str, object]:
    """For JSON: instants as text."""
    shown = ("round", *WINDOWS.instants)
    values = vars(decision)
    return {**values, **{name: None if values[name] is None else instants.show(values[name]) for name in shown}}
