"""Writing a round's decisions so that doing it twice changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from springtide import instants
from springtide.errors import StoreError
from springtide.frame import Coded, Frame
from springtide.laws.columns import Keys, Table, same
from springtide.store import Store
from springtide.store.binary import Columns

R = TypeVar("R", Table, Frame)


def write(
    store: Store,
    table: str,
    round_unix_s: int,
    policy_version: str,
    decided: R,
    *,
    read: Callable[[], R],
    keys: Callable[[R], Keys],
    columns: Callable[[R], Columns],
    name: tuple[str, Callable[[R], list[str]]],
) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written.

    `read` gives the rows that are there, `keys` distinguishes rows; `name` is an SQL expression of a row's own text,
    and the texts of some rows. Raises StoreError when another process wrote in between.
    """
    # Rows are counted before they are read or merged: in most rounds there are none, and then none but these.
    stored = _stored(store, table, round_unix_s)
    present = read() if stored else decided[:0]
    if len(present):
        [other] = store.query(
            f"select count() as n from {table} final "
            "where round = fromUnixTimestamp({round:UInt32}) and policy_version != {version:String}",
            {"round": round_unix_s, "version": policy_version},
        )
        if same(present, decided) and not other["n"]:
            return False
    elif not len(decided):
        return False
    count = len(decided)
    head: Columns = {
        "round": np.full(count, round_unix_s, "<u4"),
        "policy_version": Coded(np.array([policy_version.encode()], "S12"), np.zeros(count, np.uint8)),
    }
    if count:
        store.insert_columns(table, {**head, **columns(decided)})
    stale = present[~np.isin(keys(present), keys(decided))] if len(present) else present
    if len(stale):
        expression, names = name
        store.execute(
            f"delete from {table} where round = fromUnixTimestamp({{round:UInt32}}) "
            f"and {expression} in {{stale:Array(String)}}",
            {"round": round_unix_s, "stale": names(stale)},
        )
    if _stored(store, table, round_unix_s) != count and _stored(store, f"{table} final", round_unix_s) != count:
        when = instants.show(round_unix_s)
        raise StoreError(f"store {store.url}: {table} of {when} are not what was written; decide the round again")
    return True


def _stored(store: Store, rows: str, round_unix_s: int) -> int:
    """How many rows of the round; of a table without `final` also those that merges will remove."""
    [found] = store.query(
        f"select count() as n from {rows} where round = fromUnixTimestamp({{round:UInt32}})", {"round": round_unix_s}
    )
    return int(found["n"])
