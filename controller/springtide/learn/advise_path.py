"""From a path's connections to what it would gain if connections started at the proved rate. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from springtide import _core
from springtide._core import KERNEL_DEFAULT
from springtide.laws.columns import Table
from springtide.laws.resample import DRAWS, LEAST_CLUSTERS, bounds, quantiles
from springtide.laws.start.gain import Floats, gain_us, transfer_us
from springtide.laws.start.policy import StartPolicy
from springtide.laws.units import UNIT_KEY

SIZES = (10_000, 50_000, 100_000, 1_000_000)
# The engine's: larger than any path's, so that only round trips are left.
_ENDLESS_RATE = 1e11
# The quantile of the others' rates by bytes delivered, which are lower bounds, as in sql/rollup/5_paths.sql.
_REACHED_QUANTILE = 0.75
# A queue that overflows is full. Where connections that lost something saw less delay than this, it is short: the
# short queues of the lab add at most a fifth to the round trip.
_SHORT_STRETCH = 1.25
# Length of a slot, which counts as one: connections of the same minutes meet the same path.
SLOT_S = 300

_FRESH = ("fresh_10k", "fresh_50k", "fresh_100k", "fresh_1m")
# Time of answers of that size that began with the default, as a multiple of slow start at its best.
_SLOW = ("slow_10k", "slow_50k", "slow_100k", "slow_1m")
# One row a picked connection, with its unit's columns; a unit without any has one with rate 0.
EVIDENCE = np.dtype(
    [
        *UNIT_KEY,
        ("is_pair", "u1"),
        ("hosts", "<u4"),
        ("fresh", "<u8"),
        *((name, "<u8") for name in _FRESH),
        ("sent_bytes", "<f8"),
        ("lost_bytes", "<f8"),
        ("young", "<u8"),
        ("young_lossy", "<u8"),
        ("lossy", "<u8"),
        ("lossy_stretch", "<f8"),
        ("receiver_window", "<f8"),
        ("mss", "<f8"),
        *((name, "<f8") for name in _SLOW),
        ("met", "<u8"),
        ("reached", "<u8"),
        ("trains", "<u8"),
        ("seen_s", "<u4"),
        ("rate", "<f8"),
        ("rtt_us", "<f8"),
        ("weight", "<u4"),
    ]
)


class Basis(StrEnum):
    """Evidence that a rate rests on."""

    # First segments, which edges with the program time: how fast the path delivers what leaves at once.
    TRAINS = "trains"
    # Connections that met the path: out of slow start, limited by nobody else.
    MET = "met"
    # None or too few did: what others were delivered, so that the path gives at least that.
    AT_LEAST = "at_least"


class Risk(StrEnum):
    LOSES = "loses"
    SHORT_QUEUE = "short_queue"
    THIN = "thin"
    RECEIVER = "receiver"


_COUNTS = {Basis.TRAINS: "trains", Basis.MET: "met", Basis.AT_LEAST: "reached"}
RISKS = {
    Risk.LOSES: "the kernel's default start already loses packets here: a faster one may lose more",
    Risk.SHORT_QUEUE: "loses without delay: a short queue, a policer or a noisy link; only paced starts are safe",
    Risk.THIN: "thin evidence: few connections or few minutes; the interval says how little is known",
    Risk.RECEIVER: "receivers announce less than the path carries in a round trip: they are the limit",
}


@dataclass(frozen=True)
class Interval:
    """An estimate between the bounds of its interval of 95 %."""

    estimate: float
    low: float
    high: float

    def as_dict(self, digits: int = 3) -> dict[str, float]:
        return {
            "estimate": round(self.estimate, digits),
            "low": round(self.low, digits),
            "high": round(self.high, digits),
        }


@dataclass(frozen=True)
class Saving:
    """Time that one transfer of so many bytes saves, request to last byte; ms, and round trips of the path.

    `is_measured`: the time by default is that of answers of this size, and no model's. `may_be_more`: the rate is a
    lower bound, and a higher one would save more.
    """

    size_bytes: int
    default_ms: float
    is_measured: bool
    start_ms: float
    saved_ms: Interval
    saved_round_trips: Interval
    may_be_more: bool


@dataclass(frozen=True)
class Path:
    """An ordered pair of PoPs, or a PoP and a client prefix, one IP version.

    `connections` that the rate comes from, seen in so many `rounds` of five minutes. `fresh` connections began in the
    time, `fresh_from` of them sent at least so many bytes. `total_ms` is what these would have saved together, each as
    if what it sent were one answer of the largest of SIZES that it sent in full.
    """

    src_pop: str
    destination: str
    ip_version: int
    is_pair: bool
    hosts: int
    basis: Basis
    connections: int
    rounds: int
    rtt_ms: Interval
    rate_bytes_per_s: Interval
    window: int
    savings: tuple[Saving, ...]
    fresh: int
    fresh_from: dict[int, int]
    total_ms: Interval
    lost_share: float
    risks: tuple[Risk, ...]

    def saving(self, size_bytes: int) -> Saving:
        return self.savings[SIZES.index(size_bytes)]


def path_of(rows: Table, law: StartPolicy, *, paces: bool) -> Path:
    """Works out one unit's gain from its EVIDENCE rows, which have rates. Pure.

    With `paces` each edge starts at its part of the path's rate, taken as one over the hosts seen.

    The rate is the middle of how fast first segments came; without these, the policy's quantile of what connections
    that met the path were delivered; with too few of these, a high quantile of what the others were, by bytes, which
    is a lower bound. The round trip is the median of the shortest ones. The time by default is that of answers which
    began so, where there are enough of about that size; else slow start at its best at the rate, and, of a lower
    bound, as if only round trips took time. Losses are taken to cost a start as much as the default. Each interval is
    by bootstrap over rounds, or over connections where there are few rounds; of fewer than five connections, from
    nothing to what an endless rate would save.
    """
    unit = rows[0]
    basis = _basis(unit, law)
    is_met = basis is not Basis.AT_LEAST
    slots = rows["seen_s"] // SLOT_S
    quantile = {Basis.TRAINS: 0.5, Basis.MET: law.share_quantile}.get(basis, _REACHED_QUANTILE)
    drawn = quantiles([(rows["rate"], quantile), (rows["rtt_us"], 0.5)], rows["weight"], slots)
    rate, rtt_us = drawn[:, 0], drawn[:, 1]
    window = start_window(rate, rtt_us, unit, law)
    defaults_us = _defaults_us(rtt_us[0], rate[0] if is_met else _ENDLESS_RATE, unit)
    edges = int(unit["hosts"]) if paces else 1
    divided_us, saved_us, most_us = _saved_us(len(rows), rate, rtt_us, window, unit, law, edges)
    # Measured times may be shorter than the model's; no answer arrives before the path's limit.
    room_us = defaults_us - rtt_us[0] - (np.array(SIZES) / rate[0] * 1e6 if is_met else 0.0)
    saved_us, most_us = np.clip(saved_us, 0.0, np.maximum(room_us, 0.0)[:, None]), np.minimum(most_us, room_us)
    fresh_from = [int(unit[name]) for name in _FRESH]
    # Those of one size and not of the next.
    of_size = np.array(fresh_from) - np.array([*fresh_from[1:], 0])
    total_ms = of_size @ saved_us / 1000
    drawn_rows = np.vstack([rtt_us / 1000, rate, total_ms, saved_us / 1000, saved_us / divided_us])
    rtt, rates, total, *saved = (Interval(*row) for row in bounds(drawn_rows).tolist())
    savings = tuple(_savings(unit, defaults_us, saved, most_us, is_bound=not is_met))
    picked_rounds = len(np.unique(slots))
    return Path(
        src_pop=unit["src_pop"].decode(errors="replace"),
        destination=unit["destination"].decode(errors="replace"),
        ip_version=int(unit["ip_version"]),
        is_pair=bool(unit["is_pair"]),
        hosts=int(unit["hosts"]),
        basis=basis,
        connections=int(unit[_COUNTS[basis]]),
        rounds=picked_rounds,
        rtt_ms=rtt,
        rate_bytes_per_s=rates,
        window=int(window[0]),
        savings=savings,
        fresh=int(unit["fresh"]),
        fresh_from=dict(zip(SIZES, fresh_from, strict=True)),
        total_ms=total,
        lost_share=float(unit["lost_bytes"] / unit["sent_bytes"]) if unit["sent_bytes"] > 0 else 0.0,
        risks=tuple(_risks(unit, len(rows), picked_rounds, rate[0] * rtt_us[0] / 1e6, law)),
    )


def _savings(
    unit: np.void, defaults_us: Floats, saved: list[Interval], most_us: Floats, *, is_bound: bool
) -> Iterator[Saving]:
    """By size; `saved`: ms by size, then round trips by size."""
    for at, (size_bytes, slow) in enumerate(zip(SIZES, _SLOW, strict=True)):
        default, ms = float(defaults_us[at]) / 1000, saved[at]
        yield Saving(
            size_bytes=size_bytes,
            default_ms=default,
            is_measured=bool(np.isfinite(unit[slow])),
            start_ms=default - ms.estimate,
            saved_ms=ms,
            saved_round_trips=saved[len(SIZES) + at],
            may_be_more=is_bound and bool(most_us[at] > ms.estimate * 1000),
        )


def _basis(unit: np.void, law: StartPolicy) -> Basis:
    """As sql/advise/evidence.sql picked its rows."""
    if unit["trains"] >= law.min_connections:
        return Basis.TRAINS
    return Basis.MET if unit["met"] >= law.min_connections else Basis.AT_LEAST


def _defaults_us(rtt_us: float, rate: float, unit: np.void) -> Floats:
    """By size what a transfer takes that begins with the kernel's default: measured, else by the model."""
    sizes = np.array(SIZES)
    best = transfer_us(sizes, rtt_us, _ENDLESS_RATE, KERNEL_DEFAULT, unit["mss"])
    slow = np.array([unit[name] for name in _SLOW])
    model = transfer_us(sizes, rtt_us, rate, KERNEL_DEFAULT, unit["mss"])
    defaults: Floats = np.where(np.isfinite(slow), slow * best, model)
    return defaults


def _saved_us(
    picked: int, rate: Floats, rtt_us: Floats, window: Floats, unit: np.void, law: StartPolicy, edges: int
) -> tuple[Floats, Floats, Floats]:
    """Round trips to divide by; by (size, resample) what a start saves; by size what an endless rate would save."""
    sizes = np.array(SIZES)[:, None]
    # The window leaves at an edge's part of the rate.
    later_us = np.minimum(sizes, window * unit["mss"]) / rate * (edges - 1) * 1e6
    saved = np.maximum(gain_us(sizes, rtt_us, rate, window, unit["mss"]) - later_us, 0.0)
    endless = start_window(np.array([_ENDLESS_RATE]), rtt_us[:1], unit, law)
    most = np.maximum(gain_us(sizes, rtt_us[:1], _ENDLESS_RATE, endless, unit["mss"]), saved[:, :1])
    if picked >= LEAST_CLUSTERS:
        return rtt_us, saved, most[:, 0]
    # In place of resamples, which would show the same few: as often nothing as the most.
    between = most * (np.arange(1, DRAWS + 1) % 2)
    return rtt_us[:1], np.concatenate([saved[:, :1], between], axis=1), most[:, 0]


def start_window(rate: Floats, rtt_us: Floats, unit: np.void, law: StartPolicy) -> Floats:
    """Segments, as the law would size them: what the rate carries in a round trip, within the policy's and the
    receivers' bounds."""
    mss, receiver = (np.full(len(rate), unit[name], np.float64) for name in ("mss", "receiver_window"))
    out = np.empty(len(rate))
    _core.start_window(
        law.model_dump_json(),
        [np.ascontiguousarray(one, np.float64) for one in (rate, rate, rtt_us, mss, receiver)],
        out,
    )
    return out


def _risks(unit: np.void, picked: int, rounds: int, pipe_bytes: float, law: StartPolicy) -> Iterator[Risk]:
    lossy_starts = unit["young"] >= law.min_connections and unit["young_lossy"] > law.loss_default_bound * unit["young"]
    loses = lossy_starts or unit["lost_bytes"] > law.loss_segments * unit["sent_bytes"]
    if loses:
        yield Risk.LOSES
    if loses and unit["lossy"] >= law.min_connections and unit["lossy_stretch"] <= _SHORT_STRETCH:
        yield Risk.SHORT_QUEUE
    if picked < law.trial_flights or rounds < LEAST_CLUSTERS:
        yield Risk.THIN
    if unit["receiver_window"] < min(pipe_bytes, law.cmax * unit["mss"]):
        yield Risk.RECEIVER
