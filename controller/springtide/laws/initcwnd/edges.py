"""Operators' words for single edges: what these are given in place of their pair's decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass

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
    for override in policy.overrides:
        for edge in override.edges or ():
            for ip_version in (4, 6):
                if override.covers(ip_version, now):
                    found.setdefault(
                        (edge, override.dst, ip_version),
                        EdgeDecision(
                            edge,
                            override.src,
                            override.dst,
                            ip_version,
                            override.initcwnd,
                            override.until_unix_s,
                            override.reason,
                        ),
                    )
    return [found[key] for key in sorted(found)]


def read_round(store: Store, round_unix_s: int) -> list[EdgeDecision]:
    return [EdgeDecision(**row) for row in _read(store, round_unix_s)[0]]


def write_round(store: Store, round_unix_s: int, decided: list[EdgeDecision], policy_version: str) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written."""
    present, versions = _read(store, round_unix_s)
    rows = [asdict(one) for one in decided]
    if present == rows and versions <= {policy_version}:
        return False
    store.insert(TABLE, [{"round": round_unix_s, "policy_version": policy_version, **row} for row in rows])
    kept = {_name(row) for row in rows}
    stale = sorted({_name(row) for row in present} - kept)
    if stale:
        store.execute(
            f"delete from {TABLE} where round = fromUnixTimestamp({{round:UInt32}}) "
            "and concat(edge, ' ', dst_pop, ' ', toString(ip_version)) in {stale:Array(String)}",
            {"round": round_unix_s, "stale": stale},
        )
    return True


def _name(row: Row) -> str:
    return f"{row['edge']} {row['dst_pop']} {row['ip_version']}"


def _read(store: Store, round_unix_s: int) -> tuple[list[Row], set[str]]:
    rows = store.query(
        "select edge, src_pop, dst_pop, ip_version, initcwnd, toUnixTimestamp(until) as until_s, why, policy_version "
        f"from {TABLE} final where round = fromUnixTimestamp({{round:UInt32}}) order by edge, dst_pop, ip_version",
        {"round": round_unix_s},
    )
    versions = {row.pop("policy_version") for row in rows}
    return [{("until" if name == "until_s" else name): value for name, value in row.items()} for row in rows], versions
