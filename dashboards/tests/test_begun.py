"""Number of connections that begin with a value of their edge: those that were seen to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.generate import documents
from dashboards.plugin import View, expanded
from dashboards.tests.test_queries import clickhouse_targets
from testkit.home import FLEET, ROUND, Home

VIEW = View(ROUND - 86_400, ROUND + 120)
DOCUMENTS = documents()


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
        opened.execute(f"insert into rollups (round, generation) values (fromUnixTimestamp({ROUND}), 1)")
        for cookie, (weight, row) in enumerate(rows):
            row = {"src_pop": "ams", "pop": "ams", "began": 1, "counted": 1} | row
            names = ", ".join(row)
            values = ", ".join(repr(value) for value in row.values())
            opened.execute(
                f"insert into rollup_sockets (round, generation, host, cookie, sample_weight, {names}) "
                f"values (fromUnixTimestamp({ROUND}), 1, 'ams-1', {cookie}, {weight}, {values})"
            )
        [sql] = [
            target["rawSql"]
            for found, target in clickhouse_targets(DOCUMENTS["fleet.json"])
            if found == "Connections that begin with it"
        ]
        [row] = opened.query(expanded(sql, {}, VIEW))
        assert row == {"connections_percent": pytest.approx(100 * (5 + 2 + 4) / (5 + 2 + 1 + 4 + 8))}
    finally:
        opened.close()
    home.fleet.write_text(FLEET)
    home.policy.write_text("")
    steps = {one["what"]: one["text"] for one in json.loads(home.run("status", "--json", code=None).stdout)["steps"]}
    assert steps["traffic"].startswith("55.0% of 20 connections that began, clients' included, were seen to begin")
