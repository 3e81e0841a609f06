"""The round tables: one round's samples, aggregated once and read by everybody.

A run writes all of its rows under a generation of its own; one line in `rollups` then makes them the round's. A run
that dies in between leaves rows that no reader sees, and that the next run of the round removes.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from springtide import instants
from springtide.errors import InputError, Problem
from springtide.policy import CongestionPolicy
from springtide.store import Store
from springtide.store.files import sql

# In the order in which they are made: those that follow read the polls and the sockets.
STEPS = (
    "0_polls",
    "1_records",
    "1_starts",
    "2_sockets",
    "2_flights",
    "3_pairs",
    "3_units",
    "4_prefixes",
    "4_prefix_rates",
    "4_busy",
    "4_path_sockets",
    "4_path_flights",
    "5_outcomes",
    "5_paths",
    "5_path_starts",
    "5_slices",
    "6_hosts",
    "7_goodput",
    "8_rogues",
    "9_treatments",
)
# Steps whose rows only the law of starts reads: left out where no edge paces.
PACED = frozenset(
    ("2_flights", "3_units", "4_busy", "4_path_sockets", "4_path_flights", "5_paths", "5_path_starts"),
)
TABLES = (
    "rollup_polls",
    "rollup_sockets",
    "rollup_pairs",
    "rollup_prefixes",
    "rollup_prefix_rates",
    "rollup_paths",
    "rollup_path_starts",
    "rollup_outcomes",
    "rollup_slices",
    "rollup_hosts",
    "rollup_goodput",
    "rollup_rogues",
    "rollup_treatments",
    "rollup_flights",
)
# Tables that only the steps read of each other. A run empties them; a killed one leaves its rows to the next.
SCRATCH = ("rollup_records", "rollup_starts", "rollup_busy", "rollup_units", "rollup_path_hosts")

# Time within which rounds without tables are looked for: older ones need an explicit backfill.
PENDING_S = 86_400
RETRIED_ROUNDS = 12
# Rounds whose late samples are counted with each run: half an hour, as long as a host may be disconnected.
LATE_ROUNDS = 6

# Client prefixes of a PoP whose paths are rolled up: twice as many as are decided on by default (start.max_prefixes),
# so that those in use are seen in rounds in which others have more to gain.
START_PREFIXES = 10_000

# From how many bytes on BBR acts, without a policy.
ACTING_BYTES = CongestionPolicy().min_object_bytes

# 12 random bits beside the microseconds keep two runs apart that begin in the same one.
_RANDOM_BITS = 12


@dataclass(frozen=True)
class Rollup:
    """A line of `rollups`: a round's tables as they are now. Instants in seconds since the epoch."""

    round: int
    generation: int
    interval_s: int
    waited_s: int
    samples: int
    sockets: int
    requests: int
    computed_at: int


def rollup(
    store: Store,
    round_unix_s: int,
    interval_s: int,
    now_unix_s: int,
    acting_bytes: int = ACTING_BYTES,
    *,
    paced: bool = False,
) -> Rollup:
    """Compute the tables of [round - interval, round); the interval before it shows what changed within it.

    `acting_bytes`: congestion.min_object_bytes; rates of connections that delivered less do not show the effect of BBR.
    `paced`: some edge enforces by bpf, so that what its paths show is wanted.

    Raises StoreError; the round's tables are then what they were.
    """
    generation = time.time_ns() // 1000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    key = {"round_s": round_unix_s, "generation": generation}
    parameters = {
        **key,
        "interval_s": interval_s,
        "lookback_us": (round_unix_s - 2 * interval_s) * 1_000_000,
        "round_start_us": (round_unix_s - interval_s) * 1_000_000,
        "round_us": round_unix_s * 1_000_000,
        "acting_bytes": acting_bytes,
        "start_prefixes": START_PREFIXES,
        "half_prefixes": START_PREFIXES // 2,
    }
    for step in STEPS:
        if step in PACED and not paced:
            continue
        store.execute(sql(f"rollup/{step}"), parameters)
    for table in SCRATCH:
        store.execute(f"alter table {table} drop partition {generation}")
    store.execute(
        """
        insert into rollups
        select
            fromUnixTimestamp({round_s:UInt32}), {generation:UInt64}, {interval_s:UInt32}, {waited_s:UInt32},
            sum(samples), count(),
            (
                select sum(requests) from rollup_goodput
                where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
            ),
            fromUnixTimestamp({now_s:UInt32})
        from rollup_sockets
        where round = fromUnixTimestamp({round_s:UInt32}) and generation = {generation:UInt64}
        """,
        {**key, "interval_s": interval_s, "waited_s": max(0, now_unix_s - round_unix_s), "now_s": now_unix_s},
    )
    _sweep(store, round_unix_s)
    [written] = rolled_up(store, round_unix_s, round_unix_s)
    return written


def rolled_up(store: Store, since_unix_s: int, until_unix_s: int) -> list[Rollup]:
    """The rounds from `since` to `until`, both included, that have their tables; oldest first."""
    rows = store.query(
        """
        select
            toUnixTimestamp(rollups.round) as round, generation, interval_s, waited_s, samples, sockets, requests,
            toUnixTimestamp(rollups.computed_at) as computed_at
        from rollups final
        where rollups.round between fromUnixTimestamp({since:UInt32}) and fromUnixTimestamp({until:UInt32})
        order by rollups.round
        """,
        {"since": max(0, since_unix_s), "until": until_unix_s},
    )
    return [Rollup(**row) for row in rows]


def ensure(
    store: Store,
    round_unix_s: int,
    interval_s: int,
    lateness_s: int,
    now_unix_s: int,
    acting_bytes: int = ACTING_BYTES,
    *,
    paced: bool = False,
) -> Rollup:
    """The round's tables; computed now if they were not yet, or for another interval, or before the lateness bound."""
    present = rolled_up(store, round_unix_s, round_unix_s)
    if present and present[0].interval_s == interval_s and present[0].waited_s >= lateness_s:
        return present[0]
    return rollup(store, round_unix_s, interval_s, now_unix_s, acting_bytes, paced=paced)


def pending(store: Store, newest_unix_s: int, interval_s: int, lateness_s: int) -> list[int]:
    """Rounds up to `newest` that hold samples and lack their tables, oldest first.

    Looked for in the day before `newest`, and no further back than RETRIED_ROUNDS before the newest round that has its
    tables. One whose tables were computed before its lateness bound is computed once more after it.
    """
    oldest = max(1, (newest_unix_s - PENDING_S) // interval_s + 1) * interval_s
    lines = [line for line in rolled_up(store, oldest, newest_unix_s) if line.interval_s == interval_s]
    if lines:
        oldest = max(oldest, lines[-1].round - RETRIED_ROUNDS * interval_s)
    else:
        # A new store has no samples of most of the day.
        oldest = max(oldest, _first_sample(store, oldest - interval_s, newest_unix_s) // interval_s * interval_s)
    done = {line.round for line in lines if line.waited_s >= lateness_s}
    candidates = [moment for moment in range(oldest, newest_unix_s + 1, interval_s) if moment not in done]
    return [moment for moment in candidates if _has_samples(store, moment, interval_s)]


def distrust(store: Store, now_unix_s: int) -> None:
    """Tables that were computed later than now, by a clock that was ahead, have not waited for their samples: their
    rounds are pending as soon as they are due."""
    of_later = "from rollups final where computed_at > fromUnixTimestamp({latest:UInt32}) and waited_s > 0"
    latest = {"latest": now_unix_s + instants.CLOCK_TOLERANCE_S}
    if store.query(f"select 1 as one {of_later} limit 1", latest):
        columns = "rollups.round, generation, interval_s, 0, samples, sockets, requests, computed_at"
        store.execute(f"insert into rollups select {columns} {of_later}", latest)


def count_late(store: Store, until_unix_s: int, interval_s: int, now_unix_s: int) -> int:
    """Count anew, for the LATE_ROUNDS of this interval up to `until`, the samples that came after their round's tables;
    their sum."""
    since = max(0, until_unix_s - (LATE_ROUNDS - 1) * interval_s)
    store.execute(
        sql("rollup/late"),
        {"since_s": since, "until_s": until_unix_s, "interval_s": interval_s, "now_s": now_unix_s},
    )
    [row] = store.query(
        "select sum(samples) as n from round_late where round >= {since:DateTime('UTC')}", {"since": since}
    )
    return int(row["n"])


def with_samples(store: Store, rounds: range) -> range:
    """The rounds of a span from the first that has samples on: those before may have tables of samples that have
    expired. Raises InputError where none has any."""
    first = _first_sample(store, rounds[0] - rounds.step, rounds[-1])
    if first == rounds[-1]:
        ends = f"from {instants.show(rounds[0])} up to {instants.show(rounds[-1])}"
        raise InputError([Problem("--from", "round", f"no samples are {ends}", "give a span that has some")])
    return rounds[(first - rounds[0]) // rounds.step + 1 :]


def _first_sample(store: Store, since_unix_s: int, until_unix_s: int) -> int:
    """The second of the first sample or request within [since, until); `until` where there is none."""
    span = {"start": since_unix_s * 1_000_000, "end": until_unix_s * 1_000_000}
    firsts = [
        store.query(
            f"select min(time_unix_us) as first, count() as n from {table} "
            "where time_unix_us >= {start:Int64} and time_unix_us < {end:Int64}",
            span,
        )[0]
        for table in ("tcp_samples", "http_requests")
    ]
    return min((first["first"] // 1_000_000 for first in firsts if first["n"]), default=until_unix_s)


def _has_samples(store: Store, round_unix_s: int, interval_s: int) -> bool:
    span = {"start": (round_unix_s - interval_s) * 1_000_000, "end": round_unix_s * 1_000_000}
    return any(
        store.query(
            f"select 1 as one from {table} "
            "where time_unix_us >= {start:Int64} and time_unix_us < {end:Int64} limit 1",
            span,
        )
        for table in ("tcp_samples", "http_requests")
    )


def _sweep(store: Store, round_unix_s: int) -> None:
    """Remove what earlier runs of the round left; a run that began later keeps its rows.

    No reader sees these rows: nobody waits until the engine has rewritten their parts, a fifth of a second a table.
    """
    key = {"round_s": round_unix_s}
    stale = (
        "where round = fromUnixTimestamp({round_s:UInt32}) and generation < ("
        "select max(generation) from rollups where round = fromUnixTimestamp({round_s:UInt32}))"
    )
    tables = (*TABLES, *SCRATCH)
    counts = " union all ".join(f"select '{table}' as name, count() as n from {table} {stale}" for table in tables)
    for row in store.query(f"select name from ({counts}) where n > 0", key):
        store.execute(f"delete from {row['name']} {stale} settings lightweight_deletes_sync = 0", key)
