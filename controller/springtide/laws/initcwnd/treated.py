"""Decided is not done: what sockets show of initial windows, from the round tables."""

from __future__ import annotations

from springtide.laws.base import Treated
from springtide.store import Row, Store

# A pair without traffic for a round or two is not unknown for that; bundles live as long by default.
ROUNDS = 3
# Most that are named of those that differ.
SHOWN = 5


def treated(store: Store, newest_unix_s: int, interval_s: int) -> Treated:
    """Counts what sockets show by edge and PoP: the newest of the last ROUNDS rounds that shows anything. Raises
    StoreError."""
    span = {"since": max(0, newest_unix_s - ROUNDS * interval_s), "until": newest_unix_s}
    [counts] = store.query(f"select {_COUNTS} from ({_PAIRS})", span)
    examples = store.query(
        f"select * from ({_PAIRS}) where decided != 10 and shown = 'differs' "
        "order by host, dst_pop, ip_version limit {most:UInt32}",
        {**span, "most": SHOWN},
    )
    return Treated(**counts, examples=[_window(row) for row in examples])


def _window(row: Row) -> str:
    """ams-1 -> fra (decided 40, seen 10)"""
    if row["windows"]:
        seen = f"{row['windows'][0]}"
    elif row["high"] < row["decided"]:
        seen = f"at most {row['high']}"
    else:
        seen = f"at least {row['low']}"
    version = ", IPv6" if row["ip_version"] == 6 else ""
    return f"{row['host']} -> {row['dst_pop']}{version} (decided {row['decided']}, seen {seen})"


_PAIRS = """
select
    host, dst_pop, ip_version,
    argMax(decided_cwnd, order_key) as decided,
    argMax(toString(seen), order_key) as shown,
    argMax(first_cwnds, order_key) as windows,
    argMax(coalesce(first_cwnd_low_p50, 0), order_key) as low,
    argMax(coalesce(first_cwnd_high_p50, 0), order_key) as high
from (
    -- A round in which the value changed counts with the value that more connections have.
    select *, (seen != 'unknown', round, told_connections, connections) as order_key
    from round_treatments
    where round > fromUnixTimestamp({since:UInt32}) and round <= fromUnixTimestamp({until:UInt32})
)
group by host, dst_pop, ip_version
"""
_COUNTS = """
    countIf(decided != 10 and shown = 'same') as same,
    countIf(decided != 10 and shown = 'differs') as differs,
    countIf(decided != 10 and shown = 'unknown') as unknown,
    countIf(decided = 10 and shown = 'differs') as controls
"""
