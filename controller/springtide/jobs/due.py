"""Rounds that are due: missed rounds are caught up in order, so that each decision has the one before it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from springtide import instants
from springtide.errors import SpringtideError, StoreError
from springtide.fleet import Fleet
from springtide.jobs import audit
from springtide.laws.registry import LAWS, LEADING
from springtide.observe.enrich import publish_fleet
from springtide.observe.rollup import PENDING_S, RETRIED_ROUNDS, distrust, pending, rolled_up
from springtide.policy import Policy
from springtide.store import Store


@dataclass(frozen=True)
class Due:
    """Rounds in their order: those that lack their tables, and how many hosts sent samples lately."""

    newest: int
    to_roll_up: list[int]
    hosts_seen: int
    hosts_expected: int


def prepare(store: Store, fleet: Fleet, publish_dir: Path, warn: Callable[[str], None]) -> None:
    """Stores what round tables need besides samples: the fleet, and which publication was current on its edges.
    Distrusts tables that a clock that was ahead has dated.

    A journal that cannot be read is reported and keeps no round from being rolled up. Raises StoreError.
    """
    publish_fleet(store, fleet)
    distrust(store, instants.now())
    bring_audit(store, publish_dir, warn)


def bring_audit(store: Store, publish_dir: Path, warn: Callable[[str], None]) -> None:
    """Stores what the publisher's journal has; one that cannot be read is reported. Raises StoreError."""
    try:
        audit.send(publish_dir, store)
    except StoreError:
        raise
    except SpringtideError as error:
        warn(f"{error}; until then new connections count as begun with the publication before, or the kernel's default")


def due(store: Store, policy: Policy, newest_unix_s: int) -> Due:
    """Finds what a run has to do, up to a round. Raises StoreError."""
    interval_s = policy.round.interval_s
    memory_us = policy.completeness.memory_rounds * interval_s * 1_000_000
    until_us = newest_unix_s * 1_000_000
    [row] = store.query(
        """
        select uniqExactIf(host, time_unix_us >= {start:Int64}) as seen, uniqExact(host) as expected
        from tcp_samples
        where
            time_unix_us >= {since:Int64} and time_unix_us < {until:Int64}
            and host global in (select fleet_edges.edge from fleet_edges)
        """,
        {"start": until_us - interval_s * 1_000_000, "since": max(0, until_us - memory_us), "until": until_us},
    )
    waiting = pending(store, newest_unix_s, interval_s, policy.round.lateness_s)
    return Due(newest_unix_s, waiting, int(row["seen"]), int(row["expected"]))


def undecided(store: Store, policy: Policy, newest_unix_s: int, anew: Collection[int] = ()) -> list[int]:
    """Rounds that have their tables and lack the decisions of a law, oldest first; all laws can be given them all.

    No further back than a day, and where there is no last decision, than RETRIED_ROUNDS. A law that does not decide
    every round can have no rows for one: where only such a law lags behind it is no further than RETRIED_ROUNDS
    either. Rounds that were rolled up `anew` are among them if they were decided before, by what their tables had then.
    """
    interval_s = policy.round.interval_s
    shortly = newest_unix_s - RETRIED_ROUNDS * interval_s
    last = newest_unix_s
    for law in LAWS:
        if not law.decides(policy, newest_unix_s):
            continue
        newest = law.latest(store, newest_unix_s)
        if newest is not None:
            last = min(last, max(newest, newest_unix_s - PENDING_S if law.every_round else shortly))
        elif law.every_round:
            last = min(last, shortly)
    lines = rolled_up(store, last + interval_s, newest_unix_s)
    waiting = {line.round for line in lines if line.interval_s == interval_s}
    return sorted(waiting | {moment for moment in anew if LEADING.latest(store, moment) == moment})


def span(first_unix_s: int, last_unix_s: int, interval_s: int) -> range:
    """Both included."""
    return range(first_unix_s, last_unix_s + 1, interval_s)
