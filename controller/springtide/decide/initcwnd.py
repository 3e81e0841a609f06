"""The initial congestion window of an ordered pair of PoPs (Riptide III-B), with its reasons.

A round's observation is the mean window of the connections that earned it. It is smoothed with the last decision's
value, bounded, kept as the next round's history, and rounded; without sufficient evidence the last value stays until
`ttl_s` after its last evidence, and is then withdrawn. The history is bounded because Riptide III-B stores the bounded
value: one of 1,000 segments behind a cmax of 100 would hold a collapsed path at cmax for many rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from springtide.observe.rounds import Pair, PairObservation
from springtide.policy import InitcwndPolicy, Policy


class Action(StrEnum):
    NONE = "none"
    SET = "set"
    WITHDRAW = "withdraw"


class Reason(StrEnum):
    """The rule that made the decision what it is."""

    LEARNT = "learnt"
    CLAMPED_TO_CMAX = "clamped_to_cmax"
    CLAMPED_TO_CMIN = "clamped_to_cmin"
    HELD_THIN_EVIDENCE = "held_thin_evidence"
    HELD_NO_EVIDENCE = "held_no_evidence"
    EXPIRED = "expired"
    THIN_EVIDENCE = "thin_evidence"
    NO_EVIDENCE = "no_evidence"


@dataclass(frozen=True)
class Previous:
    """What the last decision left: its bounded window before rounding, and the round of its last evidence."""

    smoothed_cwnd: float
    last_evidence: int


@dataclass(frozen=True)
class Decision:
    """One row of initcwnd_decisions; instants in seconds since the epoch, windows in segments."""

    round: int
    src_pop: str
    dst_pop: str
    ip_version: int
    action: Action
    initcwnd: int | None
    reason: Reason
    connections_seen: int
    connections_earned: int
    observed_cwnd: float | None
    min_cwnd: int | None
    max_cwnd: int | None
    retransmit_ratio: float | None
    previous_cwnd: float | None
    smoothed_cwnd: float | None
    last_evidence: int | None
    expires_at: int | None
    policy_version: str

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


def decide(
    round_unix_s: int, policy: Policy, observations: Iterable[PairObservation], last: Mapping[Pair, Previous]
) -> list[Decision]:
    """Every pair that was seen in the round or has a value to hold or withdraw, sorted by pair."""
    observed = {observation.pair: observation for observation in observations}
    version = policy.version
    return [
        _decide_pair(round_unix_s, policy.initcwnd, version, observed.get(pair) or _unseen(pair), last.get(pair))
        for pair in sorted({*observed, *last})
    ]


def smooth(observed: float, previous: float | None, history_weight: float) -> float:
    """Exponentially weighted moving average. Riptide's text gives alpha to the history, its Table I to the newest data:
    `history_weight` says which is meant."""
    if previous is None:
        return observed
    return history_weight * previous + (1.0 - history_weight) * observed


def bound(smoothed: float, policy: InitcwndPolicy) -> tuple[float, Reason]:
    """Within cmin and cmax, and which of them bound it."""
    if smoothed > policy.cmax:
        return float(policy.cmax), Reason.CLAMPED_TO_CMAX
    if smoothed < policy.cmin:
        return float(policy.cmin), Reason.CLAMPED_TO_CMIN
    return smoothed, Reason.LEARNT


def to_segments(smoothed: float) -> int:
    """Rounded half up."""
    return int(smoothed + 0.5)


def _decide_pair(
    now: int, policy: InitcwndPolicy, version: str, seen: PairObservation, last: Previous | None
) -> Decision:
    alive = last if last is not None and now < last.last_evidence + policy.ttl_s else None
    smoothed: float | None = None
    last_evidence: int | None = None
    initcwnd: int | None = None
    if seen.mean_cwnd is not None and seen.connections_earned >= policy.min_connections:
        unbounded = smooth(seen.mean_cwnd, alive.smoothed_cwnd if alive else None, policy.history_weight)
        smoothed, reason = bound(unbounded, policy)
        last_evidence = now
        action = Action.SET
        initcwnd = to_segments(smoothed)
    elif alive is not None:
        # Bounded again: the policy may have become narrower since.
        smoothed, _ = bound(alive.smoothed_cwnd, policy)
        last_evidence = alive.last_evidence
        action = Action.SET
        initcwnd = to_segments(smoothed)
        reason = Reason.HELD_THIN_EVIDENCE if seen.connections_earned else Reason.HELD_NO_EVIDENCE
    elif last is not None:
        last_evidence = last.last_evidence
        action, reason = Action.WITHDRAW, Reason.EXPIRED
    else:
        action = Action.NONE
        reason = Reason.THIN_EVIDENCE if seen.connections_earned else Reason.NO_EVIDENCE
    return Decision(
        round=now,
        src_pop=seen.src_pop,
        dst_pop=seen.dst_pop,
        ip_version=seen.ip_version,
        action=action,
        initcwnd=initcwnd,
        reason=reason,
        connections_seen=seen.connections_seen,
        connections_earned=seen.connections_earned,
        observed_cwnd=seen.mean_cwnd,
        min_cwnd=seen.min_cwnd,
        max_cwnd=seen.max_cwnd,
        retransmit_ratio=seen.retransmit_ratio,
        previous_cwnd=alive.smoothed_cwnd if alive else None,
        smoothed_cwnd=smoothed,
        last_evidence=last_evidence,
        expires_at=None if last_evidence is None else last_evidence + policy.ttl_s,
        policy_version=version,
    )


def _unseen(pair: Pair) -> PairObservation:
    src_pop, dst_pop, ip_version = pair
    return PairObservation(src_pop, dst_pop, ip_version, 0, 0, None, None, None, None)
