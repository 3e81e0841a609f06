"""Whether enough of a round has arrived for decisions to follow it, by PoP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from springtide.policy import CompletenessPolicy
from springtide.store import Store


@dataclass(frozen=True)
class Input:
    """What one PoP's hosts said in a round, and what they should have said."""

    pop: str
    hosts_heard: int
    hosts_expected: int
    rows_seen: int
    rows_expected: int

    def lacks(self, policy: CompletenessPolicy) -> str:
        """Why the round cannot be trusted, in words; empty when it can."""
        if self.hosts_heard < policy.min_hosts * self.hosts_expected:
            return f"{self.hosts_heard} of {self.hosts_expected} hosts were heard"
        if self.rows_seen < policy.min_rows * self.rows_expected:
            return f"{self.rows_seen} of {self.rows_expected} rows arrived"
        return ""


def inputs(store: Store, round_unix_s: int, interval_s: int, memory_rounds: int) -> list[Input]:
    """Of each PoP that was heard in the last `memory_rounds` rounds, this one included; sorted by PoP.

    A host that is silent now is expected to say what it said on average in the rounds that heard it. No later round is
    read. Raises StoreError.
    """
    rows = store.query(
        """
        with hosts as (
            select
                host,
                argMax(pop, (rows_seen > 0, round)) as at_pop,
                sumIf(rows_seen, round = {round:DateTime('UTC')}) as seen,
                sumIf(rows_expected, round = {round:DateTime('UTC')}) as expected,
                avgIf(rows_seen, round < {round:DateTime('UTC')} and rows_seen > 0) as usual
            from round_hosts
            where round > {since:DateTime('UTC')} and round <= {round:DateTime('UTC')}
            group by host
            having max(rows_seen) > 0 or expected > 0
        )
        select
            at_pop as pop,
            countIf(seen > 0) as hosts_heard,
            count() as hosts_expected,
            sum(seen) as rows_seen,
            sum(greatest(expected, if(seen > 0, 0, toUInt64(ifNotFinite(usual, 0))))) as rows_expected
        from hosts
        group by at_pop
        order by at_pop
        """,
        {"round": round_unix_s, "since": max(0, round_unix_s - memory_rounds * interval_s)},
    )
    return [
        Input(
            pop=row["pop"],
            hosts_heard=int(row["hosts_heard"]),
            hosts_expected=int(row["hosts_expected"]),
            rows_seen=int(row["rows_seen"]),
            rows_expected=int(row["rows_expected"]),
        )
        for row in rows
    ]


def lacking(found: Sequence[Input], policy: CompletenessPolicy, pops: Iterable[str]) -> dict[str, str]:
    """The PoPs whose round cannot be trusted, and why; `pops` are those that have something to lose."""
    silent = dict.fromkeys(set(pops) - {one.pop for one in found}, "none of its hosts was heard")
    thin = {one.pop: why for one in found if (why := one.lacks(policy))}
    return dict(sorted({**silent, **thin}.items()))
