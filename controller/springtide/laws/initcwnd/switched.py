"""What initial windows are good for where pairs are switched on and off: busy time and retransmissions of the same pair
while on and while off, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from springtide.laws.base import BenefitLine
from springtide.laws.effect import SPAN, grouped, size_group
from springtide.laws.initcwnd.on_off import CELL, SUMS, Side, couple, resent, times
from springtide.laws.switchback import block, counts, turn
from springtide.policy import Policy
from springtide.store import Row, Store

METHOD = "switchback"

# Whether decisions of the cell's period say so.
_DECIDED = f"""
(intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}}, src_pop, dst_pop, ip_version) in (
    select intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}}, src_pop, destination, ip_version
    from path_decisions final
    where part = 'initcwnd' and {SPAN} and $what
)"""
_GIVEN, _OFF = (_DECIDED.replace("$what", what) for what in ("initcwnd > 0", "reason = 'switchback'"))
# Outcomes of pairs that had a window in the block, or would have had it; by period, whose rounds have the same turns.
_OUTCOMES = f"""
select
    intDiv(toUnixTimestamp(round), {{period_s:UInt32}}) * {{period_s:UInt32}} as period_s, {", ".join(CELL)}, {SUMS},
    max({_GIVEN}) as was_given, max({_OFF}) as was_off
from round_outcomes
where round in (select fromUnixTimestamp(arrayJoin({{rounds:Array(UInt32)}})))
    and dst_pop != '' and host not in {{held:Array(String)}}
    and (intDiv(toUnixTimestamp(round), {{block_s:UInt32}}), src_pop, dst_pop, ip_version) in (
        select intDiv(toUnixTimestamp(round), {{block_s:UInt32}}), src_pop, destination, ip_version
        from path_decisions final
        where part = 'initcwnd' and {SPAN} and (initcwnd > 0 or reason = 'switchback')
    )
group by period_s, {", ".join(CELL)}
order by period_s, {", ".join(CELL)}
"""


def read(store: Store, policy: Policy, span: Mapping[str, int], held_out: Iterable[str]) -> list[Row]:
    """A row a period, pair, IP version and class of sizes, over the rounds since < round <= until that count. Raises
    StoreError."""
    law, interval_s = policy.experiment, policy.round.interval_s
    first = (span["since"] // interval_s + 1) * interval_s
    rounds = [at for at in range(first, span["until"] + 1, interval_s) if counts(law, interval_s, at)]
    period_s = interval_s * law.period_rounds
    return store.query(
        _OUTCOMES,
        {
            **span,
            "rounds": rounds,
            "held": sorted(held_out),
            "period_s": period_s,
            "block_s": period_s * law.block_periods,
        },
    )


def lines(rows: Iterable[Row], policy: Policy) -> list[BenefitLine]:
    """Pure. By size, source and altogether. As decided: whether a window had reached the edges or not. The decisions
    say which turn it was; where there was nothing to decide the policy does, which may have been another then."""
    law, interval_s = policy.experiment, policy.round.interval_s

    def side(row: Row) -> Side:
        number = block(law, interval_s, row["period_s"])
        on = turn(law, interval_s, row["src_pop"], row["dst_pop"], row["period_s"]).on
        if row.get("was_given") or row.get("was_off"):
            on = bool(row["was_given"])
        return Side(row, (number, *couple(row)), on)

    # A period in which a pair had both is of two policies.
    found = [side(row) for row in rows if not (row.get("was_given") and row.get("was_off"))]
    sizes = grouped(found, lambda one: f"{one.row['size_class_bytes']:012}")
    pops = grouped(found, lambda one: str(one.row["src_pop"]))
    return [
        *(times("object size", size_group(int(size)), own, METHOD) for size, own in sizes),
        *(times("PoP", pop, own, METHOD) for pop, own in pops),
        times("all", "all", found, METHOD),
        resent("all", "all", found, METHOD),
    ]
