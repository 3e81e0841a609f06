"""Numbers of panels, each over rows that show it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from springtide.store import Store

from dashboards.generate import documents
from dashboards.plugin import View, expanded
from dashboards.tests.test_queries import clickhouse_targets
from testkit.home import FLEET, ROUND, Home

VIEW = View(ROUND - 86_400, ROUND + 120)
DOCUMENTS = documents()


def query(name: str, title: str) -> str:
    [sql] = [target["rawSql"] for found, target in clickhouse_targets(DOCUMENTS[name]) if found == title]
    return str(sql)


def show(store: Store, sockets: list[tuple[dict[str, Any], int]]) -> None:
    """Sockets of one host in a round, each with its weight."""
    store.execute(f"insert into rollups (round, generation) values (fromUnixTimestamp({ROUND}), 1)")
    for cookie, (row, weight) in enumerate(sockets):
        row = {"pop": "ams", "counted": 1} | row
        names = ", ".join(row)
        values = ", ".join(repr(value) for value in row.values())
        store.execute(
            f"insert into rollup_sockets (round, generation, host, cookie, sample_weight, {names}) "
            f"values (fromUnixTimestamp({ROUND}), 1, 'ams-1', {cookie}, {weight}, {values})"
        )


def test_connections_count_as_begun_with_a_value_where_that_was_seen(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("migrate")
    given = {"recorded": 1, "started": 1}
    rows: list[tuple[int, dict[str, Any]]] = [
        # By the program, to a PoP and to a client; held out by it; by a route; by nothing that shows.
        (5, {"dst_pop": "fra"} | given),
        (2, {"dst_pop": ""} | given),
        (1, {"dst_pop": "fra", "recorded": 1}),
        (4, {"dst_pop": "nyc", "started": 1, "first_cwnd_low": 40, "first_cwnd_high": 40}),
        (8, {"dst_pop": "nyc", "started": 1, "first_cwnd_low": 10, "first_cwnd_high": 10}),
        # Within the PoP; and one that was there before.
        (64, {"dst_pop": "ams"} | given),
        (64, {"dst_pop": "fra", "began": 0} | given),
    ]
    opened = home.open()
    try:
        show(opened, [({"src_pop": "ams", "began": 1} | row, weight) for weight, row in rows])
        [row] = opened.query(expanded(query("fleet.json", "Connections that begin with it"), {}, VIEW))
        assert row == {"connections_percent": pytest.approx(100 * (5 + 2 + 4) / (5 + 2 + 1 + 4 + 8))}
    finally:
        opened.close()
    home.fleet.write_text(FLEET)
    home.policy.write_text("")
    steps = {one["what"]: one["text"] for one in json.loads(home.run("status", "--json", code=None).stdout)["steps"]}
    assert steps["traffic"].startswith("55.0% of 20 connections that began, clients' included, were seen to begin")


def test_a_publication_reaches_the_edges_of_all_its_waves(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("migrate")
    opened = home.open()
    try:
        events = [
            ("second", 60, "publish", ["ams-1", "fra-1"]),
            ("second", 70, "wave", ["ams-1"]),
            # A gate looks at it again, later.
            ("first", 0, "publish", ["ams-1", "ams-2", "fra-1"]),
            ("first", 10, "wave", ["ams-1"]),
            ("first", 20, "wave", ["ams-2", "fra-1"]),
            ("first", 90, "gate", ["ams-1"]),
            # Published before the time that is shown.
            ("before", 0, "wave", ["ams-1"]),
        ]
        rows = [
            {"at": ROUND + at, "id": str(number), "event": event, "publication": name, "edges": edges}
            for number, (name, at, event, edges) in enumerate(events)
        ]
        opened.insert("audit", rows)
        found = opened.query(expanded(query("rollouts.json", "Publications on their way"), {}, VIEW))
        seen = [(row["publication"], row["waves"], row["edges_reached"], row["published_at"]) for row in found]
    finally:
        opened.close()
    assert [one[:3] for one in seen] == [("second", 1, 1), ("first", 2, 3), ("before", 1, 1)]
    assert [one[3] is None for one in seen] == [False, False, True]


def test_what_is_unknown_of_a_connection_is_in_no_median(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("migrate")
    opened = home.open()
    try:
        unknown: dict[str, Any] = {"client_prefix": "::ffff:192.0.2.0", "ip_version": 4}
        known = unknown | {"delivery_rate_bytes_per_s": 1_250_000, "rtt_us": 20_000}
        show(opened, [(unknown, 1), (known, 1), (unknown, 1)])
        values = {"prefix": [""], "host": ["ams-1"], "asn": ["0"], "peer": [""]}
        [row] = opened.query(expanded(query("connections.json", "Prefixes"), values, VIEW))
        assert (row["rtt_p50_ms"], row["delivery_p50_mbit_per_s"]) == (20, 10)
    finally:
        opened.close()
