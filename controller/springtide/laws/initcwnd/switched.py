"""The benefit of initial windows where pairs are switched on and off: busy time and retransmissions of the same pair
while it has a window and while it has none.

A switchback compares block by block. A disable test is compared with as long before and after it, so that a tide that
rises or falls evenly through all of it cancels. All pairs are off at once, and what else happens in that hour happens
to many of them: a test is one observation, of however many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from springtide.laws.effect import SPAN, BenefitLine, Effect, by_size, grouped
from springtide.laws.paired import contrasts, middle
from springtide.laws.switchback import block, counts, disable_tests, turn
from springtide.policy import Policy
from springtide.store import Row, Store

_CELL = ("src_pop", "dst_pop", "ip_version", "size_class_bytes")
# Sums of rows of round_outcomes, by _CELL and whatever makes the sides.
_SUMS = """
    sumIf(connections, busy_p50_us > 0) as timed,
    sumIf(round_outcomes.connections * log2(assumeNotNull(busy_p50_us)), busy_p50_us > 0) as log2_busy_sum,
    sum(bytes_sent) as bytes_sent,
    sum(bytes_retransmitted) as bytes_retransmitted
"""
# Whether decisions of the cell's period say so.
_DECIDED = f"""
(intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}}, src_pop, dst_pop, ip_version) in (
    select intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}}, src_pop, destination, ip_version
    from path_decisions final
    where part = 'initcwnd' and {SPAN} and $what
)"""
_GIVEN, _OFF = (_DECIDED.replace("$what", what) for what in ("initcwnd > 0", "reason = 'switchback'"))
# Outcomes of pairs that had a window in the block, or would have had it; by period, whose rounds have the same turns.
_OF_PERIODS = f"""
select
    intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}} as period_s, {", ".join(_CELL)}, {_SUMS},
    max({_GIVEN}) as was_given, max({_OFF}) as was_off
from round_outcomes
where round in (select fromUnixTimestamp(arrayJoin({{rounds:Array(UInt32)}})))
    and dst_pop != '' and host not in {{held:Array(String)}}
    and (intDiv(toUnixTimestamp(round), {{block_s:UInt32}}), src_pop, dst_pop, ip_version) in (
        select intDiv(toUnixTimestamp(round), {{block_s:UInt32}}), src_pop, destination, ip_version
        from path_decisions final
        where part = 'initcwnd' and {SPAN} and (initcwnd > 0 or reason = 'switchback')
    )
group by period_s, {", ".join(_CELL)}
order by period_s, {", ".join(_CELL)}
"""
# Outcomes of pairs that had a window before or after the test and were off in it. Those that an operator's override
# kept on are left out.
_OF_TESTS = f"""
with
    {{rounds:Array(UInt32)}} as moments,
    transform(toUnixTimestamp(round), moments, {{tests:Array(UInt32)}}, toUInt32(0)) as test_s,
    transform(toUnixTimestamp(round), moments, {{off:Array(UInt8)}}, toUInt8(0)) as is_off
select
    test_s, is_off, {", ".join(_CELL)}, {_SUMS}
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
group by test_s, is_off, {", ".join(_CELL)}
order by test_s, is_off, {", ".join(_CELL)}
"""


@dataclass(frozen=True)
class _Side:
    """A row of _CELL and _SUMS, what it is compared within, and whether the pair was on."""

    row: Row
    block: object
    on: bool


def read_switchback(store: Store, policy: Policy, span: Mapping[str, int], held_out: Iterable[str]) -> list[Row]:
    """A row a period, pair, IP version and class of sizes, over the rounds since < round <= until that count. Raises
    StoreError."""
    law, interval_s = policy.experiment, policy.round.interval_s
    first = (span["since"] // interval_s + 1) * interval_s
    rounds = [at for at in range(first, span["until"] + 1, interval_s) if counts(law, interval_s, at)]
    period_s = interval_s * law.period_rounds
    return store.query(
        _OF_PERIODS,
        {
            **span,
            "rounds": rounds,
            "held": sorted(held_out),
            "period_s": period_s,
            "block_s": period_s * law.block_periods,
        },
    )


def of_switchback(rows: Iterable[Row], policy: Policy) -> list[BenefitLine]:
    """Pure. By size, source and altogether. As decided: whether a window had reached the edges or not. The decisions
    say which turn it was; where there was nothing to decide the policy does, which may have been another then."""
    law, interval_s = policy.experiment, policy.round.interval_s

    def side(row: Row) -> _Side:
        # A pair and its way back are switched together: they are of one block.
        number = block(law, interval_s, row["period_s"])
        on = turn(law, interval_s, row["src_pop"], row["dst_pop"], row["period_s"]).on
        if row.get("was_given") or row.get("was_off"):
            on = bool(row["was_given"])
        return _Side(row, (number, *sorted((row["src_pop"], row["dst_pop"]))), on)

    # A period in which a pair had both is of two policies.
    found = [side(row) for row in rows if not (row.get("was_given") and row.get("was_off"))]
    sizes = by_size(found, lambda one: one.row["size_class_bytes"])
    pops = grouped(found, lambda one: str(one.row["src_pop"]))
    return [
        *(_times("object size", size, own, "switchback") for size, own in sizes),
        *(_times("PoP", pop, own, "switchback") for pop, own in pops),
        _times("all", "all", found, "switchback"),
        _resent("all", "all", found, "switchback"),
    ]


def rounds_of_tests(policy: Policy, span: Mapping[str, int]) -> list[tuple[int, int, bool]]:
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


def read_tests(store: Store, policy: Policy, span: Mapping[str, int], held_out: Iterable[str]) -> list[Row]:
    """A row a test, side, pair, IP version and class of sizes. Raises StoreError."""
    wanted = rounds_of_tests(policy, span)
    if not wanted:
        return []
    moments, tests, off = (list(column) for column in zip(*wanted, strict=True))
    return store.query(
        _OF_TESTS, {"rounds": moments, "tests": tests, "off": [int(one) for one in off], "held": sorted(held_out)}
    )


def of_tests(rows: Iterable[Row]) -> list[BenefitLine]:
    """The benefit of windows by the tests, one block a test. Pure."""
    found = [_Side(row, row["test_s"], not row["is_off"]) for row in rows]
    return [make("disable tests", "all", found, "disable test") for make in (_times, _resent)]


def _times(by: str, group: str, sides: Collection[_Side], method: str) -> BenefitLine:
    """Busy time of what pairs closed, on against off: negative is faster."""
    effect = _effect(sides, "log2_busy_sum", "timed", log2=True)
    return BenefitLine("initcwnd", "busy time", by, group, effect, method=method)


def _resent(by: str, group: str, sides: Collection[_Side], method: str) -> BenefitLine:
    """The part of the bytes that was sent again, on less off, in points."""
    effect = _effect(sides, "bytes_retransmitted", "bytes_sent", log2=False)
    return BenefitLine("initcwnd", "bytes sent again", by, group, effect, "decided, points", method)


def _effect(sides: Collection[_Side], total: str, weight: str, *, log2: bool) -> Effect:
    cells = (
        (
            side.block,
            tuple(side.row[name] for name in _CELL),
            side.on,
            side.row[total] / side.row[weight],
            float(side.row[weight]),
        )
        for side in sides
        if side.row[weight]
    )
    return middle(list(contrasts(cells).values()), log2=log2)
