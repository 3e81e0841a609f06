"""Tenants' connections: those that fleet.yaml gives each, and the round's slices by tenant and autonomous system."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest
import yaml
from springtide.fleet import Fleet, load_fleet
from springtide.observe.asn import Origin, publish_origins
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import rollup
from springtide.store import Row, Store

from testkit.home import FLEET, ROUND, Home

TENANTS = """
tenants:
  shop: {ports: [443, 8443]}
  mail: {ports: [25], addresses: [10.77.1.1/32, "fd77:1::/64"]}
  backup: {ports: [25], addresses: [10.77.1.2/32]}
  rest: {ports: [25], addresses: [10.77.2.0/24], start: off}
"""
CLIENT = "198.51.100.7"
SLICES = "select * from round_slices order by pop, dst_pop, tenant, dst_asn, started"


def closing(cookie: int, port: int, address: str = "::ffff:10.77.1.1", host: str = "ams-1", **more: Any) -> Row:
    """The close of a connection that was served on this port and address, of 200 kB in 50 ms."""
    return {
        "time_unix_us": (ROUND - 100) * 1_000_000 + cookie,
        "host": host,
        "boot_id": "boot",
        "netns": 1,
        "poll_sequence": 1,
        "cookie": cookie,
        "kind": "CLOSE",
        "state": "CLOSE",
        "src_ip": address,
        "src_port": port,
        "dst_ip": f"::ffff:{CLIENT}",
        "dst_port": 40_000,
        "snd_mss": 1448,
        "bytes_acked": 200_000,
        "bytes_sent": 210_000,
        "bytes_retrans": 10_000,
        "busy_time": 50_000,
        "dsack_dups": 0,
        "started_round": None,
        "started_window": None,
        "started_rate": None,
        **more,
    }


def rolled(store: Store, rows: list[Row], fleet: str = FLEET + TENANTS) -> list[Row]:
    publish_fleet(store, Fleet.model_validate(yaml.safe_load(fleet)))
    store.insert("tcp_samples", rows)
    rollup(store, ROUND, 300, ROUND + 60)
    return store.query(SLICES)


def test_the_edges_port_and_address_say_whose_a_connection_is(store: Store) -> None:
    """And a tenant that keeps the default is not taken for started, whatever was decided for the edge: a record of the
    program would say otherwise."""
    slices = rolled(
        store,
        [
            closing(1, 443),
            closing(2, 8443, "fd77:1::9"),
            closing(3, 25),
            closing(4, 25, "fd77:1::9"),
            closing(5, 25, "::ffff:10.77.1.2"),
            closing(6, 25, "::ffff:10.77.1.3"),
            # The peer's port and address say nothing.
            closing(7, 50_000, dst_port=25, dst_ip="::ffff:10.77.2.1"),
            closing(8, 25, "::ffff:10.77.2.1", "fra-1"),
        ],
    )
    found = store.query("select cookie, tenant, opted_out, start_cwnd from round_sockets order by cookie")
    named = {row["cookie"]: row["tenant"] for row in found}
    assert named == {1: "shop", 2: "shop", 3: "mail", 4: "mail", 5: "backup", 6: "", 7: "", 8: "rest"}
    assert [(row["cookie"], row["start_cwnd"]) for row in found if row["opted_out"]] == [(8, 10)]
    [opted] = [row for row in slices if row["pop"] == "fra"]
    assert (opted["tenant"], opted["started"]) == ("rest", False)


def test_without_tenants_no_connection_has_one(store: Store) -> None:
    rolled(store, [closing(1, 443)], FLEET + TENANTS)
    [row] = rolled(store, [closing(2, 443)], FLEET)
    assert (row["tenant"], row["connections"]) == ("", 2)


def test_slices_tell_tenants_systems_and_starts_apart(store: Store) -> None:
    publish_origins(store, [Origin("198.51.100.0/24", 64500, "Near"), Origin("198.51.0.0/16", 64501, "Far")])
    written: dict[str, Any] = {"started_round": ROUND - 600, "started_rate": 0}
    rows = rolled(
        store,
        [
            # With the program's window, and where it left the kernel's.
            closing(1, 443, started_window=40, **written),
            closing(2, 443, started_window=40, busy_time=200_000, dsack_dups=7, **written),
            closing(3, 443, started_window=0, bytes_acked=5000, **written),
            # No record: the kernel's default; too large to be timed.
            closing(4, 443, bytes_acked=300_000),
            closing(5, 25, dst_ip="::ffff:198.51.3.4"),
            # To another PoP; within the PoP, which counts for nobody; and nothing delivered.
            closing(6, 443, dst_ip="::ffff:10.77.3.9"),
            closing(7, 443, dst_ip="::ffff:10.77.1.9"),
            closing(8, 443, bytes_acked=0),
        ],
    )
    found = {(row["dst_pop"], row["tenant"], row["dst_asn"], row["started"]): row for row in rows}
    assert list(found) == [
        ("", "mail", 64501, False),
        ("", "shop", 64500, False),
        ("", "shop", 64500, True),
        ("nyc", "shop", 0, False),
    ]
    treated = found["", "shop", 64500, True]
    assert (treated["connections"], treated["timed_connections"]) == (2, 2)
    assert treated["busy_log2_thousandths"] == pytest.approx(1000 * (log2(50_000) + log2(200_000)), abs=1)
    # Seven segments arrived twice: they were not lost.
    assert treated["lossy_connections"] == 1
    assert (treated["bytes_sent"], treated["bytes_retransmitted"]) == (420_000, 20_000)
    default = found["", "shop", 64500, False]
    assert (default["connections"], default["timed_connections"], default["bytes_acked"]) == (2, 0, 305_000)


@pytest.mark.parametrize(
    ("tenants", "expected"),
    [
        ("{a: {}}", "tenants.a: has neither ports nor addresses; give one of them, or both"),
        ("{A: {ports: [1]}}", "'A' is not a name"),
        ("{a: {ports: [0]}}", "0 is not a port; give the server's port, 1 to 65535"),
        ("{a: {ports: [true]}}", "True is not a port"),
        ("{a: {ports: []}}", "tenants.a.ports"),
        ("{a: {ports: [1, 1]}}", "tenants.a.ports: lists something twice"),
        ("{a: {addresses: [0.0.0.0/0]}}", "0.0.0.0/0 is a default route"),
        ("{a: {ports: [1], start: maybe}}", "'maybe' is neither on nor off"),
        ("{a: {ports: [1], owner: x}}", "tenants.a.owner"),
        (
            "{a: {ports: [1]}, b: {addresses: [10.0.0.0/8]}}",
            "tenants.b: any port of 10.0.0.0/8 is also port 1 of tenant a (line 17)",
        ),
        (
            "{a: {ports: [1], addresses: [10.1.0.0/16]}, b: {ports: [2, 1], addresses: [10.0.0.0/8]}}",
            "port 1 of 10.0.0.0/8 is also port 1 of 10.1.0.0/16 of tenant a",
        ),
        (f"{{a: {{ports: {list(range(1, 258))}}}}}", "have 257 pairs of a port and an address, where"),
        (
            "{a: {ports: [1, 2, 3, 4, 5], addresses: [" + ", ".join(f"10.0.{n}.0/24" for n in range(13)) + "]}}",
            "have 65 pairs of a port and an address that are not ports alone, where there is room for 64",
        ),
        (f"{{a: {{ports: {list(range(1, 66))}, start: off}}}}", "65 pairs of a port and an address with start: off"),
        ("{" + ", ".join(f"t{n}: {{ports: [{n + 1}]}}" for n in range(65)) + "}", "has 65; name at most 64"),
    ],
)
def test_bad_tenants_are_one_line_with_place_and_fix(bare_home: Home, tenants: str, expected: str) -> None:
    bare_home.fleet.write_text(f"{FLEET}tenants: {tenants}\n")
    lines = bare_home.refused("check")
    assert any(f"{bare_home.fleet}" in line and expected in line for line in lines), lines


def test_disjoint_tenants_are_read(bare_home: Home) -> None:
    bare_home.fleet.write_text(FLEET + TENANTS)
    fleet = load_fleet(bare_home.fleet)
    assert [(str(rule), rule.tenant) for rule in fleet.tenant_rules() if rule.opted_out] == [
        ("port 25 of 10.77.2.0/24", "rest")
    ]
    assert len(fleet.tenant_rules()) == 6
