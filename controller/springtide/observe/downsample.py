"""Rounds become hours and days, from sums and mergeable sketches, for windows that rounds are not kept for."""

from __future__ import annotations

from dataclasses import dataclass

from springtide.store import Store
from springtide.store.files import sql

# Length in seconds, and the tables with what fills them.
PERIODS = {
    3600: {
        "pair_hours": "downsample/pairs",
        "prefix_hours": "downsample/prefixes",
        "path_hours": "downsample/paths",
    },
    86400: {"pair_days": "downsample/pairs", "prefix_days": "downsample/prefixes", "path_days": "downsample/paths"},
}


@dataclass(frozen=True)
class Period:
    """`rounds` that have their tables lie in [start, start + period_s), seconds since the epoch."""

    period_s: int
    start: int
    rounds: int


def pending(store: Store, now_unix_s: int, lateness_s: int) -> list[Period]:
    """Closed periods that were never made, or of which a round was computed since; shortest and oldest first.

    Only periods whose rounds are all kept are considered: a period is not made again from half of its rounds.
    """
    found = []
    for period_s in PERIODS:
        rows = store.query(
            """
            with
            rounds as (
                select
                    intDiv(toUnixTimestamp(rollups.round) - 1, {period_s:UInt32}) * {period_s:UInt32} as start,
                    count() as rounds,
                    max(rollups.computed_at) as computed_at
                from rollups final
                group by start
            ),

            made as (
                select toUnixTimestamp(since) as start, max(made_at) as made_at, max(rounds) as rounds
                from downsampled_periods final
                where period_s = {period_s:UInt32}
                group by start
            )

            select rounds.start as start, rounds.rounds as rounds
            from rounds left join made on rounds.start = made.start
            where
                rounds.start + {period_s:UInt32} + {lateness_s:UInt32} <= {now_s:UInt32}
                and rounds.computed_at >= made.made_at
                and rounds.rounds >= made.rounds
            order by start
            """,
            {"period_s": period_s, "lateness_s": lateness_s, "now_s": now_unix_s},
        )
        found += [Period(period_s, row["start"], row["rounds"]) for row in rows]
    return found


def downsample(store: Store, period: Period, now_unix_s: int) -> None:
    """Make the period's rows; made twice, the later ones count. Raises StoreError."""
    parameters = {"start_s": period.start, "period_s": period.period_s, "made_at_s": now_unix_s}
    for table, name in PERIODS[period.period_s].items():
        store.execute(f"insert into {table} {sql(name)}", parameters)
    store.execute(
        "insert into downsampled_periods (period_s, since, made_at, rounds) "
        "select {period_s:UInt32}, toDateTime({start_s:UInt32}, 'UTC'), toDateTime({made_at_s:UInt32}, 'UTC'), "
        "{rounds:UInt16}",
        {**parameters, "rounds": period.rounds},
    )
