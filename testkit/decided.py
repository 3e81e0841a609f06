"""Decided initial windows, as what publishes them reads them."""

from __future__ import annotations

from springtide.laws.initcwnd.decision import Action, Decision
from springtide.policy import Policy

from testkit.home import ROUND


def decision(
    src: str, dst: str, version: int, value: int | None, evidence: int = ROUND, moment: int = ROUND
) -> Decision:
    """A decision with what was learnt of a pair, or to withdraw it; it lives for half an hour from its evidence on."""
    action = Action.SET if value is not None else Action.WITHDRAW
    reason = "learnt" if value is not None else "expired"
    mean = None if value is None else float(value)
    return Decision(
        round=moment,
        src_pop=src,
        dst_pop=dst,
        ip_version=version,
        action=action,
        initcwnd=value,
        reason=reason,
        connections_seen=5,
        connections_earned=4,
        observed_cwnd=mean,
        min_cwnd=value,
        max_cwnd=value,
        retransmit_ratio=0.01,
        young_connections=0,
        young_lossy_connections=0,
        young_timeout_connections=0,
        receiver_cwnd=None,
        previous_initcwnd=None,
        previous_cwnd=None,
        smoothed_cwnd=mean,
        target_cwnd=mean,
        measured_rounds=3,
        guard_until=None,
        guard_hold_s=0,
        ceiling_initcwnd=None,
        clean_initcwnd=None,
        harmful_initcwnd=None,
        default_young=0,
        default_young_lossy=0,
        trial_rounds=0,
        trial_young=0,
        trial_young_lossy=0,
        penalty=0.0,
        suppressed=False,
        last_evidence=evidence,
        expires_at=evidence + 1800,
        policy_version=Policy().version,
    )


def but(one: Decision, **values: object) -> Decision:
    """The same with other values."""
    return Decision(**{**vars(one), **values})


DECISIONS = [
    decision("ams", "fra", 4, 42),
    decision("ams", "fra", 6, 77),
    decision("ams", "nyc", 4, None),
    decision("fra", "ams", 4, 30),
]
