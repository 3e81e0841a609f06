"""Sockets with a life: samples as polls of them would give."""

from __future__ import annotations

from dataclasses import dataclass, field

from testkit.proto import Value

MSS = 1448
RTT_US = 20_000
_OF_FIRST_FLIGHTS = (
    *("time_unix_us", "host", "pop", "boot_id", "netns", "poll_sequence", "cookie", "family"),
    *("src_ip", "src_port", "dst_ip", "dst_port", "bytes_acked", "min_rtt"),
)


@dataclass
class Socket:
    """One connection of `host`; `at` is what a poll at that moment sees: its window full wherever bytes were gained."""

    host: str
    cookie: int
    src_ip: str
    dst_ip: str
    pop: str = ""
    snd_cwnd: int = 40
    state: str = "TCP_STATE_ESTABLISHED"
    more: dict[str, Value] = field(default_factory=dict)

    def at(self, unix_s: float, poll: int, bytes_acked: int, **changed: Value) -> dict[str, Value]:
        sample: dict[str, Value] = {
            "time_unix_us": int(unix_s * 1_000_000) + self.cookie,
            "host": self.host,
            "pop": self.pop,
            "boot_id": f"{self.host:-<36}"[:36],
            "netns": 4026531840,
            "poll_sequence": poll,
            "cookie": self.cookie,
            "kind": "SAMPLE_KIND_POLL",
            "state": self.state,
            "src_ip": self.src_ip,
            "src_port": 443,
            "dst_ip": self.dst_ip,
            "dst_port": 40000 + self.cookie % 20000,
            "family": 10 if ":" in self.src_ip else 2,
            "snd_cwnd": self.snd_cwnd,
            "snd_mss": MSS,
            "bytes_acked": bytes_acked,
            # A window in a round trip, less a part of a segment that is another with other bytes.
            "min_rtt": RTT_US,
            "delivery_rate": max(0, self.snd_cwnd * MSS * 1_000_000 // RTT_US - bytes_acked % 65_521),
            "delivery_rate_app_limited": False,
            "bytes_sent": bytes_acked,
            "bytes_retrans": 0,
        }
        return {**sample, **self.more, **changed}

    def first_flight(self, unix_s: float, poll: int, bytes_acked: int, **seen: Value) -> dict[str, Value]:
        """The record of how it began: of polls' fields those that records have, and what it saw."""
        row = self.at(unix_s, poll, bytes_acked)
        kind: dict[str, Value] = {"kind": "SAMPLE_KIND_FIRST_FLIGHT", "state": "TCP_STATE_UNSPECIFIED"}
        return {name: row[name] for name in _OF_FIRST_FLIGHTS} | kind | seen
