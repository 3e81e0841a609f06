"""Congestion decisions as rows: the evidence, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator

from springtide.frame import Frame
from springtide.laws.congestion.law import DECIDED, EVIDENCE, PREVIOUS
from springtide.laws.rows import TABLE, Decisions
from springtide.policy import Policy
from springtide.store import Param, Row, Store
from springtide.store.files import sql

ALGORITHMS = ("default", "bbr")
# The rows with `pop` and `client_prefix`, the prefix's first address, IPv4 mapped: as the round tables have them.
DECISIONS = f"""(
    select *, src_pop as pop, toIPv6OrDefault(splitByChar('/', destination)[1]) as client_prefix
    from {TABLE} final where part = 'congestion'
)"""


class _Prefixes(Decisions):
    def rows(self, decided: Frame) -> Iterator[Row]:
        for row in super().rows(decided):
            head = {"pop": row.pop("src_pop"), "prefix": row.pop("destination")}
            yield head | row | {"algorithm": ALGORITHMS[row["algorithm"]]}


PREFIXES = _Prefixes("congestion", DECIDED, PREVIOUS, ("selected_since", "penalty", "hold_until"))


def evidence(store: Store, round_unix_s: int, policy: Policy, last_unix_s: int, least_low: int | None = None) -> Frame:
    """EVIDENCE rows of the prefixes that could be chosen in the round, and of those in the decisions of `last_unix_s`.

    With `least_low` of 0, every prefix.
    """
    law = policy.congestion
    parameters: dict[str, Param] = {
        **_eligible(policy, round_unix_s),
        "interval_s": policy.round.interval_s,
        "low_share": law.low_share,
        "min_prefixes": law.min_prefixes,
        "discount_percent": round(100 * law.bbr_discount),
        # No prefix is chosen with fewer: what it exceeds `enter_duty` by, `min_rounds` low ones show at least.
        "least_low": law.min_rounds if least_low is None else least_low,
        "recent_rounds": law.benefit_rounds,
        "last_s": last_unix_s,
    }
    return store.frame(sql("congestion/evidence"), EVIDENCE, parameters)


def unranked(store: Store, round_unix_s: int, policy: Policy, pop: str, prefix: str) -> dict[str, int]:
    """In how many rounds of the window traffic to a prefix was not ranked, by why; see sql/congestion/unranked.sql."""
    path: dict[str, Param] = {"pop": pop, "prefix": prefix}
    [row] = store.query(sql("congestion/unranked"), {**_eligible(policy, round_unix_s), **path})
    return row


def _eligible(policy: Policy, round_unix_s: int) -> dict[str, Param]:
    """The window, and what of a round counts."""
    law = policy.congestion
    return {
        "round_s": round_unix_s,
        "since_s": max(0, round_unix_s - law.window_rounds * policy.round.interval_s),
        "min_connections": law.min_connections,
        "min_samples": law.min_samples,
        "min_bytes": law.min_bytes,
        "acting_bytes": law.min_object_bytes,
    }
