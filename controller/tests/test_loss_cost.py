"""`springtide sql loss-cost`: what connections that lost something took longer than those beside them that did not."""

from __future__ import annotations

import pytest
from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

pytestmark = pytest.mark.usefixtures("clock")


def closed(cookie: int, client: str, busy_ms: int, size: int = 20_000, **more: Value) -> dict[str, Value]:
    """A connection to a client as it closed."""
    socket = Socket("ams-1", cookie, "10.77.1.1", client, "ams")
    kind = {"kind": "SAMPLE_KIND_CLOSE", "state": "TCP_STATE_CLOSE"}
    return socket.at(ROUND - 100, 100 + cookie, size, **{"busy_time": busy_ms * 1000, **kind, **more})


def lost(segments: int) -> dict[str, int]:
    return {"bytes_retrans": segments * MSS, "bytes_sent": 20_000 + segments * MSS, "total_retrans": segments}


def test_those_that_lost_something_are_compared_with_those_of_their_prefix_and_size(home: Home) -> None:
    near, far, alone = "203.0.113.7", "198.51.100.7", "192.0.2.7"
    samples = [
        *(closed(number, near, busy_ms) for number, busy_ms in ((1, 90), (2, 110))),
        closed(3, near, 500, **lost(2), total_rto=1),
        # Farther away, and so slower by itself: beside the near ones all of it would seem to be loss.
        *(closed(number, far, 400) for number in (4, 5)),
        closed(6, far, 600, **lost(1), total_rto=0),
        # The receiver had it twice: nothing was lost.
        closed(7, far, 400, **lost(1), dsack_dups=1),
        # Nothing to compare it with, and another size.
        closed(8, alone, 900, **lost(1)),
        closed(9, near, 5000, 400_000),
    ]
    write_spool(home.spool, "a", [record(samples)])
    home.run("ingest", home.spool)
    home.run("rollup", "--round", instants.show(ROUND))
    found = {row["from_kb"]: row for row in home.json("sql", "loss-cost")}
    assert found.keys() == {10, 300}
    assert found[10] == {
        "src_pop": "ams",
        "peer": "clients",
        "from_kb": 10,
        "connection_count": 8,
        "lossy_percent": 37.5,
        # 500 and 600 ms; without loss 100 and 400.
        "times_slower": 2.2,
        # 600 of 3,400 ms.
        "cost_percent": 17.65,
        "timeout_percent": 33.3,
    }
    assert (found[300]["lossy_percent"], found[300]["times_slower"], found[300]["cost_percent"]) == (0, None, 0)
