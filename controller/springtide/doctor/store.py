"""The store: whether it answers, its schema, how far its clock and its hosts' clocks agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from springtide.doctor.clock import TOLERANCE_S
from springtide.doctor.finding import Finding, advice, fine, fix
from springtide.learn.status import SHOWN, Rogue
from springtide.store import Store
from springtide.store.migrations import State, read_migrations, status


@dataclass(frozen=True)
class HostClock:
    """A host's newest sample against its insert into the store: it can be ahead only if the host's clock is."""

    host: str
    ahead_s: float


def gather_schema(store: Store) -> list[State]:
    """Raises StoreError."""
    return status(store, read_migrations())


def gather_clocks(store: Store, since_unix_s: int) -> list[HostClock]:
    """Hosts whose samples are ahead of their insert, the worst first. Needs the schema. Raises StoreError."""
    rows = store.query(
        """
        select host, max(time_unix_us / 1000000 - toUnixTimestamp(inserted_at)) as ahead
        from tcp_samples
        where time_unix_us >= {since:Int64}
        group by host
        having ahead > 0
        order by ahead desc, host
        """,
        {"since": since_unix_s * 1_000_000},
    )
    return [HostClock(row["host"], float(row["ahead"])) for row in rows]


def check_schema(url: str, seen: Sequence[State]) -> Iterator[Finding]:
    by_state = {state: [one for one in seen if one.state == state] for state in ("changed", "unknown", "pending")}
    for one in by_state["changed"]:
        what = f"{one.name} differs from what was applied at {one.applied_at}"
        yield fix("schema", url, what, "restore the file; changes go into a new migration")
    if by_state["unknown"]:
        numbers = ", ".join(str(one.number) for one in by_state["unknown"])
        what = f"has migrations that this version does not know: {numbers}"
        yield fix("schema", url, what, "use the version that applied them, or a newer one")
    if by_state["pending"]:
        what = f"lacks {len(by_state['pending'])} migrations, {by_state['pending'][0].name} first"
        yield fix("schema", url, what, "run `springtide migrate`")
    if not any(by_state.values()):
        yield fine("schema", url, f"is that of migration {max(one.number for one in seen)}")


def check_clocks(seen: Sequence[HostClock]) -> Iterator[Finding]:
    wrong = [one for one in seen if one.ahead_s > TOLERANCE_S]
    for one in wrong:
        what = f"its samples are {one.ahead_s:.1f} s ahead of the store's clock"
        yield fix("hosts' clocks", one.host, what, "synchronise it by NTP")
    if not wrong:
        yield fine("hosts' clocks", "tcp_samples", "no host is ahead")


# Advice for each `why` of round_rogues.
TODO = {
    "not_in_fleet": "if it is ours, add it to fleet.yaml; if not, find its sender and block it",
    "other_pop": "correct the collector's `pop`, or the edge's PoP in fleet.yaml, which counts",
    "impossible_values": "inspect the host: these connections are left out",
    "several_boots": "two machines have one name, or its clock goes back: give each its own name, fix the clock",
    "poll_numbers": "inspect the host: one collector numbers its polls consecutively",
}


def check_rogues(seen: Sequence[Rogue]) -> Iterator[Finding]:
    """Hosts whose samples do not count: by reason, the worst of each."""
    for why, todo in TODO.items():
        those = [one for one in seen if one.why == why]
        for one in those[:SHOWN]:
            yield advice("hosts", "round_rogues", str(one), todo)
        if len(those) > SHOWN:
            yield advice("hosts", "round_rogues", f"{len(those) - SHOWN} more like it ({why})", todo)
    if not seen:
        yield fine("hosts", "round_rogues", "all that sent samples are edges of the fleet, with possible values")


def check_answer(url: str, took_s: float) -> Finding:
    """A store that answers, but slowly, makes every job late."""
    if took_s > 5:
        return advice("store", url, f"took {took_s:.0f} s for its first answer", "see what else it runs")
    return fine("store", url, "answers")
