"""A host whose clock is an hour off: no round is decided by its samples of another time."""

from __future__ import annotations

from pathlib import Path

import pytest
from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")

INTERVAL, ROUNDS = 300, 3
POLICY = """
initcwnd: {duty_rounds: 1}
congestion: {window_rounds: 10, min_rounds: 3, benefit_rounds: 2, min_stay_s: 600, holdout_share: 0, low_share: 0.1}
"""


def sockets(host: str, window: int, slow: int) -> list[Socket]:
    """Three connections to another PoP, and three to each of twelve client prefixes, of which one is slow."""
    address = f"10.77.1.{host[-1]}"
    first = 1000 * int(host[-1])
    found = [Socket(host, first + n, address, f"10.77.2.{2 + n}", "ams", window) for n in range(3)]
    for prefix in range(12):
        rate = 10_000 if prefix == slow else 1_000_000 + prefix
        more: dict[str, Value] = {"delivery_rate": rate, "rtt": 80_000}
        found += [
            Socket(host, first + 10 * prefix + 20 + n, address, f"198.51.{prefix}.{n + 1}", "ams", more=more)
            for n in range(3)
        ]
    return found


def samples(host: str, age: int, window: int = 40, slow: int = 4, off_s: int = 0) -> list[dict[str, Value]]:
    """What a host sends in a round `age` rounds ago, stamped `off_s` too late."""
    begin, number = ROUND - (age + 1) * INTERVAL + off_s, ROUNDS - age
    return [
        socket.at(begin + 10 + 50 * n, poll=6 * number + n, bytes_acked=(6 * number + n) * 1000 * MSS)
        for socket in sockets(host, window, slow)
        for n in range(6)
    ]


def feed(home: Home, name: str, rows: list[dict[str, Value]]) -> None:
    write_spool(home.spool, name, [record(rows)])
    home.run("ingest", home.spool)


def test_a_round_is_decided_without_a_host_whose_clock_is_an_hour_off(home: Home, tmp_path: Path) -> None:
    home.policy.write_text(POLICY)
    hosts = ("ams-1", "ams-2")
    feed(home, "before", [row for age in range(ROUNDS, 0, -1) for host in hosts for row in samples(host, age)])
    for age in range(ROUNDS, 0, -1):
        home.run("rollup", "--round", instants.show(ROUND - age * INTERVAL))
    for law in ("initcwnd", "congestion"):
        home.run("decide", law, "--round", instants.show(ROUND - INTERVAL))
    chosen = "select toString(client_prefix) as prefix from congestion_decisions final where algorithm = 'bbr'"
    assert {row["prefix"] for row in home.query(chosen)} == {"::ffff:198.51.4.0"}

    feed(home, "now", samples("ams-2", 0))
    without = {law: home.json("decide", law, "--dry-run", code=3)["decisions"] for law in ("initcwnd", "congestion")}
    # Its windows and its slow prefix are others than the PoP's: following them would show.
    for off_s in (3600, -3600):
        feed(home, f"off{off_s}", samples("ams-1", 0, window=95, slow=7, off_s=off_s))
        home.run("rollup", "--round", instants.show(ROUND))
        for law in ("initcwnd", "congestion"):
            gauges = tmp_path / f"{law}.prom"
            answer = home.json("decide", law, "--metrics", gauges, code=3)
            assert answer["decisions"] == without[law]
            assert answer["incomplete"] == {"ams": "1 of 2 hosts sent samples"}
            assert {row["reason"] for row in answer["decisions"]} == {"held_incomplete_input"}
            assert f'springtide_input_incomplete{{law="{law}",pop="ams"}} 1' in gauges.read_text().splitlines()
    [window] = home.query(f"select initcwnd from initcwnd_decisions final where toUnixTimestamp(round) = {ROUND}")
    assert window == {"initcwnd": 40}
