"""Client networks at insert: the peer's prefix, and the autonomous system that originates it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.home import ROUND, Home
from testkit.spool import record, write_spool
from testkit.traffic import Socket

TABLE = """prefix,asn,name
198.51.100.0/24,64500,Example One
198.51.0.0/16,64501,Example Two
2001:db8:7::/48,4200000000,"Example Three, Inc."
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "origins.csv"
    path.write_text(TABLE)
    return path


def load(home: Home, *peers: str) -> None:
    sockets = [Socket("ams-1", 1 + n, "10.77.1.1", peer, "ams") for n, peer in enumerate(peers)]
    write_spool(home.spool, "ams-1", [record([socket.at(ROUND - 100, 7, 1000) for socket in sockets])])
    home.run("ingest", str(home.spool))


def networks(home: Home) -> dict[str, tuple[str, int, str]]:
    rows = home.query(
        "select toString(dst_ip) as peer, toString(client_prefix) as prefix, dst_asn, "
        "dictGetOrDefault('asns', 'name', client_prefix, '') as name from tcp_samples final"
    )
    return {row["peer"]: (row["prefix"], row["dst_asn"], row["name"]) for row in rows}


def test_samples_carry_their_peers_prefix_and_system(home: Home, table: Path) -> None:
    assert home.json("asn", table) == {"prefixes": 3}
    load(home, "198.51.100.7", "198.51.7.8", "192.0.2.9", "2001:db8:7:1ff::5")
    assert networks(home) == {
        "::ffff:198.51.100.7": ("::ffff:198.51.100.0", 64500, "Example One"),
        "::ffff:198.51.7.8": ("::ffff:198.51.7.0", 64501, "Example Two"),
        "::ffff:192.0.2.9": ("::ffff:192.0.2.0", 0, ""),
        "2001:db8:7:1ff::5": ("2001:db8:7:100::", 4200000000, "Example Three, Inc."),
    }


def test_without_a_table_there_are_prefixes_and_no_systems(home: Home) -> None:
    load(home, "198.51.100.7")
    assert networks(home) == {"::ffff:198.51.100.7": ("::ffff:198.51.100.0", 0, "")}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("198.51.100.0/24,64502,Again", "is listed twice"),
        ("198.51.100.1/24,64502,Host bits", "has host bits set"),
        ("198.18.0.0/15,AS64502,Letters", "is not an AS number"),
        ("198.18.0.0/15,4294967296,Too large", "is not an AS number"),
        ("198.18.0.0/15,64502", "2 fields instead of 3"),
    ],
)
def test_a_table_with_a_bad_line_is_refused_as_a_whole(home: Home, table: Path, line: str, why: str) -> None:
    home.run("asn", table)
    table.write_text(TABLE + line + "\n")
    [error] = home.refused("asn", table)
    assert "line 5" in error
    assert why in error
    assert home.query("select count() as n from asn_prefixes") == [{"n": 3}]


def test_a_file_of_another_kind_is_refused(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "pfx2as"
    path.write_text("198.51.100.0\t24\t64500\n")
    [error] = home.refused("asn", path)
    assert "begin with prefix,asn,name" in error
