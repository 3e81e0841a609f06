"""Parts of decisions lie apart: who reads a few pairs' windows of many rounds reads no other part's rows."""

from __future__ import annotations

from springtide.store import Store

from testkit.home import ROUND

ROUNDS, PATHS = 24, 10_000


def test_windows_of_many_rounds_are_read_without_the_starts_between_them(store: Store) -> None:
    for part, count in (("start", PATHS), ("initcwnd", 1)):
        store.execute(
            f"""
            insert into path_decisions (round, part, src_pop, destination, ip_version)
            select toDateTime({ROUND} - 300 * intDiv(number, {count})), '{part}', 'a', toString(number % {count}), 4
            from numbers({ROUNDS * count})
            """
        )
    store.execute("optimize table path_decisions final")
    shown = store.query("explain estimate select initcwnd from path_decisions final where part = 'initcwnd'")
    assert sum(int(row["rows"]) for row in shown) < 3 * PATHS
    assert store.query("select count() as n from path_decisions final where part = 'initcwnd'") == [{"n": ROUNDS}]
