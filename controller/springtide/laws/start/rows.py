"""Decisions on starts as rows: reading what was decided, and writing a round so that twice changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from springtide import instants
from springtide.frame import Coded, Frame
from springtide.laws import round_rows
from springtide.laws.columns import begins, coded
from springtide.laws.start.decision import ACTIONS, REASONS
from springtide.laws.start.law import DECIDED, PREVIOUS, lasting_rows
from springtide.laws.start.units import UNIT_KEY, keys, width
from springtide.policy import MAX_HISTORY_S
from springtide.store import Row, Store
from springtide.store.binary import Columns

TABLE = "start_decisions"
_INSTANTS = ("default_at", "default_timed_at", "hold_until", "train_at", "shared_at", "last_evidence", "expires_at")
_FLAGS = ("borrowed", "trial_borrowed", "trial_step", "train_sharp", "was_cut", "suppressed", "overridden")
_REASONS = np.array([reason.encode() for reason in REASONS])
_NAMES = DECIDED.names or ()
# Of half of a double's bytes.
_HALVES = [name for name in _NAMES if DECIDED[name] == np.float32]
_AT_ONCE = 1000
# An alias may have the name of the column that it is made of. Rows are sorted after they are read: in order `final`
# would merge them, which takes twice as long.
_BY_COLUMN = "settings prefer_column_name_to_alias = 1, optimize_read_in_order = 0"


def _fixed(name: str) -> str:
    """A column of the table as DECIDED has it."""
    kind = DECIDED[name].kind
    if kind == "S":
        if name == "destination":
            return f"toFixedString({name}, {{width:UInt8}}) as {name}"
        # Of few different ones each is handed over once.
        return f"toFixedString(toLowCardinality({name}), {DECIDED[name].itemsize}) as {name}"
    if name in _INSTANTS:
        return f"toUInt32(coalesce({name}, toDateTime(0, 'UTC'))) as {name}"
    if name == "reason":
        listed = ", ".join(f"'{reason}'" for reason in REASONS)
        return f"toUInt8(indexOf([{listed}], toString(reason)) - 1) as reason"
    if name == "action" or name in _FLAGS:
        return f"toUInt8({name}) as {name}"
    if kind == "f":
        return f"coalesce({name}, toFloat{8 * DECIDED[name].itemsize}(nan)) as {name}"
    return name


_SELECT = ", ".join(map(_fixed, _NAMES))
_PREVIOUS = ", ".join(_fixed(name) for name in PREVIOUS.names or () if name != "round")


def last_round(store: Store, before_unix_s: int) -> int:
    """The newest round before `before` that left decisions within the time that they are remembered for; 0 is none."""
    found = store.query(
        f"select toUnixTimestamp(round) as newest from {TABLE} "
        "where round < fromUnixTimestamp({before:UInt32}) and round >= fromUnixTimestamp({oldest:UInt32}) "
        # A maximum would read all of the history.
        "order by round desc limit 1",
        {"before": before_unix_s, "oldest": max(0, before_unix_s - MAX_HISTORY_S)},
    )
    return int(found[0]["newest"]) if found else 0


def remembered(store: Store, round_unix_s: int, expected: int = 0) -> Frame:
    """The last round's decisions before this one as PREVIOUS rows, about as many as are `expected`, sorted by unit; no
    later round is read."""
    newest = last_round(store, round_unix_s)
    if not newest:
        return Frame.empty(0, PREVIOUS)
    # Of one thread each part is read in its order, and nothing is sorted.
    found = _last(store, newest, TABLE, "settings prefer_column_name_to_alias = 1, max_threads = 1", expected)
    # Of a round that was decided twice, and not merged since, a unit may have two rows; to merge costs a fifth more.
    if not np.logical_or.reduce([begins(found.columns[name]) for name, _ in UNIT_KEY]).all():
        found = _last(store, newest, f"{TABLE} final", _BY_COLUMN, expected)
    return found


def _last(store: Store, round_unix_s: int, table: str, settings: str, expected: int) -> Frame:
    [found] = store.query(
        f"select max(length(destination)) as longest from {TABLE} where round = fromUnixTimestamp({{round:UInt32}})",
        {"round": round_unix_s},
    )
    return store.frame(
        f"select {_PREVIOUS}, toUInt32(toUnixTimestamp(round)) as round from {table} "
        f"where round = fromUnixTimestamp({{round:UInt32}}) order by src_pop, destination, ip_version {settings}",
        PREVIOUS,
        {"round": round_unix_s, "width": width(int(found["longest"]))},
        expected,
    )


def lasting(last: Frame) -> Frame:
    """Those of these rows that leave something for the next round: each round decides anew on all that the one before
    it left, and so whatever lasts is in them."""
    lasts = lasting_rows(last)
    return last if lasts.all() else last[lasts]


def previous(store: Store, round_unix_s: int) -> Frame:
    """What earlier decisions left, as PREVIOUS rows."""
    return lasting(remembered(store, round_unix_s))


def read_round(store: Store, round_unix_s: int) -> Frame:
    """All decisions of a round as DECIDED rows, sorted by unit."""
    return _read(store, "round = fromUnixTimestamp({round:UInt32})", {"round": round_unix_s})


def _read(store: Store, where: str, parameters: dict[str, int]) -> Frame:
    return store.frame(
        f"select {_SELECT} from {TABLE} final where {where} order by src_pop, destination, ip_version {_BY_COLUMN}",
        DECIDED,
        {**parameters, "width": DECIDED["destination"].itemsize},
    )


def write_round(store: Store, round_unix_s: int, decided: Frame, policy_version: str) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written."""
    return round_rows.write(
        store,
        TABLE,
        round_unix_s,
        policy_version,
        decided,
        read=lambda: read_round(store, round_unix_s),
        keys=keys,
        columns=_columns,
        name=("concat(src_pop, ' ', destination, ' ', toString(ip_version))", _texts),
    )


def _texts(decided: Frame) -> list[str]:
    units = zip(*(decided[name].tolist() for name in ("src_pop", "destination", "ip_version")), strict=True)
    return [f"{src.decode()} {destination.decode()} {version}" for src, destination, version in units]


def _columns(decided: Frame) -> Columns:
    """As the table has them: null where nothing is known."""
    columns = dict(decided.columns)
    columns["reason"] = Coded(_REASONS, decided["reason"])
    for name in ("src_pop", "group"):
        columns[name] = coded(decided.columns[name])
    for name in _INSTANTS:
        columns[name] = np.ma.array(decided[name], mask=decided[name] == 0)
    for name in _NAMES:
        if DECIDED[name].kind == "f":
            columns[name] = np.ma.array(decided[name], mask=np.isnan(decided[name]))
    return columns


def rows(decided: Frame) -> Iterator[Row]:
    """DECIDED rows one by one, with words for numbers; instants in seconds since the epoch, None is unknown."""
    # Python's numbers take ten times the memory: of a part of the rows at once.
    parts = (decided[at : at + _AT_ONCE].tolist() for at in range(0, len(decided), _AT_ONCE))
    for values in chain.from_iterable(parts):
        row: Row = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(_NAMES, values, strict=True)
        }
        row |= {name: row[name].decode() for name in ("src_pop", "destination", "group")}
        row |= {name: bool(row[name]) for name in _FLAGS} | {name: row[name] or None for name in _INSTANTS}
        yield row | {"action": ACTIONS[row["action"]].value, "reason": REASONS[row["reason"]]}


def as_dict(row: Row) -> dict[str, object]:
    """For JSON: instants as text, and numbers with the digits that they have."""
    shown = {name: None if row[name] is None else float(f"{row[name]:.7g}") for name in _HALVES}
    return {**row, **shown, **{name: row[name] and instants.show(row[name]) for name in _INSTANTS}}


def of_unit(decided: Frame, src_pop: str, destinations: Iterable[str]) -> Frame:
    """The rows from a PoP to these destinations."""
    named = np.array([one.encode() for one in destinations], "S64")
    found: Frame = decided[(decided["src_pop"] == src_pop.encode()) & np.isin(decided["destination"], named)]
    return found


def history(store: Store, src_pop: str, destination: str, since_unix_s: int, until_unix_s: int) -> list[Row]:
    """A unit's decisions with since < round <= until, newest first, as people read them."""
    return store.query(
        f"""
        select
            formatDateTime(round, '%Y-%m-%dT%H:%i:%SZ', 'UTC') as round, ip_version, action, reason, window,
            round(connection_rate) as connection_rate, round(path_rate) as path_rate, trial_window,
            round(trial_connection_rate) as trial_rate, flights_0, lossy_0, flights_1, lossy_1, policy_version
        from {TABLE} final
        where {TABLE}.round > fromUnixTimestamp({{since:UInt32}})
            and {TABLE}.round <= fromUnixTimestamp({{until:UInt32}})
            and src_pop = {{src_pop:String}} and destination = {{destination:String}}
        order by {TABLE}.round desc, ip_version
        """,
        {"since": max(0, since_unix_s), "until": until_unix_s, "src_pop": src_pop, "destination": destination},
    )
