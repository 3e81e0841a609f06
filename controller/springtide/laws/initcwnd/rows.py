"""Decisions as rows: reading what was decided, and writing a round so that doing it twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields

import numpy as np

from springtide import instants
from springtide.laws import round_rows
from springtide.laws.columns import Table
from springtide.laws.initcwnd.decision import ACTIONS, REASONS, Action, Decision, Reason
from springtide.laws.initcwnd.law import DECIDED, PREVIOUS, only_guard
from springtide.laws.initcwnd.pairs import DutyMemory, keys, named
from springtide.policy import MAX_HISTORY_S, Policy
from springtide.store import Param, Row, Store
from springtide.store.binary import Columns

TABLE = "initcwnd_decisions"
_INSTANTS = ("guard_until", "last_evidence", "expires_at")
_WINDOWS = ("initcwnd", "previous_initcwnd", "ceiling_initcwnd", "clean_initcwnd", "harmful_initcwnd")
_COUNTS = ("min_cwnd", "max_cwnd")
_DOUBLES = tuple(name for name in DECIDED.names or () if DECIDED[name].kind == "f")
_READ = ", ".join(
    f"toUnixTimestamp({field.name}) as {field.name}_s" if field.name in ("round", *_INSTANTS) else field.name
    for field in fields(Decision)
)


# An alias may have the name of the column that it is made of.
_BY_COLUMN = "settings prefer_column_name_to_alias = 1"


def _select(names: Iterable[str]) -> str:
    """Columns of the table as DECIDED has them."""
    return ", ".join(f"{_fixed(name)} as {name}" for name in names)


def _fixed(name: str) -> str:
    if name == "round":
        return "toUnixTimestamp(round)"
    if name in ("src_pop", "dst_pop"):
        return f"toFixedString({name}, 64)"
    if name in _INSTANTS:
        return f"toUInt32(coalesce({name}, toDateTime(0, 'UTC')))"
    if name in _WINDOWS:
        return f"toUInt32(coalesce({name}, 0))"
    if name in _COUNTS:
        return f"toInt64(coalesce({name}, -1))"
    if name == "reason":
        return f"toUInt8(indexOf([{', '.join(repr(reason.value) for reason in REASONS)}], toString(reason)) - 1)"
    if name in ("action", "suppressed"):
        return f"toUInt8({name})"
    return f"coalesce({name}, nan)" if name in _DOUBLES and name != "penalty" else name


def last_round(store: Store, before_unix_s: int) -> int:
    """The newest round before `before` that left decisions; 0 is none."""
    rows = store.query(
        f"select toUnixTimestamp(round) as newest from {TABLE} "
        f"where round < fromUnixTimestamp({{before:UInt32}}) order by {TABLE}.round desc limit 1",
        {"before": before_unix_s},
    )
    return int(rows[0]["newest"]) if rows else 0


def previous(store: Store, round_unix_s: int, policy: Policy) -> Table:
    """What earlier decisions left of each pair with history or a window in use, as PREVIOUS rows; no later round is
    read. Whatever lasts is in the last round's rows: each decides anew on all that the one before it left. After a gap
    of more than MAX_HISTORY_S only what the loss guard has learnt is left of them."""
    names = [name for name in PREVIOUS.names or () if name != "measured_rounds"]
    newest = last_round(store, round_unix_s)
    left = store.columns(
        f"""
        select {_select(names)}, toUInt32(measured) as measured_rounds
        from (
            select * except (measured_rounds) from {TABLE} final
            where
                round = fromUnixTimestamp({{last:UInt32}})
                and (smoothed_cwnd is not null or initcwnd is not null or harmful_initcwnd is not null)
        ) as newest
        left join (
            select src_pop, dst_pop, ip_version, count() as measured
            from {TABLE} final
            where
                round < fromUnixTimestamp({{round:UInt32}})
                and round >= fromUnixTimestamp({{duty_from:UInt32}})
                and last_evidence = round
            group by src_pop, dst_pop, ip_version
        ) as evidence
        using (src_pop, dst_pop, ip_version)
        order by src_pop, dst_pop, ip_version
        {_BY_COLUMN}
        """,
        PREVIOUS,
        {
            "last": newest,
            "round": round_unix_s,
            "duty_from": max(0, round_unix_s - (policy.initcwnd.duty_window_rounds - 1) * policy.round.interval_s),
        },
    )
    return left if newest >= round_unix_s - MAX_HISTORY_S else only_guard(left)


def duty_memory(store: Store, since_unix_s: int, before_unix_s: int) -> DutyMemory:
    """Each pair's rounds with sufficient evidence, since <= round < before."""
    dtype = np.dtype([*named(keys(np.zeros(0, DECIDED))).dtype.descr, ("round", "<u4")])
    found = store.columns(
        f"""
        select {_select(dtype.names or ())}
        from {TABLE} final
        where
            round >= fromUnixTimestamp({{since:UInt32}})
            and round < fromUnixTimestamp({{before:UInt32}})
            and last_evidence = round
        {_BY_COLUMN}
        """,
        dtype,
        {"since": max(0, since_unix_s), "before": before_unix_s},
    )
    memory = DutyMemory()
    for moment in np.unique(found["round"]).tolist():
        memory.remember(moment, keys(found[found["round"] == moment]))
    return memory


def read_table(store: Store, round_unix_s: int) -> Table:
    """All decisions of a round as DECIDED rows, sorted by pair."""
    return store.columns(
        f"select {_select(DECIDED.names or ())} from {TABLE} final "
        f"where round = fromUnixTimestamp({{round:UInt32}}) order by src_pop, dst_pop, ip_version {_BY_COLUMN}",
        DECIDED,
        {"round": round_unix_s},
    )


def read_round(store: Store, round_unix_s: int) -> list[Decision]:
    """All decisions of a round, sorted by pair."""
    return _read(store, "round = fromUnixTimestamp({round:UInt32})", {"round": round_unix_s})


def read_pair(store: Store, src_pop: str, dst_pop: str, until_unix_s: int, since_unix_s: int) -> list[Decision]:
    """A pair's decisions with since < round <= until, newest first."""
    return _read(
        store,
        "src_pop = {src_pop:String} and dst_pop = {dst_pop:String} "
        "and round <= fromUnixTimestamp({until:UInt32}) and round > fromUnixTimestamp({since:UInt32})",
        {"src_pop": src_pop, "dst_pop": dst_pop, "until": until_unix_s, "since": max(0, since_unix_s)},
    )


def latest_decided(store: Store, until_unix_s: int) -> int | None:
    """The newest round up to `until` that has decisions."""
    [row] = store.query(
        "select toUnixTimestamp(max(round)) as newest from initcwnd_decisions where round <= {until:DateTime('UTC')}",
        {"until": until_unix_s},
    )
    newest = row["newest"]
    return int(newest) if newest else None


def write_round(store: Store, round_unix_s: int, decided: Table, policy_version: str) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written."""
    return round_rows.write(
        store,
        TABLE,
        round_unix_s,
        policy_version,
        decided,
        read=lambda: read_table(store, round_unix_s),
        keys=keys,
        columns=_columns,
        name=("concat(src_pop, ' ', dst_pop, ' ', toString(ip_version))", _names),
    )


def as_decisions(decided: Table, round_unix_s: int, policy_version: str) -> list[Decision]:
    """DECIDED rows one by one."""
    names = decided.dtype.names or ()
    listed = [column.tolist() for column in _columns(decided, with_codes=True).values()]
    found = []
    for values in zip(*listed, strict=True):
        row: Row = dict(zip(names, values, strict=True))
        row |= {"src_pop": row["src_pop"].decode(), "dst_pop": row["dst_pop"].decode()}
        row |= {"action": ACTIONS[row["action"]], "reason": REASONS[row["reason"]]}
        row["suppressed"] = bool(row["suppressed"])
        found.append(Decision(round=round_unix_s, policy_version=policy_version, **row))
    return found


def as_dict(decision: Decision) -> dict[str, object]:
    """For JSON: instants as text."""
    values = asdict(decision)
    return {**values, **{f: None if values[f] is None else instants.show(values[f]) for f in ("round", *_INSTANTS)}}


def _names(decided: Table) -> list[str]:
    pairs = zip(*(decided[name].tolist() for name in ("src_pop", "dst_pop", "ip_version")), strict=True)
    return [f"{src.decode()} {dst.decode()} {version}" for src, dst, version in pairs]


def _columns(decided: Table, *, with_codes: bool = False) -> Columns:
    """As the table has them: null where nothing is known; `reason` by its name unless `with_codes`."""
    columns = {name: decided[name] for name in decided.dtype.names or ()}
    for name in (*_INSTANTS, *_WINDOWS):
        columns[name] = np.ma.masked_equal(columns[name], 0)
    for name in _COUNTS:
        columns[name] = np.ma.masked_equal(columns[name], -1)
    for name in _DOUBLES:
        if name != "penalty":
            columns[name] = np.ma.masked_where(np.isnan(columns[name]), columns[name])
    if not with_codes:
        columns["reason"] = np.array([reason.encode() for reason in REASONS])[columns["reason"]]
    return columns


def _read(store: Store, where: str, parameters: dict[str, Param]) -> list[Decision]:
    """Newest first, then by pair."""
    rows = store.query(
        f"select {_READ} from {TABLE} final where {where} order by round desc, src_pop, dst_pop, ip_version", parameters
    )
    return [_decision(row) for row in rows]


def _decision(row: Row) -> Decision:
    instants = {f"{name}_s": name for name in ("round", *_INSTANTS)}
    values = {instants.get(name, name): value for name, value in row.items()}
    # The engine prints a whole double without its point.
    doubles = {name: None if values[name] is None else float(values[name]) for name in _DOUBLES}
    named = {"action": Action(row["action"]), "reason": Reason(row["reason"]), "suppressed": bool(row["suppressed"])}
    return Decision(**{**values, **doubles, **named})
