"""Whether enough of a round has arrived to decide from it, by PoP.

Every host of the fleet counts alike, however much it sent or should have sent: one that claims a million rows, or
leaves out as many numbers, is one host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from springtide.policy import CompletenessPolicy
from springtide.store import Store

# Per host: fewer do not show how many of its close records are lost.
CLOSES = 20


@dataclass(frozen=True)
class Input:
    """Hosts and rows of one PoP in a round, seen and expected; shares are means over its hosts."""

    pop: str
    hosts_seen: int
    hosts_expected: int
    rows_seen: int
    rows_expected: int
    rows_share: float
    closes_seen: int
    closes_expected: int
    closes_share: float

    def lacks(self, policy: CompletenessPolicy) -> str:
        """Why the round cannot be trusted, as text; empty when it can."""
        if self.hosts_seen < policy.min_hosts * self.hosts_expected:
            return f"{self.hosts_seen} of {self.hosts_expected} hosts sent samples"
        if self.rows_share < policy.min_rows:
            return f"{self.rows_seen} of {self.rows_expected} rows arrived"
        if self.closes_share < policy.min_closes:
            return f"{self.closes_seen} of {self.closes_expected} close records arrived"
        return ""


def inputs(store: Store, round_unix_s: int, interval_s: int, memory_rounds: int) -> list[Input]:
    """The input of each PoP that sent samples in the last `memory_rounds` rounds, this one included; sorted by PoP.

    Hosts are those of the fleet. One that sends nothing now is expected to send as much as on average in the rounds in
    which it did; one that sent no close record in any of them is not expected to. No later round is read.
    Raises StoreError.
    """
    rows = store.query(
        """
        with hosts as (
            select
                host,
                any(fleet_edges.pop) as at_pop,
                sumIf(rows_seen, round = {round:DateTime('UTC')}) as seen,
                sumIf(rows_expected, round = {round:DateTime('UTC')}) as expected,
                avgIf(rows_seen, round < {round:DateTime('UTC')} and rows_seen > 0) as usual,
                greatest(expected, if(seen > 0, 0, toUInt64(ifNotFinite(usual, 0)))) as due,
                sumIf(closes, round = {round:DateTime('UTC')}) as closes_seen,
                if(max(closes) > 0, sumIf(closes_expected, round = {round:DateTime('UTC')}), 0) as closes_due
            from round_hosts
            inner join fleet_edges on round_hosts.host = fleet_edges.edge
            where round > {since:DateTime('UTC')} and round <= {round:DateTime('UTC')}
            group by host
            having max(rows_seen) > 0 or expected > 0
        )
        select
            at_pop as pop,
            countIf(seen > 0) as hosts_seen,
            count() as hosts_expected,
            sum(seen) as rows_seen,
            sum(due) as rows_expected,
            -- Parts per million: sums of integers do not depend on their order.
            sum(if(due > seen, intDiv(seen * 1000000, due), 1000000)) / count() / 1000000 as rows_share,
            sumIf(hosts.closes_seen, closes_due > 0) as closes_seen,
            sum(closes_due) as closes_expected,
            sum(
                if(closes_due >= {closes:UInt64}, intDiv(hosts.closes_seen * 1000000, closes_due), 1000000)
            ) / count() / 1000000 as closes_share
        from hosts
        group by at_pop
        order by at_pop
        """,
        {"round": round_unix_s, "since": max(0, round_unix_s - memory_rounds * interval_s), "closes": CLOSES},
    )
    return [
        Input(
            pop=row["pop"],
            hosts_seen=int(row["hosts_seen"]),
            hosts_expected=int(row["hosts_expected"]),
            rows_seen=int(row["rows_seen"]),
            rows_expected=int(row["rows_expected"]),
            rows_share=float(row["rows_share"]),
            closes_seen=int(row["closes_seen"]),
            closes_expected=int(row["closes_expected"]),
            closes_share=float(row["closes_share"]),
        )
        for row in rows
    ]


def lacking(found: Sequence[Input], policy: CompletenessPolicy, pops: Iterable[str]) -> dict[str, str]:
    """The PoPs whose round cannot be trusted, and why; `pops` are those that have something to lose."""
    missing = dict.fromkeys(set(pops) - {one.pop for one in found}, "none of its hosts sent samples")
    thin = {one.pop: why for one in found if (why := one.lacks(policy))}
    return dict(sorted({**missing, **thin}.items()))
