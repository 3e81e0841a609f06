"""Reduces the demo's measurements to the numbers that people compare: pure functions over probes and decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, TypeVar

import numpy as np

from lab.demo.starts import Start

K = TypeVar("K")

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95}
# Resamples: bounds of an interval of 95 % move by a hundredth of it.
DRAWS = 2000


@dataclass(frozen=True)
class Transfer:
    """One probe over a fresh connection.

    `src` is the PoP that served the object (its initial window is what changes), `dst` the PoP that requested it.
    `transfer_ms` runs from the request to the last byte.
    """

    src: str
    dst: str
    rtt_ms: float
    size_bytes: int
    transfer_ms: float


@dataclass(frozen=True)
class Closed:
    """Counts of the sender's kernel for one closed probe connection, in segments."""

    src: str
    dst: str
    rtt_ms: float
    size_bytes: int
    segments: int
    retransmitted: int


@dataclass(frozen=True)
class Phase:
    """All probes of one phase, before or after the routes were applied."""

    transfers: Sequence[Transfer]
    closed: Sequence[Closed]


@dataclass(frozen=True)
class Route:
    """A directed path as the demo shows it: `initcwnd` None where the kernel's default stands, `rate_mbit` None where
    the path has no rate, `start` None where the serving edge enforces by routes."""

    rtt_ms: float
    rate_mbit: float | None
    initcwnd: int | None
    start: Start | None = None

    def in_force(self) -> dict[str, Any]:
        """Values that connections were given, as summary.json has them."""
        if self.start is None:
            return {"enforced_by": "routes", "initcwnd": self.initcwnd, "start_rate": None, "connection_rate": None}
        return {"enforced_by": "bpf", **asdict(self.start)}

    def limit_ms(self, size_bytes: int) -> float:
        """The least time of any start: the round trip, and the object at the path's rate."""
        return self.rtt_ms + (0.0 if self.rate_mbit is None else size_bytes * 8 / (self.rate_mbit * 1000))


@dataclass(frozen=True)
class Group:
    """One line of the closing table: an RTT group and an object size, before against after."""

    rtt_ms: float
    size_bytes: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    slower: Mapping[str, Mapping[str, float]]
    rtts_saved_p50: float
    retransmitted_before: float
    retransmitted_after: float


def spread(times_ms: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 95th percentile (inclusive, linear between ranks) and the number of measurements.

    Raises ValueError when there is none: a phase without probes has no summary.
    """
    if not times_ms:
        raise ValueError("no probe came back: nothing to summarise")
    if len(times_ms) == 1:
        only = round(times_ms[0], 2)
        return {"p50": only, "p90": only, "p95": only, "n": 1}
    cuts = quantiles(times_ms, n=100, method="inclusive")
    return {
        "p50": round(cuts[49], 2),
        "p90": round(cuts[89], 2),
        "p95": round(cuts[94], 2),
        "n": len(times_ms),
    }


def slower(before_ms: Sequence[float], after_ms: Sequence[float]) -> dict[str, dict[str, float]]:
    """Time that it took longer after, by QUANTILES, ms (negative: shorter), with an interval of 95 % by bootstrap over
    each phase's probes. The same times give the same interval."""
    chance = np.random.default_rng(len(before_ms) + len(after_ms))
    found = {}
    for name, quantile in QUANTILES.items():
        estimates = []
        drawn = []
        for times in (np.asarray(before_ms), np.asarray(after_ms)):
            estimates.append(np.quantile(times, quantile))
            drawn.append(np.quantile(chance.choice(times, (DRAWS, len(times))), quantile, axis=1))
        low, high = np.quantile(drawn[1] - drawn[0], (0.025, 0.975))
        by = {"estimate": estimates[1] - estimates[0], "low": low, "high": high}
        found[name] = {bound: round(float(value), 2) for bound, value in by.items()}
    return found


def ratio(closed: Iterable[Closed]) -> float:
    """Retransmitted data segments as a share of the data segments sent, 0 when nothing was sent."""
    rows = list(closed)
    sent = sum(row.segments for row in rows)
    return sum(row.retransmitted for row in rows) / sent if sent else 0.0


def ratio_p50(closed: Iterable[Closed]) -> float:
    """The median connection's share of data segments sent again, 0 without connections: which is what a burst that does
    not fit costs, where a few connections that met other traffic make the share of all."""
    shares = [ratio([row]) for row in closed]
    return median(shares) if shares else 0.0


def rtts_saved(before: Mapping[str, float], after: Mapping[str, float], rtt_ms: float) -> float:
    """Round trips by which the median transfer became shorter."""
    # Plus 0.0: a rounded loss of nothing is 0.0, not -0.0.
    return round((before["p50"] - after["p50"]) / rtt_ms, 2) + 0.0


def _grouped(transfers: Iterable[Transfer], key: Callable[[Transfer], K]) -> dict[K, list[float]]:
    groups: defaultdict[K, list[float]] = defaultdict(list)
    for transfer in transfers:
        groups[key(transfer)].append(transfer.transfer_ms)
    return dict(groups)


def by_pair(before: Phase, after: Phase) -> list[dict[str, Any]]:
    """The `probes` of summary.json: one entry for each ordered pair of PoPs and object size probed in both phases."""

    def key(transfer: Transfer) -> tuple[str, str, float, int]:
        return (transfer.src, transfer.dst, transfer.rtt_ms, transfer.size_bytes)

    def again(phase: Phase, group: tuple[str, str, float, int]) -> float:
        return round(ratio(one for one in phase.closed if (one.src, one.dst, one.rtt_ms, one.size_bytes) == group), 5)

    first, second = _grouped(before.transfers, key), _grouped(after.transfers, key)
    rows = []
    for group in sorted(first.keys() & second.keys(), key=lambda found: (found[2], found[0], found[1], found[3])):
        src, dst, rtt_ms, size_bytes = group
        was, now = spread(first[group]), spread(second[group])
        rows.append(
            {
                "src": src,
                "dst": dst,
                "rtt_ms": rtt_ms,
                "size_bytes": size_bytes,
                "before_ms": was,
                "after_ms": now,
                "slower_ms": slower(first[group], second[group]),
                "retransmit_before": again(before, group),
                "retransmit_after": again(after, group),
                "rtts_saved_p50": rtts_saved(was, now, rtt_ms),
            }
        )
    return rows


def pairs(before: Phase, after: Phase, routes: Mapping[tuple[str, str], Route]) -> list[dict[str, Any]]:
    """The `pairs` of summary.json: one entry for each ordered pair of `routes` and object size, in that order.

    `ratio_limit` is the median of `after` over the limit, a round trip and the object at the path's rate. Times run
    from the request to the last byte; retransmissions are shares of the segments that the probes' senders sent.
    Raises ValueError where no probe of a pair and size came back.
    """

    def times(phase: Phase, src: str, dst: str, size: int) -> dict[str, float]:
        key = (src, dst, size)
        return spread([one.transfer_ms for one in phase.transfers if (one.src, one.dst, one.size_bytes) == key])

    def closed(phase: Phase, src: str, dst: str, size: int) -> list[Closed]:
        return [one for one in phase.closed if (one.src, one.dst, one.size_bytes) == (src, dst, size)]

    return [
        {
            "src": src,
            "dst": dst,
            "size_bytes": size,
            "rtt_ms": route.rtt_ms,
            "rate_mbit": route.rate_mbit,
            **route.in_force(),
            "before_ms": times(before, src, dst, size),
            "after_ms": (found := times(after, src, dst, size)),
            "retransmit_before": round(ratio(closed(before, src, dst, size)), 5),
            "retransmit_after": round(ratio(closed(after, src, dst, size)), 5),
            "retransmit_p50_after": round(ratio_p50(closed(after, src, dst, size)), 5),
            "limit_ms": round(route.limit_ms(size), 2),
            "ratio_limit": round(found["p50"] / route.limit_ms(size), 3) if route.limit_ms(size) else None,
        }
        for (src, dst), route in routes.items()
        for size in sorted({one.size_bytes for one in before.transfers})
    ]


def by_group(before: Phase, after: Phase) -> list[Group]:
    """The closing table: pairs with the same RTT taken together."""

    def key(transfer: Transfer) -> tuple[float, int]:
        return (transfer.rtt_ms, transfer.size_bytes)

    first, second = _grouped(before.transfers, key), _grouped(after.transfers, key)
    groups = []
    for group in sorted(first.keys() & second.keys()):
        rtt_ms, size_bytes = group
        was, now = spread(first[group]), spread(second[group])
        groups.append(
            Group(
                rtt_ms,
                size_bytes,
                was,
                now,
                slower(first[group], second[group]),
                rtts_saved(was, now, rtt_ms),
                ratio(row for row in before.closed if (row.rtt_ms, row.size_bytes) == group),
                ratio(row for row in after.closed if (row.rtt_ms, row.size_bytes) == group),
            )
        )
    return groups


def has_ended(groups: Sequence[Group], at: str) -> str:
    """For whoever looks at what the demo left: that it is over, and what it showed of the largest objects."""
    largest = max(group.size_bytes for group in groups)
    shown = ", ".join(
        f"{group.before['p50']:.0f} -> {group.after['p50']:.0f} ms (RTT {group.rtt_ms:.0f})"
        for group in groups
        if group.size_bytes == largest
    )
    return (
        f"The demo has ended at {at}: its bundles have expired, and nothing runs any more.\n"
        f"It showed fresh connections fetch {largest // 1000} KB, medians before -> after: {shown}."
    )


def summary(
    before: Phase,
    rounds: Sequence[tuple[Phase, Mapping[tuple[str, str], Route]]],
    decisions: Iterable[Mapping[str, Any]],
    *,
    conditions: Mapping[str, Any],
    restored: bool,
    samples: int,
    elapsed_s: float,
) -> dict[str, Any]:
    """The whole of summary.json. `decisions` have src_pop, dst_pop, value, evidence and reason.

    `rounds` are the probes after each push, with what was in force then; the last is what `after` means elsewhere.
    """
    after, routes = rounds[-1]
    kept = ("src", "dst", "size_bytes", "initcwnd", "start_rate", "after_ms", "retransmit_after", "ratio_limit")
    return {
        "conditions": dict(conditions),
        "probes": by_pair(before, after),
        "pairs": pairs(before, after, routes),
        "rounds": [[{key: row[key] for key in kept} for row in pairs(before, *one)] for one in rounds],
        "initcwnd": [
            {
                "src": row["src_pop"],
                "dst": row["dst_pop"],
                "value": row["value"],
                "evidence": row["evidence"],
                "reason": row["reason"],
            }
            for row in decisions
        ],
        "retransmit_ratio": {"before": round(ratio(before.closed), 5), "after": round(ratio(after.closed), 5)},
        "restored": restored,
        "samples": samples,
        "elapsed_s": round(elapsed_s, 1),
    }
