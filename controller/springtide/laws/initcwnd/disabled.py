"""What disable tests took away: busy time and retransmissions of the same pair in a test and as long before and after
it, test by test. Before and after, so that a tide that rises or falls evenly through all of it cancels. All pairs are
off at once, and what else happens in that hour happens to many of them: a test is one observation, of however many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from springtide.laws.base import BenefitLine
from springtide.laws.initcwnd.on_off import CELL, SUMS, Side, resent, times
from springtide.laws.switchback import disable_tests
from springtide.policy import Policy
from springtide.store import Row, Store

METHOD = "disable test"

# Outcomes of pairs that had a window before or after the test and were off in it. Those that an operator's override
# kept on are left out.
_OUTCOMES = f"""
with
    {{rounds:Array(UInt32)}} as moments,
    transform(toUnixTimestamp(round), moments, {{tests:Array(UInt32)}}, toUInt32(0)) as test_s,
    transform(toUnixTimestamp(round), moments, {{off:Array(UInt8)}}, toUInt8(0)) as is_off
select
    test_s, is_off, {", ".join(CELL)}, {SUMS}
from round_outcomes
where has(moments, toUnixTimestamp(round))
    and dst_pop != '' and host not in {{held:Array(String)}}
    and (test_s, src_pop, dst_pop, ip_version) in (
        select test_s, src_pop, destination, ip_version
        from path_decisions final
        where part = 'initcwnd' and has(moments, toUnixTimestamp(round))
        group by test_s, src_pop, destination, ip_version
        having countIf(is_off = 0 and initcwnd > 0) > 0 and countIf(reason = 'disable_test') > 0
    )
group by test_s, is_off, {", ".join(CELL)}
order by test_s, is_off, {", ".join(CELL)}
"""


def rounds(policy: Policy, span: Mapping[str, int]) -> list[tuple[int, int, bool]]:
    """(Round, the test's beginning, whether pairs were off) of the rounds since < round <= until that show a whole
    test's hours, or as long before and after. A round shows the interval before its instant. Pure.

    As many rounds as the wash-out do not count, in the test and after it.
    """
    law, interval_s = policy.experiment, policy.round.interval_s
    washout_s = law.washout_rounds * interval_s
    found = []
    for began, ended in disable_tests(law, span["since"], span["until"]):
        lasts_s = ended - began
        if began - lasts_s < span["since"] or ended + washout_s + lasts_s > span["until"]:
            continue
        for since, until, is_off in (
            (began - lasts_s, began, False),
            (began + washout_s, ended, True),
            (ended + washout_s, ended + washout_s + lasts_s, False),
        ):
            first = (since // interval_s + 1) * interval_s
            found += [(at, began, is_off) for at in range(first, until + 1, interval_s)]
    return found


def read(store: Store, policy: Policy, span: Mapping[str, int], held_out: Iterable[str]) -> list[Row]:
    """A row a test, side, pair, IP version and class of sizes. Raises StoreError."""
    wanted = rounds(policy, span)
    if not wanted:
        return []
    moments, tests, off = (list(column) for column in zip(*wanted, strict=True))
    return store.query(
        _OUTCOMES, {"rounds": moments, "tests": tests, "off": [int(one) for one in off], "held": sorted(held_out)}
    )


def lines(rows: Iterable[Row]) -> list[BenefitLine]:
    """What windows are good for by the tests, one block a test. Pure."""
    found = [Side(row, row["test_s"], not row["is_off"]) for row in rows]
    return [times("disable tests", "all", found, METHOD), resent("disable tests", "all", found, METHOD)]
