"""Traffic whose gain is worked out by hand, and the answers about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from unittest.mock import patch

from springtide import instants

from testkit.home import ROUND, Home
from testkit.proto import Value
from testkit.sent import Apart
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

UNSET = 2**31 - 1
OWN = {"ams-1": "10.77.1.1", "fra-1": "10.77.2.1"}


class Traffic:
    """Connections of two edges, as their collectors' polls show them a minute apart: a hundred minutes before ROUND."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Value]] = []
        self.cookies = 0
        # Connections in the first poll may be of any age.
        for host in OWN:
            self.connection(host, "10.77.3.9", 1_000, minute=0, size=100, met=False)

    def connection(
        self, host: str, peer: str, rate: int, *, minute: int, size: int, met: bool = True, **more: Value
    ) -> None:
        """Polled once with its window in flight, and closed half a minute later. `rate` in bytes/s; where it `met` the
        path it has left slow start."""
        self.cookies += 1
        rtt = int(str(more.get("min_rtt", 100_000)))
        # Twice as much in flight as the round trip carries would be too much for a connection that is limited.
        window = max(10, rate * rtt // 1_000_000 // MSS)
        values: dict[str, Value] = {
            "min_rtt": rtt,
            "rtt": rtt + rtt // 20,
            "snd_ssthresh": window if met else UNSET,
            "snd_wnd": 4_000_000,
            "delivery_rate": rate,
            "busy_time": 500_000,
            "rwnd_limited": 0,
            "bytes_sent": size + int(str(more.get("bytes_retrans", 0))),
        }
        socket = Socket(host, self.cookies, OWN[host], peer, snd_cwnd=window, more=values | more)
        at = ROUND - 6000 + 60 * minute
        self.samples.append(socket.at(at, 100 + minute, size))
        self.samples.append(socket.at(at + 30, 101 + minute, size, kind="SAMPLE_KIND_CLOSE", state="TCP_STATE_CLOSE"))

    def load(self, home: Home) -> None:
        write_spool(home.spool, "traffic", [record(self.samples)])
        home.run("ingest", home.spool)


class Advised(Apart):
    """Traffic that is loaded once for all cases; then what is advised of the case's paths by its policy. Where edges
    pace, the last round but one is rolled up."""

    advised: Sequence[dict[str, Any]]

    def __init__(self, traffic: Traffic, policy: str = "{}\n") -> None:
        self.samples, self.policy = traffic.samples, policy

    @classmethod
    def run(cls, home: Home, cases: Sequence[Self]) -> None:
        cls.place(home, cases)
        write_spool(home.spool, "traffic", [record(case.moved(case.samples)) for case in cases])
        with patch.object(instants, "now", lambda: ROUND + 30):
            home.run("ingest", home.spool)
            for policy in dict.fromkeys(case.policy for case in cases):
                home.policy.write_text(policy)
                paths = home.json("advise", "--top", 1000)["paths"]
                for case in cases:
                    if case.policy == policy:
                        case.advised = case.named(paths)
                if "bpf" in policy:
                    home.run("rollup", "--round", instants.show(ROUND - 300))

    def path(self, source: str = "ams", destination: str = "fra") -> dict[str, Any]:
        return path({"paths": self.advised}, source, destination)


def path(answer: dict[str, Any], source: str, destination: str) -> dict[str, Any]:
    [found] = [one for one in answer["paths"] if (one["src_pop"], one["destination"]) == (source, destination)]
    return dict(found)


def of_size(found: dict[str, Any], size: int) -> dict[str, Any]:
    [one] = [one for one in found["sizes"] if one["size_bytes"] == size]
    return dict(one)


def by_hand_ms(size: int, rtt_ms: float, rate: float, window: int) -> float:
    """Flight by flight: each is sent at the rate; the next begins when its first acknowledgement is there."""
    began, sent = 0.0, 0
    while True:
        length = min(size - sent, window * MSS)
        sent += length
        ends = began + length / rate * 1000
        if sent == size:
            return rtt_ms + ends
        began = max(ends, began + rtt_ms)
        window *= 2
