"""After a wave: are the changed edges worse off than the unchanged ones, over the same minutes? Go, wait or roll back.

Edges differ, so each group is held against itself before the wave, and the changed group's change against the other's:
what came over the whole fleet in these minutes is not the wave's fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from springtide.policy import GatePolicy
from springtide.store import Store

# Counters of a connection are read from this long before the first window, for those that live through it.
_LOOK_BACK_S = 600
_BELIEVED_BYTES = 2**53
_MOST_BYTES = 2**63 - 1

GROUPS = """
with sockets as (
    select
        host,
        maxIf(bytes_sent, time_unix_us < {start:Int64}) as sent_0,
        maxIf(bytes_sent, time_unix_us < {since:Int64}) as sent_1,
        max(bytes_sent) as sent_2,
        maxIf(bytes_retrans, time_unix_us < {start:Int64}) as again_0,
        maxIf(bytes_retrans, time_unix_us < {since:Int64}) as again_1,
        max(bytes_retrans) as again_2,
        avgIf(rtt, time_unix_us >= {start:Int64} and time_unix_us < {since:Int64}) as rtt_before,
        avgIf(rtt, time_unix_us >= {since:Int64}) as rtt_after,
        maxIf(time_unix_us, kind = 'CLOSE') as closed_at,
        max(ifNull(segs_in, 0)) as heard
    from tcp_samples
    where
        time_unix_us >= {oldest:Int64}
        and time_unix_us < {until:Int64}
        and host in {hosts:Array(String)}
        -- As in the roll-up: a counter that no connection reaches is none, and sums end at a bound and do not wrap.
        and greatest(ifNull(bytes_sent, 0), ifNull(bytes_retrans, 0)) <= {believed:UInt64}
        and arrayExists(
            prefix -> isIPAddressInRange(replaceOne(toString(dst_ip), '::ffff:', ''), prefix),
            {prefixes:Array(String)}
        )
    group by host, boot_id, netns, cookie
)
select
    has({changed:Array(String)}, host) as is_changed,
    countIf(sent_1 > sent_0) as connections_before,
    countIf(sent_2 > sent_1) as connections_after,
    toUInt64(least(sum(toUInt128(ifNull(sent_1, 0) - ifNull(sent_0, 0))), {most:UInt64})) as sent_before,
    toUInt64(least(sum(toUInt128(ifNull(sent_2, 0) - ifNull(sent_1, 0))), {most:UInt64})) as sent_after,
    toUInt64(least(sum(toUInt128(ifNull(again_1, 0) - ifNull(again_0, 0))), {most:UInt64})) as again_before,
    toUInt64(least(sum(toUInt128(ifNull(again_2, 0) - ifNull(again_1, 0))), {most:UInt64})) as again_after,
    ifNotFinite(quantile(0.5)(rtt_before), null) as rtt_before_us,
    ifNotFinite(quantile(0.5)(rtt_after), null) as rtt_after_us,
    countIf(closed_at >= {start:Int64} and closed_at < {since:Int64}) as closed_before,
    countIf(closed_at >= {since:Int64}) as closed_after,
    countIf(closed_at >= {start:Int64} and closed_at < {since:Int64} and heard = 0) as failed_before,
    countIf(closed_at >= {since:Int64} and heard = 0) as failed_after
from sockets
group by is_changed
"""

FRESHNESS = """
select host, max(time_unix_us) as newest
from tcp_samples
where time_unix_us >= {oldest:Int64} and time_unix_us < {until:Int64} and host in {hosts:Array(String)}
group by host
"""


class Verdict(StrEnum):
    GO = "go"
    WAIT = "wait"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Group:
    """Connections to the publication's destinations, before the wave and since; nothing seen is all zeros."""

    connections_before: int = 0
    connections_after: int = 0
    sent_before: int = 0
    sent_after: int = 0
    again_before: int = 0
    again_after: int = 0
    rtt_before_us: float | None = None
    rtt_after_us: float | None = None
    closed_before: int = 0
    closed_after: int = 0
    failed_before: int = 0
    failed_after: int = 0

    def retransmit_rise(self) -> float:
        return _share(self.again_after, self.sent_after) - _share(self.again_before, self.sent_before)

    def failed_rise(self) -> float:
        return _share(self.failed_after, self.closed_after) - _share(self.failed_before, self.closed_before)

    def rtt_ratio(self) -> float:
        """1 where either is not known."""
        return self.rtt_after_us / self.rtt_before_us if self.rtt_after_us and self.rtt_before_us else 1.0


@dataclass(frozen=True)
class Inputs:
    changed: Group
    unchanged: Group
    # Seconds before the end of the window at which each changed edge was last heard; None: not at all.
    silence_s: dict[str, float | None]


def _share(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0


def decide(inputs: Inputs, policy: GatePolicy) -> tuple[Verdict, str]:
    """The verdict and its reason. Harm that is seen counts at once, its absence only with enough samples."""
    changed, other = inputs.changed, inputs.unchanged
    compared = min(other.connections_before, other.connections_after) >= policy.min_connections
    control = other if compared else Group()
    enough = changed.connections_after >= policy.min_connections
    if enough:
        rise = changed.retransmit_rise() - control.retransmit_rise()
        if rise > policy.max_retransmit_rise:
            return Verdict.ROLL_BACK, f"retransmit ratio rose by {rise:.4f}, more than {policy.max_retransmit_rise}"
        ratio = changed.rtt_ratio() / control.rtt_ratio()
        if ratio > policy.max_rtt_ratio:
            return Verdict.ROLL_BACK, f"RTT became {ratio:.2f} times what it was, more than {policy.max_rtt_ratio}"
    if changed.closed_after >= policy.min_connections:
        failed = changed.failed_rise() - control.failed_rise()
        if failed > policy.max_failed_rise:
            return Verdict.ROLL_BACK, f"failed connects rose by {failed:.3f}, more than {policy.max_failed_rise}"
    silent = sorted(
        edge for edge, silence in inputs.silence_s.items() if silence is None or silence > policy.max_silence_s
    )
    if silent:
        return Verdict.WAIT, f"no samples within {policy.max_silence_s} s from {', '.join(silent)}"
    if not enough:
        return Verdict.WAIT, f"{changed.connections_after} of {policy.min_connections} connections on changed edges"
    against = "unchanged edges" if compared else "themselves before the wave only"
    return Verdict.GO, f"{changed.connections_after} connections are no worse, beside {against}"


def read(
    store: Store,
    changed: Sequence[str],
    unchanged: Sequence[str],
    prefixes: Sequence[str],
    since_unix_s: float,
    until_unix_s: float,
) -> Inputs:
    """Both groups in [since, until) and in as long a time before. Raises StoreError."""
    start = 2 * since_unix_s - until_unix_s
    moments = {
        "oldest": int((start - _LOOK_BACK_S) * 1e6),
        "start": int(start * 1e6),
        "since": int(since_unix_s * 1e6),
        "until": int(until_unix_s * 1e6),
    }
    hosts = {"hosts": [*changed, *unchanged], "changed": list(changed), "prefixes": list(prefixes)}
    rows = store.query(GROUPS, {**moments, **hosts, "believed": _BELIEVED_BYTES, "most": _MOST_BYTES})
    groups = {
        bool(row["is_changed"]): Group(**{name: value for name, value in row.items() if name != "is_changed"})
        for row in rows
    }
    heard = {
        row["host"]: until_unix_s - row["newest"] / 1e6
        for row in store.query(
            FRESHNESS, {"oldest": moments["since"], "until": moments["until"], "hosts": list(changed)}
        )
    }
    silence = {edge: heard.get(edge) for edge in changed}
    return Inputs(groups.get(True, Group()), groups.get(False, Group()), silence)
