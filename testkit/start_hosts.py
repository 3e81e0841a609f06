"""Turns what each host of a unit shows in a round, through the roll-up's model, into a row for the law of starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from testkit.home import Home
from testkit.path_model import Host, combined
from testkit.start_law import MSS, Rows, beginning, in_use, row

# Segments, of them sent again, and thousandths of its rate that were carried.
Flight = tuple[int, int, float]


def host(
    flights: Sequence[Flight] = (),
    on_trial: Sequence[Flight] = (),
    braked: int = 0,
    trains: Sequence[float] = (),
    reached: Sequence[float] = (),
) -> Host:
    """It has a connection even where none has a first flight."""
    made = Host()
    made.began = made.starts = max(1, len(flights) + len(on_trial))
    made.values |= {name: [(value, 1)] for name, value in (("snd_mss", MSS), ("min_rtt_us", 10**5), ("rtt_us", 10**5))}
    made.values["train"] = [(int(rate), 1) for rate in trains]
    made.values["reached"] = [(int(rate), 1) for rate in reached]
    made.counts["judged"] = [len(flights) + len(on_trial) + braked, braked, 0, 0]
    for arm, of_arm in enumerate((flights, on_trial)):
        if not of_arm:
            continue
        lost = [resent for _, resent, _ in of_arm]
        made.counts[f"arm {arm}"] = [len(of_arm), sum(n > 0 for n in lost), sum(lost), sum(n for n, _, _ in of_arm)]
        made.values[f"carried {arm}"] = [(int(part), 1) for _, resent, part in of_arm if not resent]
    return made


def shown(hosts: Mapping[str, Host], **more: Any) -> Rows:
    found = combined(hosts, [])
    values: dict[str, Any] = {name: found[name] for name in ("connections", "trains", "braked")}
    values["train_rate"] = found["train_p50_bytes_per_s"] or np.nan
    values["train_low_rate"] = found["train_p25_bytes_per_s"] or np.nan
    if found["reached_connections"]:
        values |= {
            "reached_rate": found["reached_p90_bytes_per_s"],
            "reached_connections": found["reached_connections"],
        }
    for arm, kind in ((0, "entry"), (1, "trial")):
        values |= {f"{n}_{arm}": found[f"{kind}_{n}"] for n in ("flights", "lossy", "resent", "segments")}
        values[f"carried_{arm}"] = found[f"{kind}_carried_permille"] / 1000 or np.nan
    return row(**(values | more))


class Day:
    """A day of rounds of a unit, and its rate in use in each. Nothing else is on the path, which carries 6 MB/s. Few
    flights start at each edge, all edges have a connection, and one may lie."""

    def __init__(self, lie: Host | None, mean_flights: float, edges: int) -> None:
        self.lie, self.mean_flights, self.edges = lie, mean_flights, edges
        self.draw = np.random.default_rng(0)
        self.rates: list[float] = []

    @classmethod
    def run(cls, home: Home, days: Sequence[Self]) -> None:
        """A unit of each, which depends on no other. No store is asked."""
        loop = beginning()
        in_use(loop, 6e6)
        loop.last = np.repeat(loop.last, len(days))
        loop.last["destination"] = [f"{number:03}".encode() for number in range(len(days))]
        for _ in range(288):
            found = loop.round(*(day.shown(last) for day, last in zip(days, loop.last, strict=True)))
            for day, rate in zip(days, found["connection_rate"], strict=True):
                day.rates.append(float(rate))

    def shown(self, last: np.void) -> Rows:
        use, tried = float(last["connection_rate"]), float(last["trial_connection_rate"])
        hosts = {} if self.lie is None else {"ams-9": self.lie}
        for edge in range(self.edges - 1):
            count = self.draw.poisson(self.mean_flights)
            of_trial = self.draw.binomial(count, last["trial_permille"] / 1000)
            in_use_now, on_trial = (
                [(70, 0, min(1000.0, 6e9 / max(rate, 1.0)))] * number
                for number, rate in ((count - of_trial, use), (of_trial, tried))
            )
            shows = list(6e6 * np.exp(self.draw.normal(0, 0.05, count)))
            hosts[f"ams-{edge}"] = host(in_use_now, on_trial, trains=shows)
        reached = {"reached_rate": np.clip(use, 4e5, 5.8e6), "reached_connections": 10}
        return shown(hosts, name=last["destination"].decode(), **reached)
