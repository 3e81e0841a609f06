"""Ordered pairs of PoPs one by one, and what a plain reading of the law says of them: an independent model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from springtide.decide import decisions
from springtide.decide.columns import Table
from springtide.decide.decision import ACTIONS, REASONS, Action, Decision, Pair, Reason
from springtide.decide.initcwnd import DECIDED, PREVIOUS
from springtide.decide.initcwnd import decide as decide_columns
from springtide.observe.rounds import OBSERVED
from springtide.policy import DampingPolicy, InitcwndPolicy, Override, Policy


@dataclass(frozen=True)
class PairObservation:
    """A row of OBSERVED; None is unknown."""

    src_pop: str
    dst_pop: str
    ip_version: int
    connections_seen: int = 0
    connections_earned: int = 0
    mean_cwnd: float | None = None
    min_cwnd: int | None = None
    max_cwnd: int | None = None
    retransmit_ratio: float | None = None
    cwnd_p10: float | None = None
    cwnd_p25: float | None = None
    cwnd_p50: float | None = None
    cwnd_p75: float | None = None
    cwnd_p90: float | None = None
    traffic_cwnd: float | None = None
    receiver_cwnd: float | None = None
    young_connections: int = 0
    young_lossy_connections: int = 0
    young_timeout_connections: int = 0

    @property
    def pair(self) -> Pair:
        return self.src_pop, self.dst_pop, self.ip_version


@dataclass(frozen=True)
class Penalty:
    """What earlier changes left: the penalty at the instant `at` (seconds), and whether changes are held back."""

    value: float = 0.0
    at: int = 0
    suppressed: bool = False


@dataclass(frozen=True)
class Previous:
    """A row of PREVIOUS; None is none."""

    smoothed_cwnd: float | None
    last_evidence: int | None
    initcwnd: int | None = None
    guard_until: int | None = None
    penalty: Penalty = Penalty()
    measured_rounds: int = 0


def observed_table(observations: Iterable[PairObservation]) -> Table:
    return _table(OBSERVED, [vars(one) for one in observations])


def previous_table(last: Mapping[Pair, Previous]) -> Table:
    return _table(
        PREVIOUS,
        [
            {
                **dict(zip(("src_pop", "dst_pop", "ip_version"), pair, strict=True)),
                **vars(one),
                "penalty": one.penalty.value,
                "suppressed": one.penalty.suppressed,
                "round": one.penalty.at,
            }
            for pair, one in last.items()
        ],
    )


def decided_table(listed: Iterable[Decision]) -> Table:
    rows = [
        {**vars(one), "action": ACTIONS.index(one.action), "reason": REASONS.index(one.reason)}
        for one in sorted(listed, key=lambda one: one.pair)
    ]
    return _table(DECIDED, rows)


def decide_pairs(
    now: int,
    policy: Policy,
    observations: Iterable[PairObservation],
    last: Mapping[Pair, Previous],
    frozen: Collection[str] = (),
) -> list[Decision]:
    """The product's law."""
    decided = decide_columns(now, policy, observed_table(observations), previous_table(last), frozen)
    return decisions.as_decisions(decided, now, policy.version)


def _table(dtype: np.dtype[np.void], rows: list[dict[str, object]]) -> Table:
    table = np.zeros(len(rows), dtype)
    for at, row in enumerate(rows):
        for name in dtype.names or ():
            kind = dtype[name].kind
            nothing = {"f": math.nan, "i": -1}.get(kind, 0)
            value = row[name]
            table[name][at] = nothing if value is None else value.encode() if isinstance(value, str) else value
    return table


def model(
    round_unix_s: int,
    policy: Policy,
    observations: Iterable[PairObservation],
    last: Mapping[Pair, Previous],
    frozen: Collection[str] = (),
) -> list[Decision]:
    """What the law should decide, pair by pair."""
    observed = {observation.pair: observation for observation in observations}
    overrides = _overrides(policy, round_unix_s)
    version = policy.version
    return [
        _decide_pair(
            round_unix_s,
            policy,
            version,
            observed.get(pair) or _unseen(pair),
            last.get(pair),
            overrides.get(pair),
            frozen=pair[0] in frozen,
        )
        for pair in sorted({*observed, *last, *overrides})
    ]


def carry(decision: Decision, measured_rounds: int) -> Previous | None:
    """What a decision leaves for the next round; `measured_rounds` as in Previous. None: nothing is left."""
    if decision.smoothed_cwnd is None and decision.initcwnd is None:
        return None
    return Previous(
        smoothed_cwnd=decision.smoothed_cwnd,
        last_evidence=decision.last_evidence,
        initcwnd=decision.initcwnd,
        guard_until=decision.guard_until,
        penalty=Penalty(decision.penalty, decision.round, decision.suppressed),
        measured_rounds=measured_rounds,
    )


def combine(seen: PairObservation, policy: InitcwndPolicy) -> float | None:
    """The round's one window; None without sufficient evidence, or where what was sampled is no number."""
    if seen.connections_earned < policy.min_connections:
        return None
    window = {
        "mean": seen.mean_cwnd,
        "max": None if seen.max_cwnd is None else float(seen.max_cwnd),
        "p10": seen.cwnd_p10,
        "p25": seen.cwnd_p25,
        "p50": seen.cwnd_p50,
        "p75": seen.cwnd_p75,
        "p90": seen.cwnd_p90,
        "traffic": seen.traffic_cwnd,
    }[policy.combiner]
    return window if window is not None and math.isfinite(window) and window > 0 else None


def smooth(observed: float, previous: float | None, policy: InitcwndPolicy) -> float:
    """Exponentially weighted moving average with a weight of its own for falls; a collapse is followed at once.
    Riptide's text gives alpha to the history, its Table I to the newest data: these weights are the history's."""
    if previous is None or observed <= policy.collapse * previous:
        return observed
    weight = policy.history_weight if observed > previous else policy.falling_history_weight
    return weight * previous + (1.0 - weight) * observed


def bound(smoothed: float, policy: InitcwndPolicy) -> tuple[float, Reason]:
    """Within cmin and cmax, and which of them bound it."""
    if smoothed > policy.cmax:
        return float(policy.cmax), Reason.CLAMPED_TO_CMAX
    if smoothed < policy.cmin:
        return float(policy.cmin), Reason.CLAMPED_TO_CMIN
    return smoothed, Reason.LEARNT


def to_segments(cwnd: float) -> int:
    """Rounded half up."""
    return int(cwnd + 0.5)


def smallest_change(initcwnd: int, policy: InitcwndPolicy) -> int:
    """Segments by which a value must differ from the one in use to be published."""
    return max(1, math.ceil(policy.hysteresis * initcwnd))


def loses_too_much(seen: PairObservation, policy: InitcwndPolicy) -> bool:
    share = lossy_share(seen)
    return share is not None and share > policy.loss_bound and seen.young_connections >= policy.loss_min_connections


def lossy_share(seen: PairObservation) -> float | None:
    return seen.young_lossy_connections / seen.young_connections if seen.young_connections else None


@dataclass(frozen=True)
class _Learnt:
    """What steps 1 and 2 give: the history for the next round, and why it is what it is."""

    observed: float | None
    smoothed: float | None
    last_evidence: int | None
    reason: Reason


def _is_alive(last: Previous, now: int, law: InitcwndPolicy) -> bool:
    return last.last_evidence is not None and now < last.last_evidence + law.ttl_s


def _learn(
    now: int, law: InitcwndPolicy, seen: PairObservation, alive: float | None, last: Previous | None, *, frozen: bool
) -> _Learnt:
    """Steps 1 and 2; `alive` is the last smoothed value, unless it has died."""
    observed = None if frozen else combine(seen, law)
    evidence = last.last_evidence if last else None
    if observed is not None:
        smoothed, reason = bound(smooth(observed, alive, law), law)
        return _Learnt(observed, smoothed, now, reason)
    if alive is not None:
        # Bounded again: the policy may have become narrower since.
        smoothed, _ = bound(alive, law)
        reason = Reason.HELD_THIN_EVIDENCE if seen.connections_earned else Reason.HELD_NO_EVIDENCE
        reason = Reason.HELD_INCOMPLETE_INPUT if frozen else reason
        return _Learnt(None, smoothed, evidence, reason)
    return _Learnt(None, None, evidence, Reason.THIN_EVIDENCE if seen.connections_earned else Reason.NO_EVIDENCE)


def _limit(target: float, reason: Reason, law: InitcwndPolicy, seen: PairObservation) -> tuple[float, Reason]:
    """Step 3 without the loss guard."""
    if law.careful and target > law.cmin:
        target, reason = max(float(law.cmin), target / 2.0), Reason.CAREFUL
    if law.receiver_cap and seen.receiver_cwnd is not None and seen.receiver_cwnd < target and target > law.cmin:
        target, reason = max(float(law.cmin), seen.receiver_cwnd), Reason.RECEIVER_LIMITED
    return target, reason


def _decide_pair(
    now: int,
    policy: Policy,
    version: str,
    seen: PairObservation,
    last: Previous | None,
    override: Override | None,
    *,
    frozen: bool,
) -> Decision:
    law = policy.initcwnd
    alive = last.smoothed_cwnd if last is not None and _is_alive(last, now, law) else None
    learnt = _learn(now, law, seen, alive, last, frozen=frozen)
    in_use = last.initcwnd if last else None
    # Bounds hold whatever else would keep a value as it is.
    current = None if in_use is None else min(max(in_use, law.cmin), law.cmax)
    penalty = _decay(last.penalty if last else Penalty(), now, policy.damping)
    guard_until = last.guard_until if last and last.guard_until is not None and now < last.guard_until else None
    measured = (last.measured_rounds if last else 0) + (learnt.observed is not None)
    cut = not frozen and loses_too_much(seen, law)
    if cut:
        guard_until = now + law.loss_hold_s

    target: float | None = None
    value: int | None = None
    reason = learnt.reason
    if learnt.smoothed is not None:
        target, reason = _limit(learnt.smoothed, reason, law, seen)
        if cut:
            cut_to = max(float(law.cmin), law.loss_cut * (law.cmin if current is None else current))
            if cut_to < target:
                target, reason = cut_to, Reason.LOSS_GUARD
        elif guard_until is not None and target > (current or law.cmin):
            target, reason = float(current or law.cmin), Reason.LOSS_GUARD_HOLD
        value = to_segments(target)
        if current is None:
            if measured < law.duty_rounds:
                value, reason = None, Reason.BELOW_DUTY_CYCLE
        elif frozen:
            value, reason = current, Reason.HELD_INCOMPLETE_INPUT
        elif value != current and not cut:
            if abs(value - current) < smallest_change(current, law):
                value, reason = current, Reason.HELD_HYSTERESIS
            elif value > current and penalty.suppressed:
                value, reason = current, Reason.HELD_DAMPING
    elif in_use is not None:
        reason = Reason.EXPIRED
    if override is not None:
        value, reason = override.initcwnd, Reason.OVERRIDE
    if value is not None and in_use is not None and value != in_use:
        penalty = _charge(penalty, policy.damping)

    action = Action.SET if value is not None else Action.NONE if in_use is None else Action.WITHDRAW
    return Decision(
        round=now,
        src_pop=seen.src_pop,
        dst_pop=seen.dst_pop,
        ip_version=seen.ip_version,
        action=action,
        initcwnd=value,
        reason=reason,
        connections_seen=seen.connections_seen,
        connections_earned=seen.connections_earned,
        observed_cwnd=learnt.observed if learnt.observed is not None else seen.mean_cwnd,
        min_cwnd=seen.min_cwnd,
        max_cwnd=seen.max_cwnd,
        retransmit_ratio=seen.retransmit_ratio,
        young_connections=seen.young_connections,
        young_retransmit_ratio=lossy_share(seen),
        receiver_cwnd=seen.receiver_cwnd,
        previous_initcwnd=in_use,
        previous_cwnd=alive,
        smoothed_cwnd=learnt.smoothed,
        target_cwnd=target,
        measured_rounds=measured,
        guard_until=guard_until,
        penalty=penalty.value,
        suppressed=penalty.suppressed,
        last_evidence=learnt.last_evidence,
        expires_at=None if learnt.last_evidence is None else learnt.last_evidence + law.ttl_s,
        policy_version=version,
    )


def _overrides(policy: Policy, now: int) -> dict[Pair, Override]:
    """The pairs that an override in force names; where two do, the first in the file counts."""
    found: dict[Pair, Override] = {}
    for override in policy.overrides:
        for ip_version in (4, 6):
            if override.covers(ip_version, now):
                found.setdefault((override.src, override.dst, ip_version), override)
    return found


def _unseen(pair: Pair) -> PairObservation:
    src_pop, dst_pop, ip_version = pair
    return PairObservation(src_pop, dst_pop, ip_version)


def _decay(penalty: Penalty, now: int, policy: DampingPolicy) -> Penalty:
    value = penalty.value * 0.5 ** (max(0, now - penalty.at) / policy.half_life_s)
    return Penalty(value, max(now, penalty.at), penalty.suppressed and value >= policy.reuse_below)


def _charge(penalty: Penalty, policy: DampingPolicy) -> Penalty:
    value = min(penalty.value + 1.0, policy.ceiling)
    return Penalty(value, penalty.at, penalty.suppressed or value > policy.suppress_above)
