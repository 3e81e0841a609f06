"""Operators' words for single edges: what these are given in place of their pair's decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product

from springtide.policy import Policy
from springtide.store import Row, Store

TABLE = "initcwnd_edge_decisions"


@dataclass(frozen=True, order=True)
class EdgeDecision:
    """One row of initcwnd_edge_decisions without its round and policy; `until` in seconds since the epoch."""

    edge: str
    src_pop: str
    dst_pop: str
    ip_version: int
    initcwnd: int | None
    until: int
    why: str

    @property
    def pair(self) -> tuple[bytes, bytes, int]:
        return self.src_pop.encode(), self.dst_pop.encode(), self.ip_version


def edge_decisions(policy: Policy, now: int) -> list[EdgeDecision]:
    """Values of single edges from overrides in force, sorted; where two do of one, the first in the file counts."""
    found: dict[tuple[str, str, int], EdgeDecision] = {}
    for one in policy.overrides:
        for edge, version in product(one.edges or (), (4, 6)):
            if one.covers(version, now):
                values = one.src, one.dst, version, one.initcwnd, one.until_unix_s, one.reason
                found.setdefault((edge, one.dst, version), EdgeDecision(edge, *values))
    return [found[key] for key in sorted(found)]


def read_round(store: Store, round_unix_s: int) -> list[EdgeDecision]:
    rows = _read(store, round_unix_s)
    return [EdgeDecision(**{name: value for name, value in row.items() if name != "policy_version"}) for row in rows]


def write_round(store: Store, round_unix_s: int, decided: list[EdgeDecision], policy_version: str) -> None:
    """Make the round's rows these."""
    present, rows = _read(store, round_unix_s), [asdict(one) | {"policy_version": policy_version} for one in decided]
    if present == rows:
        return
    store.insert(TABLE, [{"round": round_unix_s, **row} for row in rows])
    if present:
        store.execute(
            f"delete from {TABLE} where round = fromUnixTimestamp({{round:UInt32}}) "
            "and not has({kept:Array(String)}, concat(edge, ' ', dst_pop, ' ', toString(ip_version)))",
            {"round": round_unix_s, "kept": [f"{one.edge} {one.dst_pop} {one.ip_version}" for one in decided]},
        )


def _read(store: Store, round_unix_s: int) -> list[Row]:
    return store.query(
        "select edge, src_pop, dst_pop, ip_version, initcwnd, toUnixTimestamp(until) as until, why, policy_version "
        f"from {TABLE} final where round = fromUnixTimestamp({{round:UInt32}}) order by edge, dst_pop, ip_version "
        "settings prefer_column_name_to_alias = 1",
        {"round": round_unix_s},
    )
