"""One decision on a pair's initial window, as people and bundles read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from springtide import _core

Pair = tuple[str, str, int]


class Action(StrEnum):
    NONE = "none"
    SET = "set"
    WITHDRAW = "withdraw"


ACTIONS = tuple(Action(name) for name in _core.actions("initcwnd"))


class Reason(StrEnum):
    """The rule that made the decision what it is: the last one that changed the value, or kept it from changing."""

    LEARNT = "learnt"
    CLAMPED_TO_CMAX = "clamped_to_cmax"
    CLAMPED_TO_CMIN = "clamped_to_cmin"
    CAREFUL = "careful"
    RECEIVER_LIMITED = "receiver_limited"
    LOSS_GUARD = "loss_guard"
    LOSS_GUARD_HOLD = "loss_guard_hold"
    LOSS_GUARD_STEP = "loss_guard_step"
    HELD_HYSTERESIS = "held_hysteresis"
    HELD_DAMPING = "held_damping"
    HELD_THIN_EVIDENCE = "held_thin_evidence"
    HELD_NO_EVIDENCE = "held_no_evidence"
    HELD_INCOMPLETE_INPUT = "held_incomplete_input"
    BELOW_DUTY_CYCLE = "below_duty_cycle"
    OVERRIDE = "override"
    EXPIRED = "expired"
    THIN_EVIDENCE = "thin_evidence"
    NO_EVIDENCE = "no_evidence"
    SWITCHBACK = "switchback"
    DISABLE_TEST = "disable_test"


# By number, and of each what decides on it: core/src/step/initcwnd/mod.rs.
REASONS = tuple(Reason(name) for name, _ in _core.reasons("initcwnd"))
RULES = {Reason(name): rule for name, rule in _core.reasons("initcwnd")}


@dataclass(frozen=True)
class Decision:
    """One row of path_decisions; instants in seconds since the epoch, windows in segments."""

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
    young_connections: int
    young_lossy_connections: int
    young_timeout_connections: int
    receiver_cwnd: float | None
    previous_initcwnd: int | None
    previous_cwnd: float | None
    smoothed_cwnd: float | None
    target_cwnd: float | None
    measured_rounds: int
    guard_until: int | None
    guard_hold_s: int
    ceiling_initcwnd: int | None
    clean_initcwnd: int | None
    harmful_initcwnd: int | None
    default_young: int
    default_young_lossy: int
    trial_rounds: int
    trial_young: int
    trial_young_lossy: int
    penalty: float
    suppressed: bool
    last_evidence: int | None
    expires_at: int | None
    policy_version: str

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


def is_left_out(decision: Decision, expires_unix_s: int) -> bool:
    """Whether a bundle with this expiry leaves the decision out, which would expire before it."""
    if decision.action is not Action.SET or decision.reason is Reason.OVERRIDE:
        return False
    return decision.expires_at is None or decision.expires_at < expires_unix_s
