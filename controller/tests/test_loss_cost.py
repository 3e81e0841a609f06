"""`springtide sql loss-cost` and the same in `springtide advise`: what loss costs, and what would be saved of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")

NEAR, FAR, ALONE = "203.0.113.7", "198.51.100.7", "192.0.2.7"
NEAR_NET = "203.0.113.0/24"
EVERY = ("--set", "least=1")


def closed(cookie: int, client: str, busy_ms: int, size: int = 20_000, **more: Value) -> dict[str, Value]:
    """A connection to a client as it closed."""
    socket = Socket("ams-1", cookie, "10.77.1.1", client, "ams")
    kind = {"kind": "SAMPLE_KIND_CLOSE", "state": "TCP_STATE_CLOSE"}
    return socket.at(ROUND - 100, 100 + cookie, size, **{"busy_time": busy_ms * 1000, **kind, **more})


def lost(segments: int) -> dict[str, int]:
    return {"bytes_retrans": segments * MSS, "bytes_sent": 20_000 + segments * MSS, "total_retrans": segments}


def handshake(cookie: int, client: str, rtt_ms: float, again: int = 0, own_ms: int = 0) -> dict[str, Value]:
    """The record of a connection that began."""
    seen: dict[str, Value] = {
        "total_retrans": 0,
        "data_segs_out": 4,
        "handshake_rtt": round(1000 * rtt_ms),
        "handshake_timeout_ms": own_ms,
        "handshake_retrans": again,
        "lived_time": 90_000,
    }
    return Socket("ams-1", cookie, "10.77.1.1", client, "ams").first_flight(ROUND - 100, 100, 5000, **seen)


CLOSES = [
    *(closed(number, NEAR, busy_ms) for number, busy_ms in ((1, 90), (2, 110))),
    closed(3, NEAR, 500, **lost(2), total_rto=1, total_rto_time=300),
    # Farther away, and so slower by itself: beside the near ones all of it would seem to be loss.
    *(closed(number, FAR, 400) for number in (4, 5)),
    closed(6, FAR, 600, **lost(1), total_rto=0),
    # The receiver had it twice: nothing was lost.
    closed(7, FAR, 400, **lost(1), dsack_dups=1),
    # Nothing to compare it with, of a kernel that counts no timeouts; and another size.
    closed(8, ALONE, 900, **lost(1)),
    closed(9, NEAR, 5000, 400_000),
]

# Without a rate there is no advice.
POLLED = Socket("ams-1", 5000, "10.77.1.1", NEAR, "ams").at(ROUND - 200, 90, 20_000)


def load(home: Home, samples: list[dict[str, Value]]) -> None:
    """Each of them twice, in two files: copies count once."""
    write_spool(home.spool, "a", [record(samples)])
    write_spool(home.spool, "b", [record(samples)])
    home.run("ingest", home.spool)
    home.run("rollup", "--from", instants.show(ROUND - 300), "--to", instants.show(ROUND))


@pytest.fixture(scope="module")
def unrecorded(shared: Home) -> Home:
    """Connections of which no record says how they began."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: ROUND + 30)
        load(shared, [POLLED, *CLOSES])
    return shared


def test_those_that_lost_something_are_compared_with_those_of_their_prefix_and_size(unrecorded: Home) -> None:
    home = unrecorded
    total, *paths = home.json("sql", "loss-cost", *EVERY)
    assert total == {
        **{"src_pop": "", "destination": "", "ip_version": 0},
        **{"connection_count": 9, "lossy_percent": 33.33},
        # 500 and 600 ms; without loss 100 and 400. All was outstanding for 8,400 ms.
        **{"times_slower": 2.2, "cost_s": 0.6, "cost_percent": 7.14},
        # One of the two that count them.
        **{"timeout_percent": 50, "timeout_s": 0.3},
        # One of 2 + 1 + 1 + 1 segments.
        "in_vain_percent": 20,
        **{"handshake_count": 0, "handshake_again_count": 0, "second_count": 0, "handshake_wait_s": 0},
    }
    shown = ("destination", "connection_count", "lossy_percent", "times_slower", "cost_s", "in_vain_percent")
    assert [tuple(row[name] for name in shown) for row in paths] == [
        (NEAR_NET, 4, 25, 5, 0.4, 0),
        # Two segments were sent again; one of them had arrived.
        ("198.51.100.0/24", 4, 25, 1.5, 0.2, 50),
        ("192.0.2.0/24", 1, 100, None, None, 0),
    ]
    assert len(home.json("sql", "loss-cost", "--set", "least=4")) == 3
    # None has thirty; all together they count.
    assert home.json("sql", "loss-cost") == [total]
    assert home.json("sql", "loss-cost", "--set", "src=fra")[0]["connection_count"] == 0
    # Nothing is of the hour before.
    assert home.json("sql", "loss-cost", "--set", f"until_s={ROUND - 3600}")[0]["connection_count"] == 0


def test_advice_without_records_of_handshakes_estimates_nothing(unrecorded: Home) -> None:
    screen = unrecorded.run("advise").stdout
    assert "33.33 % of 9 connections" in screen
    assert "recorded handshakes" not in screen
    found = unrecorded.json("advise")["loss"]
    assert (found["all"]["estimated"]["saved_s"], found["paths"]) == (0, [])


def test_advice_says_what_a_timeout_of_its_own_would_save_of_the_waits_of_handshakes(
    home: Home, tmp_path: Path
) -> None:
    home.policy.write_text("enforce: {by: bpf}\n")
    records = [
        # 99 % take up to 100 ms: a timeout of 150 ms, 200 for a SYN-ACK. Three more were sent again, one of them twice.
        *(handshake(1000 + number, NEAR, 100) for number in range(196)),
        *(handshake(2000 + number, NEAR, 100, again) for number, again in enumerate((1, 1, 2))),
        # This one had 180 ms already.
        handshake(2003, NEAR, 100, 1, own_ms=180),
        # Too few for the law, and for a row.
        *(handshake(3000 + number, FAR, 20, 1) for number in range(29)),
        # Nothing is saved where a timeout would be about a second.
        *(handshake(4000 + number, ALONE, 700, int(number < 2)) for number in range(100)),
    ]
    load(home, [POLLED, *CLOSES, *records])
    html = tmp_path / "advice.html"
    found: dict[str, Any] = home.json("advise", "--html", html)["loss"]
    near, alone = found["paths"]
    waits = ("handshake_count", "handshake_again_count", "second_count", "handshake_wait_s")
    # Four waits of a second, and one of 180 ms.
    assert [near["destination"], *(near[name] for name in waits)] == [NEAR_NET, 200, 4, 4, 4.18]
    assert near["estimated"] == {"handshake_timeout_ms": 150, "saved_s": 4 * 0.8}
    assert [alone["destination"], *(alone[name] for name in waits)] == ["192.0.2.0/24", 100, 2, 2, 2]
    assert alone["estimated"] == {"handshake_timeout_ms": 0, "saved_s": 0}
    assert [found["all"][name] for name in waits] == [329, 35, 35, 35.18]
    assert found["all"]["estimated"]["saved_s"] == 3.2
    assert (found["paths_known"], found["paths_with_timeout"], found["handshakes_with_timeout"]) == (2, 1, 200)
    screen = home.run("advise").stdout
    for said in (
        "Measured: 33.33 % of 9 connections that closed lost something. They took 2.20 times as long",
        "Measured: 35 of 329 recorded handshakes were sent again and waited 35.2 s",
        "1 paths with 200 of these handshakes would wait 3.2 s less, 16.00 ms a connection",
    ):
        assert said in screen
        assert said in html.read_text()
