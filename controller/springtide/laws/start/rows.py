"""Decisions on starts as rows."""

from __future__ import annotations

from springtide.laws.rows import TABLE
from springtide.store import Row, Store


def history(store: Store, src_pop: str, destination: str, since_unix_s: int, until_unix_s: int) -> list[Row]:
    """A unit's decisions with since < round <= until, newest first, as people read them."""
    return store.query(
        f"""
        select
            formatDateTime(round, '%Y-%m-%dT%H:%i:%SZ', 'UTC') as round, ip_version, action, reason, window,
            round(connection_rate) as connection_rate, round(path_rate) as path_rate, trial_window,
            round(trial_connection_rate) as trial_rate, flights_0, lossy_0, flights_1, lossy_1, policy_version
        from {TABLE} final
        where part = 'start' and {TABLE}.round > fromUnixTimestamp({{since:UInt32}})
            and {TABLE}.round <= fromUnixTimestamp({{until:UInt32}})
            and src_pop = {{src_pop:String}} and destination = {{destination:String}}
        order by {TABLE}.round desc, ip_version
        """,
        {"since": max(0, since_unix_s), "until": until_unix_s, "src_pop": src_pop, "destination": destination},
    )
