"""Congestion decisions as rows: the evidence, what was decided, and writing a round so that twice changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

import numpy as np

from springtide import instants
from springtide.laws import round_rows
from springtide.laws.columns import Table
from springtide.laws.congestion.law import ACTIONS, DECIDED, PREVIOUS, REASONS, least_low_rounds
from springtide.laws.congestion.prefixes import EVIDENCE, addresses, halves, keys, prefix_text
from springtide.policy import MAX_HISTORY_S, Policy
from springtide.store import Param, Row, Store
from springtide.store.binary import Columns
from springtide.store.files import sql

TABLE = "congestion_decisions"
ALGORITHMS = ("default", "bbr")
_DOUBLES = ("rtt_us", "retransmit_ratio", "rate", "recent_rate", "benefit", "expected_benefit")
# An alias may have the name of the column that it is made of.
_BY_COLUMN = "settings prefer_column_name_to_alias = 1"

_KEY = """
    toFixedString(pop, 64) as pop,
    toUInt64(bitShiftRight(toUInt128(client_prefix), 64)) as high,
    toUInt64(bitAnd(toUInt128(client_prefix), toUInt128(18446744073709551615))) as low,
    ip_version,
"""
_STATE = """
    toUInt8(held_out) as held_out, coalesce(baseline_rate, nan) as baseline_rate,
    toUInt32(coalesce(selected_since, toDateTime(0, 'UTC'))) as selected_since,
    toUInt32(coalesce(hold_until, toDateTime(0, 'UTC'))) as hold_until, penalty, toUInt8(suppressed) as suppressed,
    coalesce(trial_growth, nan) as trial_growth
"""


def evidence(store: Store, round_unix_s: int, policy: Policy, last_unix_s: int, least_low: int | None = None) -> Table:
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
        "least_low": least_low_rounds(law) if least_low is None else least_low,
        "recent_rounds": law.benefit_rounds,
        "last_s": last_unix_s,
    }
    return store.columns(sql("congestion/evidence"), EVIDENCE, parameters)


def unranked(store: Store, round_unix_s: int, policy: Policy, pop: str, prefix: str) -> dict[str, int]:
    """In how many rounds of the window traffic to a prefix was not ranked, by why; see sql/congestion/unranked.sql."""
    high, low = halves(prefix)
    key: dict[str, Param] = {"pop": pop, "address": str(IPv6Address(high << 64 | low))}
    [row] = store.query(sql("congestion/unranked"), {**_eligible(policy, round_unix_s), **key})
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


def last_round(store: Store, before_unix_s: int) -> int:
    """The newest round before `before` that left decisions within the time that they are remembered for; 0 is none."""
    [row] = store.query(
        f"select toUnixTimestamp(max(round)) as newest from {TABLE} "
        "where round < fromUnixTimestamp({before:UInt32}) and round >= fromUnixTimestamp({oldest:UInt32})",
        {"before": before_unix_s, "oldest": max(0, before_unix_s - MAX_HISTORY_S)},
    )
    return int(row["newest"] or 0)


def previous(store: Store, last_unix_s: int) -> Table:
    """What the decisions of that round left, as PREVIOUS rows."""
    return store.columns(
        f"select {_KEY} toUnixTimestamp(round) as round, {_STATE} from {TABLE} final "
        "where round = fromUnixTimestamp({last:UInt32}) "
        f"and (selected_since is not null or penalty > 0 or hold_until > round) {_BY_COLUMN}",
        PREVIOUS,
        {"last": last_unix_s},
    )


def read_round(store: Store, round_unix_s: int) -> Table:
    """All decisions of a round as DECIDED rows, sorted by PoP and prefix."""
    reasons = ", ".join(f"'{reason}'" for reason in REASONS)
    return store.columns(
        f"""
        select {_KEY}
            toUInt8(action) as action, toUInt8(algorithm) as algorithm,
            toUInt8(indexOf([{reasons}], toString(reason)) - 1) as reason, measured_rounds, low_rounds, state_changes,
            low_excess, good_excess, toUInt8(back_office) as back_office,
            {", ".join(f"coalesce({name}, nan) as {name}" for name in _DOUBLES)},
            {_STATE}
        from {TABLE} final where round = fromUnixTimestamp({{round:UInt32}}) order by pop, client_prefix {_BY_COLUMN}
        """,
        DECIDED,
        {"round": round_unix_s},
    )


def on_bbr(store: Store, round_unix_s: int, max_age_s: int) -> dict[str, list[IPv4Network | IPv6Network]] | None:
    """Each PoP's prefixes that use BBR by the newest decisions up to the round, None where they are older than that."""
    newest = last_round(store, round_unix_s + 1)
    if newest <= round_unix_s - max_age_s:
        return None
    found: dict[str, list[IPv4Network | IPv6Network]] = {}
    decided = read_round(store, newest)
    chosen = decided[decided["algorithm"] == ALGORITHMS.index("bbr")]
    for pop, address in zip(chosen["pop"].tolist(), addresses(chosen), strict=True):
        found.setdefault(pop.decode(), []).append(ip_network(prefix_text(IPv6Address(address))))
    return found


def write_round(store: Store, round_unix_s: int, decided: Table, policy_version: str) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written."""
    return round_rows.write(
        store,
        TABLE,
        round_unix_s,
        policy_version,
        decided,
        read=lambda: read_round(store, round_unix_s),
        keys=keys,
        columns=_columns,
        name=("concat(pop, ' ', toString(toUInt128(client_prefix)))", _names),
    )


def _names(decided: Table) -> list[str]:
    pops = [pop.decode() for pop in decided["pop"].tolist()]
    return [f"{pop} {int.from_bytes(one)}" for pop, one in zip(pops, addresses(decided), strict=True)]


def _columns(decided: Table) -> Columns:
    """As the table has them: null where nothing is known."""
    columns = {name: decided[name] for name in decided.dtype.names or () if name not in ("high", "low")}
    columns["client_prefix"] = np.array([str(IPv6Address(one)).encode() for one in addresses(decided)], "S45")
    columns["reason"] = np.array([reason.encode() for reason in REASONS])[decided["reason"]]
    for name in ("selected_since", "hold_until"):
        columns[name] = np.ma.masked_equal(columns[name], 0)
    for name in (*_DOUBLES, "baseline_rate", "trial_growth"):
        columns[name] = np.ma.masked_where(np.isnan(columns[name]), columns[name])
    return columns


def rows(decided: Table) -> Iterator[Row]:
    """DECIDED rows as the table's, instants in seconds since the epoch."""
    names = decided.dtype.names or ()
    for values, address in zip(decided.tolist(), addresses(decided), strict=True):
        row: dict[str, Any] = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(names, values, strict=True)
        }
        del row["high"], row["low"]
        yield row | {
            "pop": row["pop"].decode(),
            "client_prefix": str(IPv6Address(address)),
            "action": ACTIONS[row["action"]].value,
            "algorithm": ALGORITHMS[row["algorithm"]],
            "reason": REASONS[row["reason"]],
            "held_out": bool(row["held_out"]),
            "back_office": bool(row["back_office"]),
            "suppressed": bool(row["suppressed"]),
            "selected_since": row["selected_since"] or None,
            "hold_until": row["hold_until"] or None,
        }


def as_dict(row: Row) -> dict[str, object]:
    """For JSON and people: the prefix as text, instants as text."""
    values = {name: value for name, value in row.items() if name != "client_prefix"}
    moments = {name: row[name] and instants.show(row[name]) for name in ("selected_since", "hold_until")}
    return {"pop": row["pop"], "prefix": prefix_text(IPv6Address(row["client_prefix"])), **values, **moments}


def one(table: Table, pop: str, prefix: str) -> Table:
    """The rows of one prefix at one PoP."""
    high, low = halves(prefix)
    found: Table = table[(table["pop"] == pop.encode()) & (table["high"] == high) & (table["low"] == low)]
    return found


def history(store: Store, pop: str, prefix: str, since_unix_s: int, until_unix_s: int) -> list[Row]:
    """A prefix's decisions with since < round <= until, newest first, as people read them."""
    high, low = halves(prefix)
    return store.query(
        f"""
        select
            formatDateTime(round, '%Y-%m-%dT%H:%i:%SZ', 'UTC') as round, action, algorithm, held_out, reason,
            measured_rounds, low_rounds, state_changes, round(penalty, 2) as penalty, policy_version
        from {TABLE} final
        where {TABLE}.round > fromUnixTimestamp({{since:UInt32}})
            and {TABLE}.round <= fromUnixTimestamp({{until:UInt32}})
            and pop = {{pop:String}} and client_prefix = toIPv6({{address:String}})
        order by {TABLE}.round desc
        """,
        {"since": since_unix_s, "until": until_unix_s, "pop": pop, "address": str(IPv6Address(high << 64 | low))},
    )
