"""Congestion decisions as rows: the evidence, what was decided, and writing a round so that twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

import numpy as np

from springtide.frame import Frame
from springtide.laws.columns import Keys, Table
from springtide.laws.congestion.law import DECIDED, PREVIOUS, least_low_rounds
from springtide.laws.congestion.prefixes import EVIDENCE, addresses, halves, keys, prefix_text
from springtide.laws.rows import TABLE, Decisions
from springtide.policy import Policy
from springtide.store import Param, Row, Store
from springtide.store.binary import Columns
from springtide.store.files import sql

ALGORITHMS = ("default", "bbr")
_NETWORK = "toIPv6OrDefault(splitByChar('/', destination)[1])"
_ADDRESS = f"toUInt128({_NETWORK})"
# The key in memory, of the table's columns.
_KEY = {
    "pop": "toFixedString(toLowCardinality(src_pop), 64) as pop",
    "high": f"toUInt64(bitShiftRight({_ADDRESS}, 64)) as high",
    "low": f"toUInt64(bitAnd({_ADDRESS}, toUInt128(18446744073709551615))) as low",
}
# The rows with `pop` and `client_prefix`, the prefix's first address, IPv4 mapped: as the round tables have them.
DECISIONS = f"""(
    select *, src_pop as pop, {_NETWORK} as client_prefix
    from {TABLE} final where part = 'congestion'
)"""


class _Prefixes(Decisions):
    """In memory a prefix is its PoP and two halves of its address (prefixes.py)."""

    def _fixed(self, name: str, form: np.dtype[Any]) -> str:
        return _KEY.get(name) or super()._fixed(name, form)

    def keys(self, decided: Frame) -> Keys:
        return keys(decided)

    def texts(self, decided: Frame) -> list[str]:
        rows = zip(decided["pop"].tolist(), _names(decided), decided["ip_version"].tolist(), strict=True)
        return [f"{pop.decode()} {prefix} {version}" for pop, prefix, version in rows]

    def rows(self, decided: Frame) -> Iterator[Row]:
        for row, name in zip(super().rows(decided), _names(decided), strict=True):
            head = {"pop": row["pop"], "prefix": name}
            rest = {key: value for key, value in row.items() if key not in _KEY}
            yield head | rest | {"algorithm": ALGORITHMS[row["algorithm"]]}

    def _columns(self, decided: Frame) -> Columns:
        columns = dict(super()._columns(decided))
        columns["src_pop"] = columns.pop("pop")
        columns["destination"] = np.array([name.encode() for name in _names(decided)], "S64")
        return {name: column for name, column in columns.items() if name not in _KEY}


def _names(decided: Frame) -> list[str]:
    return [prefix_text(IPv6Address(one)) for one in addresses(decided)]


PREFIXES = _Prefixes(
    "congestion",
    DECIDED,
    PREVIOUS,
    ("selected_since", "penalty", "hold_until"),
    order=f"src_pop, {_ADDRESS}",
)


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


def on_bbr(store: Store, round_unix_s: int, ttl_s: int) -> dict[str, list[IPv4Network | IPv6Network]]:
    """Each PoP's prefixes that use BBR by the newest decisions up to the round."""
    found: dict[str, list[IPv4Network | IPv6Network]] = {}
    decided = PREFIXES.newest(store, round_unix_s, ttl_s)
    chosen = decided[decided["algorithm"] == ALGORITHMS.index("bbr")]
    for pop, name in zip(chosen["pop"].tolist(), _names(chosen), strict=True):
        found.setdefault(pop.decode(), []).append(ip_network(name))
    return found


def one(table: Table, pop: str, prefix: str) -> Table:
    """The evidence of one prefix at one PoP."""
    high, low = halves(prefix)
    found: Table = table[(table["pop"] == pop.encode()) & (table["high"] == high) & (table["low"] == low)]
    return found
