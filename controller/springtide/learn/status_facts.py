"""Reads the facts about the loop from the store and the publisher's folder, for `learn.status`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from springtide import instants
from springtide.bundles.model import read_folder
from springtide.errors import SpringtideError
from springtide.fleet import Fleet
from springtide.laws.effect import BenefitLine, Effect
from springtide.laws.registry import LAWS
from springtide.learn import benefits
from springtide.learn.status import Facts, Published, Rogue
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.publication.pause import paused
from springtide.publication.withdrawal import WITHDRAWN, withdrawn
from springtide.store import Store

# For each reason; each round keeps as many unknown hosts.
MOST_ROGUES = 101
# A round's connections to other PoPs and to clients: those that began, and those that were seen to begin with a value
# of their edge.
BEGUN = """
select
    sum(sample_weight) as began,
    sumIf(sample_weight, recorded and started or first_cwnd_low > 10) as seen
from round_sockets
where round = fromUnixTimestamp({round:UInt32}) and round_sockets.began
    and (dst_pop = '' or (src_pop != '' and src_pop != dst_pop))
"""
# New connections whose records are missed: where each leaves one by its odds, e ** -20 is 2e-9.
LEAST_RECORDS = 20
UNRECORDED = """
select host, countIf(began and not opted_out and (dst_pop = '' or dst_pop != src_pop)) as begun
from round_sockets
where round = fromUnixTimestamp({round:UInt32}) and host in {edges:Array(String)}
group by host
having max(recorded) = 0 and begun * {permille:UInt32} >= {least:UInt32} * 1000
order by host
"""


def read(store: Store, fleet: Fleet, policy: Policy, folder: PublishFolder, now: int) -> Facts:
    """Raises StoreError and SpringtideError."""
    newest = _one(
        store,
        "select toUnixTimestamp(max(rollups.round)) as at, argMax(samples, rollups.round) as total from rollups final "
        "where rollups.round <= fromUnixTimestamp({now:UInt32})",
        {"now": now},
    )
    moment = newest["at"] or None
    hosts = _one(
        store,
        "select countIf(rows_seen > 0) as seen, count() as expected from round_hosts "
        "where round = fromUnixTimestamp({round:UInt32})",
        {"round": moment or 0},
    )
    sample = _one(
        store,
        "select max(time_unix_us) as at, count() > 0 as any from tcp_samples "
        "where host global in (select fleet_edges.edge from fleet_edges)",
    )
    recorded, _, damaged = journal.read(folder.path)
    # Where nothing is rolled up yet, decisions may be there.
    shown, interval_s = moment or instants.latest_round(now, policy.round.interval_s), policy.round.interval_s
    measured = benefits.newest(store, now)
    events = _newest([*_audit(store, now), *recorded], now)
    return Facts(
        now=now,
        interval_s=policy.round.interval_s,
        lateness_s=policy.round.lateness_s,
        sample=sample["at"] // 1_000_000 if sample["any"] else None,
        round=moment,
        round_samples=newest["total"],
        hosts_seen=hosts["seen"],
        hosts_expected=hosts["expected"],
        rogues=rogues(store, moment or 0, moment or 0),
        decisions={law.name: found for law in LAWS if (found := law.newest(store, policy, now)) is not None},
        published=_publication(folder.resolved("candidate"), "edges"),
        holds=_holding(folder),
        left_alone=fleet.left_alone(),
        unrecorded=unrecorded(store, fleet, policy, moment or 0) if "rollout" in events else {},
        events=events,
        damaged=damaged,
        stopped=_stopped(folder.path),
        advises=policy.advises,
        paused=None if (pause := paused(folder.path, now)) is None else str(pause),
        begun=_one(store, BEGUN, {"round": moment or 0}),
        benefit={
            law.benefit_name: measured.answers.get(law.name, BenefitLine(law.name, "", "all", "all", Effect(0, 0)))
            for law in LAWS
            if law.benefit_name and law.decides(policy, shown)
        },
        measured=measured.until or None,
        uncontrolled=benefits.uncontrolled(fleet, policy, now),
        treated={law.name: law.treated(store, shown, interval_s) for law in LAWS if law.seen_name},
    )


def unrecorded(store: Store, fleet: Fleet, policy: Policy, round_unix_s: int) -> dict[str, int]:
    """Edges that enforce by bpf and of whose new connections in a round none is recorded; how many began."""
    paced = [edge for edge, pop in fleet.edges().items() if policy.enforce_of(edge, pop, round_unix_s).by == "bpf"]
    alone = set(fleet.left_alone())
    rows = store.query(
        UNRECORDED,
        {
            "round": round_unix_s,
            "edges": [edge for edge in paced if edge not in alone],
            "permille": policy.enforce.record_permille,
            "least": LEAST_RECORDS,
        },
    )
    return {row["host"]: row["begun"] for row in rows}


def rogues(store: Store, since_unix_s: int, until_unix_s: int) -> list[Rogue]:
    """Hosts whose samples do not count in these rounds, both included; the fleet's own first. Raises StoreError."""
    rows = store.query(
        "select host, toString(why) as why, sum(round_rogues.times) as times, max(hosts) as hosts from round_rogues "
        "where round between fromUnixTimestamp({since:UInt32}) and fromUnixTimestamp({until:UInt32}) "
        "group by host, why order by why = 'not_in_fleet', host = '', times desc, host, why "
        "limit {most:UInt32} by why",
        {"since": since_unix_s, "until": until_unix_s, "most": MOST_ROGUES},
    )
    return [Rogue(**row) for row in rows]


def _one(store: Store, sql: str, params: Mapping[str, int] | None = None) -> dict[str, Any]:
    return store.query(sql, params)[0]


def _publication(folder: Path | None, part: str) -> Published | None:
    if folder is None:
        return None
    documents = read_folder(folder / part)
    if not documents:
        raise SpringtideError(f"{folder / part}: has no bundles; publish a round again")
    found = [document.bundle for document in documents.values()]
    full = [bundle for bundle in found if not bundle.empty] or found
    return Published(
        name=folder.name,
        created=max(instants.parse(bundle.created_at) for bundle in found),
        expires=min(instants.parse(bundle.expires_at) for bundle in full),
        edges=len(found),
        routes=sum(len(bundle.windows) for bundle in found),
        clients=len({(bundle.pop, prefix) for bundle in found for prefix in bundle.congestion}),
        back=part == "back",
    )


def _holding(folder: PublishFolder) -> Published | None:
    held = folder.resolved("current")
    return None if held is None else _publication(held.parent, held.name)


def _audit(store: Store, now: int) -> list[journal.Event]:
    """The newest row of each kind, for a host that is not the publisher."""
    rows = store.query(
        "select toUnixTimestamp(at) as at_s, id, who, event, publication, verdict, reason, edges, details "
        "from audit final order by toUnixTimestamp(at) > {last:UInt32}, at desc, id limit 1 by event",
        {"last": now + instants.CLOCK_TOLERANCE_S},
    )
    return [
        journal.Event(
            event=row["event"],
            publication=row["publication"],
            verdict=row["verdict"],
            reason=row["reason"],
            edges=row["edges"],
            details=json.loads(row["details"] or "{}"),
            who=row["who"],
            at_unix_s=row["at_s"],
            id=row["id"],
        )
        for row in rows
    ]


def _newest(events: Iterable[journal.Event], now: int) -> dict[str, journal.Event]:
    """The newest event of each kind; within one second, the one that was recorded last. One that a clock that was ahead
    has put into the future counts only where there is no other."""

    def order(event: journal.Event) -> tuple[bool, int]:
        return event.at_unix_s <= now + instants.CLOCK_TOLERANCE_S, event.at_unix_s

    found: dict[str, journal.Event] = {}
    for event in events:
        if event.event not in found or order(event) >= order(found[event.event]):
            found[event.event] = event
    return found


def _stopped(folder: Path) -> str | None:
    try:
        return withdrawn(folder)
    except OSError as error:
        raise SpringtideError(f"{folder / WITHDRAWN}: cannot be read: {error.strerror}") from error
