"""Decisions as rows: reading what was decided, and writing a round so that doing it twice changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from springtide.decide.damping import Penalty
from springtide.decide.initcwnd import Action, Decision, Previous, Reason
from springtide.observe.rounds import Pair
from springtide.policy import MAX_HISTORY_S, Policy
from springtide.store import Row, Store

_INSTANTS = ("round", "guard_until", "last_evidence", "expires_at")
_DOUBLES = (
    "observed_cwnd",
    "retransmit_ratio",
    "young_retransmit_ratio",
    "receiver_cwnd",
    "previous_cwnd",
    "smoothed_cwnd",
    "target_cwnd",
    "penalty",
)
_COLUMNS = ", ".join(
    f"toUnixTimestamp({field.name}) as {field.name}_s" if field.name in _INSTANTS else field.name
    for field in fields(Decision)
)


def previous(store: Store, round_unix_s: int, policy: Policy) -> dict[Pair, Previous]:
    """What earlier decisions left of each pair with history or a window in use; no later round is read."""
    rows = store.query(
        """
        select
            src_pop,
            dst_pop,
            ip_version,
            -- The tuple keeps the columns of the last row together, nulls and all.
            argMax(
                tuple(
                    smoothed_cwnd,
                    toUnixTimestamp(last_evidence),
                    initcwnd,
                    toUnixTimestamp(guard_until),
                    penalty,
                    suppressed,
                    toUnixTimestamp(round)
                ),
                round
            ) as last,
            countIf(last_evidence = round and round >= {duty_from:DateTime('UTC')}) as measured_rounds
        from initcwnd_decisions final
        where round < {round:DateTime('UTC')} and round >= {oldest:DateTime('UTC')}
        group by src_pop, dst_pop, ip_version
        """,
        {
            "round": round_unix_s,
            "duty_from": max(0, round_unix_s - (policy.initcwnd.duty_window_rounds - 1) * policy.round.interval_s),
            "oldest": max(0, round_unix_s - MAX_HISTORY_S),
        },
    )
    found: dict[Pair, Previous] = {}
    for row in rows:
        smoothed, last_evidence, initcwnd, guard_until, penalty, suppressed, at = row["last"]
        if smoothed is None and initcwnd is None:
            continue
        found[row["src_pop"], row["dst_pop"], row["ip_version"]] = Previous(
            smoothed_cwnd=None if smoothed is None else float(smoothed),
            last_evidence=last_evidence,
            initcwnd=initcwnd,
            guard_until=guard_until,
            penalty=Penalty(float(penalty), at, bool(suppressed)),
            measured_rounds=row["measured_rounds"],
        )
    return found


def evidence_rounds(store: Store, since_unix_s: int, before_unix_s: int) -> dict[Pair, list[int]]:
    """Each pair's rounds with sufficient evidence, since <= round < before, oldest first."""
    rows = store.query(
        """
        select src_pop, dst_pop, ip_version, arraySort(groupArray(toUnixTimestamp(round))) as rounds
        from initcwnd_decisions final
        where
            round >= fromUnixTimestamp({since:UInt32})
            and round < fromUnixTimestamp({before:UInt32})
            and last_evidence = round
        group by src_pop, dst_pop, ip_version
        """,
        {"since": max(0, since_unix_s), "before": before_unix_s},
    )
    return {(row["src_pop"], row["dst_pop"], row["ip_version"]): list(row["rounds"]) for row in rows}


def read_round(store: Store, round_unix_s: int) -> list[Decision]:
    """All decisions of a round, sorted by pair."""
    rows = store.query(
        f"select {_COLUMNS} from initcwnd_decisions final where round = {{round:DateTime('UTC')}} "
        "order by src_pop, dst_pop, ip_version",
        {"round": round_unix_s},
    )
    return [_decision(row) for row in rows]


def read_pair(store: Store, src_pop: str, dst_pop: str, until_unix_s: int, since_unix_s: int) -> list[Decision]:
    """A pair's decisions with since < round <= until, newest first."""
    rows = store.query(
        f"select {_COLUMNS} from initcwnd_decisions final "
        "where src_pop = {src_pop:String} and dst_pop = {dst_pop:String} "
        "and round <= {until:DateTime('UTC')} and round > {since:DateTime('UTC')} order by round desc, ip_version",
        {"src_pop": src_pop, "dst_pop": dst_pop, "until": until_unix_s, "since": max(0, since_unix_s)},
    )
    return [_decision(row) for row in rows]


def latest_decided(store: Store, until_unix_s: int) -> int | None:
    """The newest round up to `until` that has decisions."""
    [row] = store.query(
        "select toUnixTimestamp(max(round)) as newest from initcwnd_decisions where round <= {until:DateTime('UTC')}",
        {"until": until_unix_s},
    )
    newest = row["newest"]
    return int(newest) if newest else None


def write_round(store: Store, round_unix_s: int, decisions: Sequence[Decision]) -> bool:
    """Make the round's rows these. Gives back whether anything had to be written."""
    present = read_round(store, round_unix_s)
    if present == list(decisions):
        return False
    store.insert("initcwnd_decisions", [_row(decision) for decision in decisions])
    stale = {decision.pair for decision in present} - {decision.pair for decision in decisions}
    if stale:
        store.execute(
            "delete from initcwnd_decisions where round = {round:DateTime('UTC')} "
            "and concat(src_pop, ' ', dst_pop, ' ', toString(ip_version)) in {stale:Array(String)}",
            {"round": round_unix_s, "stale": sorted(f"{src} {dst} {version}" for src, dst, version in stale)},
        )
    return True


def _row(decision: Decision) -> Row:
    return asdict(decision)


def _decision(row: Row) -> Decision:
    values = {name.removesuffix("_s") if name.endswith("_s") else name: value for name, value in row.items()}
    # The engine prints a whole double without its point.
    doubles = {name: None if values[name] is None else float(values[name]) for name in _DOUBLES}
    named = {"action": Action(row["action"]), "reason": Reason(row["reason"]), "suppressed": bool(row["suppressed"])}
    return Decision(**{**values, **doubles, **named})
