"""Decisions as rows of path_decisions: reading what was decided, and writing a round so that twice changes nothing.

Each part of a path's decision has a row of its own in a round. Which columns it has, and what their numbers are, says
springtide-core (core/src/step): instants are seconds since the epoch, 0 is none; NaN is unknown, and null in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from springtide import _core, instants
from springtide.errors import StoreError
from springtide.frame import Coded, Frame
from springtide.laws.columns import Bits, begins, coded, same
from springtide.laws.units import UNIT_KEY, keys, width
from springtide.policy import MAX_HISTORY_S
from springtide.store import Row, Store
from springtide.store.binary import Columns

TABLE = "path_decisions"
_DESTINATION_BYTES = np.dtype(UNIT_KEY)["destination"].itemsize
_AT_ONCE = 1000
_BY_PATH = "src_pop, destination, ip_version"
# An alias may have the name of the column that it is made of. Rows are sorted after they are read: in order `final`
# would merge them, which takes twice as long.
_BY_COLUMN = "settings prefer_column_name_to_alias = 1, optimize_read_in_order = 0"


class Decisions:
    """The rows of a part: `decided` and `previous` are their columns in memory, without those that a round has in
    common. A row leaves something for the next round where any of the columns `lasting` is above 0."""

    def __init__(
        self,
        part: str,
        decided: np.dtype[np.void],
        previous: np.dtype[np.void],
        lasting: Sequence[str],
        actions: Sequence[str] = (),
    ) -> None:
        """`actions`, by number, of a part that springtide-core does not decide: it says what the words and the columns
        of the others are."""
        self.part, self.decided, self.previous = part, decided, previous
        self.names = decided.names or ()
        self._lasting = lasting
        of_core = () if actions else ("seen", "state", "decided")
        kinds = {name: kind for table in of_core for name, _, kind in _core.columns(part, table)}
        self.instants, self.flags = (
            [name for name in self.names if kinds.get(name) == kind] for kind in ("Instant", "bool")
        )
        # The rule of each reason.
        self.rules = {"": ""} if actions else dict(_core.reasons(part))
        # By number.
        self.actions, self.reasons = actions or _core.actions(part), tuple(self.rules)

    def _select(self, rows: np.dtype[np.void], table: str = f"{TABLE} final") -> str:
        """Begin a question for these columns; further conditions follow by `and`."""
        names = ", ".join(self._fixed(name, rows[name]) for name in rows.names or ())
        return f"select {names} from {table} where part = '{self.part}'"

    def _fixed(self, name: str, form: np.dtype[Any]) -> str:
        """A column of the table as arrays have it."""
        if name == "round":
            return "toUInt32(toUnixTimestamp(round)) as round"
        if form.kind == "S":
            if name == "destination":
                return f"toFixedString({name}, {{width:UInt8}}) as {name}"
            # Few differ: each is handed over once.
            return f"toFixedString(toLowCardinality({name}), {form.itemsize}) as {name}"
        if name in self.instants:
            return f"toUInt32(coalesce({name}, toDateTime(0, 'UTC'))) as {name}"
        if words := self._words(name):
            listed = ", ".join(f"'{word}'" for word in words)
            return f"toUInt8(indexOf([{listed}], toString({name})) - 1) as {name}"
        if name in self.flags:
            return f"toUInt8({name}) as {name}"
        if form.kind == "f":
            return f"coalesce({name}, toFloat{8 * form.itemsize}(nan)) as {name}"
        return name

    def _words(self, name: str) -> Sequence[str]:
        """Words that the numbers of a column stand for; none where they are numbers."""
        if name == "action":
            return self.actions
        return self.reasons if name == "reason" or name.endswith("_reason") else ()

    def last_round(self, store: Store, before_unix_s: int, within_s: int = MAX_HISTORY_S) -> int:
        """The newest round before `before`, and not older than `within`, that left decisions; 0 is none."""
        found = store.query(
            f"select toUnixTimestamp(round) as newest from {TABLE} where part = '{self.part}' "
            "and round < fromUnixTimestamp({before:UInt32}) and round >= fromUnixTimestamp({oldest:UInt32}) "
            # A maximum would read all of the history.
            "order by round desc limit 1",
            {"before": before_unix_s, "oldest": max(0, before_unix_s - within_s)},
        )
        return int(found[0]["newest"]) if found else 0

    def remembered(self, store: Store, round_unix_s: int, expected: int = 0, within_s: int = MAX_HISTORY_S) -> Frame:
        """The last round's decisions before this one as PREVIOUS rows, about as many as are `expected`, sorted by path;
        no later round is read."""
        newest = self.last_round(store, round_unix_s, within_s)
        if not newest:
            return Frame.empty(0, self.previous)
        # One thread reads each part in its order, and nothing is sorted.
        found = self._last(store, newest, TABLE, "settings prefer_column_name_to_alias = 1, max_threads = 1", expected)
        # A path may have two rows in a round that was decided twice, and not merged since. To merge costs a fifth.
        if not np.logical_or.reduce([begins(found.columns[name]) for name, _ in UNIT_KEY]).all():
            found = self._last(store, newest, f"{TABLE} final", _BY_COLUMN, expected)
        return found

    def _last(self, store: Store, round_unix_s: int, table: str, settings: str, expected: int) -> Frame:
        of_round = "and round = fromUnixTimestamp({round:UInt32})"
        longest = f"select max(length(destination)) as n from {TABLE} where part = '{self.part}' {of_round}"
        [found] = store.query(longest, {"round": round_unix_s})
        parameters = {"round": round_unix_s, "width": width(int(found["n"]))}
        query = f"{self._select(self.previous, table)} {of_round} order by {_BY_PATH} {settings}"
        return store.frame(query, self.previous, parameters, expected)

    def lasting(self, last: Frame) -> Frame:
        """Those of these rows that leave something for the next round: each round decides anew on all that the one
        before it left, and so whatever lasts is in them."""
        lasts: Bits = np.logical_or.reduce([last[name] > 0 for name in self._lasting])
        return last if lasts.all() else last[lasts]

    def left(self, store: Store, round_unix_s: int, within_s: int = MAX_HISTORY_S) -> Frame:
        """Reads what earlier decisions left for this round, as PREVIOUS rows."""
        return self.lasting(self.remembered(store, round_unix_s, within_s=within_s))

    def carry(self, decided: Frame, now: int) -> Frame:
        """Returns what a round's decisions leave for the next one, as PREVIOUS rows."""
        left = self.lasting(decided)
        return Frame(self.previous, {**left.columns, "round": np.full(len(left), now, np.uint32)})

    def read_round(self, store: Store, round_unix_s: int) -> Frame:
        """All decisions of a round as DECIDED rows, sorted by path."""
        of_round = f"and round = fromUnixTimestamp({{round:UInt32}}) order by {_BY_PATH} {_BY_COLUMN}"
        parameters = {"round": round_unix_s, "width": _DESTINATION_BYTES}
        return store.frame(f"{self._select(self.decided)} {of_round}", self.decided, parameters)

    def newest(self, store: Store, round_unix_s: int, ttl_s: int) -> Frame:
        """The newest decisions up to a round as DECIDED rows: a round without its law keeps what the last one decided,
        for as long as a bundle may live."""
        return self.read_round(store, self.last_round(store, round_unix_s + 1, ttl_s))

    def read(self, store: Store, since_unix_s: int, until_unix_s: int, path: tuple[str, str] | None = None) -> Frame:
        """DECIDED rows with since < round <= until, with their `round` and `policy_version`: the newest first, then by
        path. `path`: only of this PoP and destination."""
        form = np.dtype([*self.decided.descr, ("round", "<u4"), ("policy_version", "S12")])
        own = "" if path is None else "and src_pop = {src_pop:String} and destination = {destination:String}"
        src_pop, destination = path or ("", "")
        return store.frame(
            f"{self._select(form)} and round > fromUnixTimestamp({{since:UInt32}}) "
            f"and round <= fromUnixTimestamp({{until:UInt32}}) {own} "
            f"order by {TABLE}.round desc, {_BY_PATH} {_BY_COLUMN}",
            form,
            {
                "since": max(0, since_unix_s),
                "until": until_unix_s,
                "width": _DESTINATION_BYTES,
                **({} if path is None else {"src_pop": src_pop, "destination": destination}),
            },
        )

    def write_round(self, store: Store, round_unix_s: int, decided: Frame, policy_version: str) -> bool:
        """Make the round's rows these. Gives back whether anything had to be written. Raises StoreError when another
        process wrote in between."""
        # Rows are counted before they are read or merged: in most rounds there are none, and then none but these.
        present = self.read_round(store, round_unix_s) if self._stored(store, round_unix_s) else decided[:0]
        if len(present):
            if same(present, decided) and not self._stored(store, round_unix_s, "final", policy_version):
                return False
        elif not len(decided):
            return False
        count = len(decided)
        if count:
            every = np.zeros(count, np.uint8)
            head: Columns = {
                "round": np.full(count, round_unix_s, "<u4"),
                "part": Coded(np.array([self.part.encode()]), every),
                "policy_version": Coded(np.array([policy_version.encode()], "S12"), every),
            }
            store.insert_columns(TABLE, {**head, **self._columns(decided)})
        stale = present[~np.isin(keys(present), keys(decided))] if len(present) else present
        if len(stale):
            paths = [f"{src.decode()} {to.decode()} {version}" for src, to, version, *_ in stale.tolist()]
            store.execute(
                f"delete from {TABLE} where round = fromUnixTimestamp({{round:UInt32}}) and part = '{self.part}' "
                "and concat(src_pop, ' ', destination, ' ', toString(ip_version)) in {stale:Array(String)}",
                {"round": round_unix_s, "stale": paths},
            )
        if self._stored(store, round_unix_s) != count and self._stored(store, round_unix_s, "final") != count:
            when = instants.show(round_unix_s)
            what = f"store {store.url}: decisions of {when} of the part {self.part}"
            raise StoreError(f"{what} are not what was written; decide the round again")
        return True

    def _stored(self, store: Store, round_unix_s: int, final: str = "", other_than: str | None = None) -> int:
        """Counts the round's rows, with `other_than` those by another policy than this one; without `final` also those
        that merges will remove."""
        others = "" if other_than is None else "and policy_version != {version:String}"
        [found] = store.query(
            f"select count() as n from {TABLE} {final} where part = '{self.part}' "
            f"and round = fromUnixTimestamp({{round:UInt32}}) {others}",
            {"round": round_unix_s} | ({} if other_than is None else {"version": other_than}),
        )
        return int(found["n"])

    def _columns(self, decided: Frame) -> Columns:
        """As the table has them: null where nothing is known."""
        columns = dict(decided.columns)
        for name in self.names:
            if words := self._words(name):
                columns[name] = Coded(np.array([word.encode() for word in words]), decided[name])
            elif name in self.instants:
                columns[name] = np.ma.array(decided[name], mask=decided[name] == 0)
            elif self.decided[name].kind == "f":
                columns[name] = np.ma.array(decided[name], mask=np.isnan(decided[name]))
            elif self.decided[name].kind == "S" and name != "destination":
                columns[name] = coded(decided.columns[name])
        return columns

    def rows(self, decided: Frame) -> Iterator[Row]:
        """DECIDED rows one by one, with words for numbers; instants in seconds since the epoch, None is unknown."""
        names = decided.dtype.names or ()
        texts = [name for name in names if decided.dtype[name].kind == "S"]
        # Python's numbers take ten times the memory: of a part of the rows at once.
        parts = (decided[at : at + _AT_ONCE].tolist() for at in range(0, len(decided), _AT_ONCE))
        for values in chain.from_iterable(parts):
            row: Row = {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in zip(names, values, strict=True)
            }
            row |= {name: row[name].decode() for name in texts}
            row |= {name: bool(row[name]) for name in self.flags} | {name: row[name] or None for name in self.instants}
            yield row | {name: listed[row[name]] for name in names if (listed := self._words(name))}

    def as_dict(self, row: Row) -> dict[str, object]:
        """For JSON: instants as text, and numbers with the digits that they have."""
        halves = [name for name in self.names if self.decided[name] == np.float32]
        shown = {name: None if row[name] is None else float(f"{row[name]:.7g}") for name in halves}
        moments = [name for name in ("round", *self.instants) if name in row]
        return {**row, **shown, **{name: row[name] and instants.show(row[name]) for name in moments}}
