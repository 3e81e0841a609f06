"""Ordered pairs of PoPs one by one, decided by a plain implementation of the law: an independent model.

Long: an independent model of a whole law, which shares no code with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from springtide.frame import Frame
from springtide.laws.columns import Table
from springtide.laws.initcwnd import rows as decisions
from springtide.laws.initcwnd.decision import Action, Decision, Pair
from springtide.laws.initcwnd.law import DECIDED, PREVIOUS
from springtide.laws.initcwnd.law import decide as decide_columns
from springtide.observe.pairs import OBSERVED
from springtide.policy import DampingPolicy, InitcwndPolicy, Override, Policy

# Each by its name: springtide-core has them.
Reason: Any = SimpleNamespace(**{name.upper(): name for name in decisions.WINDOWS.reasons})


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
    """Trace of earlier changes: the penalty at the instant `at` (seconds), and whether changes are held back."""

    value: float = 0.0
    at: int = 0
    suppressed: bool = False


@dataclass(frozen=True)
class Remembered:
    """The loss guard's memory of a pair; None is never."""

    until: int | None = None
    hold_s: int = 0
    clean: int | None = None
    harmful: int | None = None
    default: tuple[int, int] = (0, 0)
    rounds: int = 0
    trial: tuple[int, int] = (0, 0)

    def columns(self) -> dict[str, Any]:
        return {
            "guard_until": self.until,
            "guard_hold_s": self.hold_s,
            "clean_initcwnd": self.clean,
            "harmful_initcwnd": self.harmful,
            "default_young": self.default[0],
            "default_young_lossy": self.default[1],
            "trial_rounds": self.rounds,
            "trial_young": self.trial[0],
            "trial_young_lossy": self.trial[1],
        }


@dataclass(frozen=True)
class Previous:
    """A row of PREVIOUS; None is none."""

    smoothed_cwnd: float | None
    last_evidence: int | None
    initcwnd: int | None = None
    guard: Remembered = Remembered()
    penalty: Penalty = Penalty()
    measured_rounds: int = 0


def observed_table(observations: Iterable[PairObservation]) -> Table:
    return _table(OBSERVED, [{**vars(one), "destination": one.dst_pop} for one in observations])


def previous_table(last: Mapping[Pair, Previous]) -> Frame:
    table = _table(
        PREVIOUS,
        [
            {
                **dict(zip(("src_pop", "destination", "ip_version"), pair, strict=True)),
                **vars(one),
                **one.guard.columns(),
                "penalty": one.penalty.value,
                "suppressed": one.penalty.suppressed,
                "round": one.penalty.at,
            }
            for pair, one in last.items()
        ],
    )
    return Frame.of(table)


def decided_table(listed: Iterable[Decision]) -> Frame:
    rows = [
        {
            **vars(one),
            "destination": one.dst_pop,
            "action": decisions.WINDOWS.actions.index(one.action),
            "reason": decisions.WINDOWS.reasons.index(one.reason),
        }
        for one in sorted(listed, key=lambda one: one.pair)
    ]
    return Frame.of(_table(DECIDED, rows))


def row(decision: Decision) -> dict[str, Any]:
    """As path_decisions has it: of whole numbers 0 is none."""
    values = dict(vars(decision))
    for name in DECIDED.names or ():
        if values.get(name, 0) is None and DECIDED[name].kind == "u" and name not in decisions.WINDOWS.instants:
            values[name] = 0
    values["destination"] = values.pop("dst_pop")
    return {**values, "part": "initcwnd"}


def decide_pairs(
    now: int,
    policy: Policy,
    observations: Iterable[PairObservation],
    last: Mapping[Pair, Previous],
    frozen: Collection[str] = (),
) -> list[Decision]:
    """The product's law."""
    decided = decide_columns(now, policy, observed_table(observations), previous_table(last), frozen)
    return decisions.as_decisions(decided, round=now, policy_version=policy.version)


def _table(dtype: np.dtype[np.void], rows: list[dict[str, object]]) -> Table:
    table = np.zeros(len(rows), dtype)
    for at, row in enumerate(rows):
        for name in dtype.names or ():
            kind = dtype[name].kind
            nothing = math.nan if kind == "f" else 0
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
    """Decisions that the law should make, pair by pair."""
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
    """Memory of a decision for the next round; `measured_rounds` as in Previous. None: nothing is left."""
    if decision.smoothed_cwnd is None and decision.initcwnd is None and decision.harmful_initcwnd is None:
        return None
    return Previous(
        smoothed_cwnd=decision.smoothed_cwnd,
        last_evidence=decision.last_evidence,
        initcwnd=decision.initcwnd,
        guard=Remembered(
            decision.guard_until,
            decision.guard_hold_s,
            decision.clean_initcwnd,
            decision.harmful_initcwnd,
            (decision.default_young, decision.default_young_lossy),
            decision.trial_rounds,
            (decision.trial_young, decision.trial_young_lossy),
        ),
        penalty=Penalty(decision.penalty, decision.round, decision.suppressed),
        measured_rounds=measured_rounds,
    )


def combine(seen: PairObservation, policy: InitcwndPolicy) -> float | None:
    """The round's one window; None without sufficient evidence, or where what was sampled is not a number."""
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


def bound(smoothed: float, policy: InitcwndPolicy) -> tuple[float, str]:
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


def surely_more(lossy: int, of: int, bound: float) -> bool:
    """Whether a share of `bound` would be further from this one than 3.09 of its own standard errors: what Wilson's
    interval says, without its formula."""
    return of > 0 and lossy / of > bound and lossy / of - bound > 3.09 * math.sqrt(bound * (1 - bound) / of)


def lowest_share(lossy: int, of: int) -> float:
    """The smallest share that is not surely less, by halving."""
    low, high = 0.0, lossy / of if of else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if surely_more(lossy, of, middle) else (low, middle)
    return low


def may_lose(started: int, default_share: float, law: InitcwndPolicy) -> float:
    plain = 1 - math.pow(1 - law.loss_bound, 0.1)
    if started <= 10:
        return max(plain, law.loss_default_bound)
    return float(1 - (1 - max(plain, min(default_share, law.loss_default_bound))) ** (max(started, 20) / 10))


@dataclass(frozen=True)
class Verdict:
    harm: bool
    clean: bool
    # The largest window now; None: no bound.
    ceiling: int | None
    left: Remembered


def judge(
    now: int, law: InitcwndPolicy, seen: PairObservation, known: Remembered, in_use: int | None, *, frozen: bool
) -> Verdict:
    """Judges by a round's young connections the window that they started with."""
    started = in_use or 10
    young = 0 if frozen else seen.young_connections
    lossy = min(young, seen.young_lossy_connections)
    rounds = known.rounds + (not frozen)
    trial = known.trial[0] + young, known.trial[1] + lossy
    enough = young > 0 and trial[0] >= law.loss_min_connections and rounds >= law.loss_step_rounds

    bound = may_lose(started, lowest_share(known.default[1], known.default[0]), law)
    harm = any(few[1] >= 3 and surely_more(few[1], few[0], bound) for few in ((young, lossy), trial) if lossy)
    bound = may_lose(started, known.default[1] / known.default[0] if known.default[0] else 0.0, law)
    clean = enough and not harm and trial[1] <= bound * trial[0] and started >= law.cmin

    until, hold_s, good, bad = known.until, known.hold_s, known.clean, known.harmful
    if harm:
        if bad is None:
            hold_s = law.loss_hold_s
        elif now < (until or 0):
            hold_s = max(hold_s, law.loss_hold_s)
        elif now < (until or 0) + 86_400:
            hold_s = max(min(2 * hold_s, 86_400), law.loss_hold_s)
        else:
            hold_s = law.loss_hold_s
        until, bad = now + hold_s, max(started, law.cmin)
        good = good if good is not None and good < started else None
    elif clean:
        good = started if bad is None else max(good or 0, started)
        hold_s = 0 if started >= (bad or 0) else hold_s
        if bad is not None and started >= max(bad, law.cmax):
            bad = None
    left = Remembered(
        until,
        hold_s,
        good,
        bad,
        trial if enough and started <= 10 else known.default,
        rounds,
        trial
        if not harm and not clean and law.loss_step_rounds <= rounds and trial[0] < 10 * law.loss_min_connections
        else (0, 0),
    )
    if bad is None:
        return Verdict(harm, clean, None, left)
    base = min(max(good or law.cmin, law.cmin), law.cmax)
    following = max(base + 1, int(base * law.loss_step))
    if bad > base:
        following = min(following, -(-(base + bad) // 2))
    if until is not None and now < until:
        following = min(following, max(base, int(law.loss_cut * bad)))
    following = min(max(following, law.cmin), law.cmax)
    if clean and started >= base:
        return Verdict(harm, clean, following, left)
    current = min(max(in_use or 0, law.cmin), law.cmax)
    return Verdict(harm, clean, current if not harm and base <= current <= following else base, left)


@dataclass(frozen=True)
class _Learnt:
    """Result of steps 1 and 2: the history for the next round, and why it is what it is."""

    observed: float | None
    smoothed: float | None
    last_evidence: int | None
    reason: str


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


def _limit(target: float, reason: str, law: InitcwndPolicy, seen: PairObservation) -> tuple[float, str]:
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
    """Long: a pair's decision in plain steps, so that it can be read against the law's text."""
    law = policy.initcwnd
    alive = last.smoothed_cwnd if last is not None and _is_alive(last, now, law) else None
    learnt = _learn(now, law, seen, alive, last, frozen=frozen)
    in_use = last.initcwnd if last else None
    # Bounds hold whatever else would keep a value as it is.
    current = None if in_use is None else min(max(in_use, law.cmin), law.cmax)
    penalty = _decay(last.penalty if last else Penalty(), now, policy.damping)
    measured = (last.measured_rounds if last else 0) + (learnt.observed is not None)
    verdict = judge(now, law, seen, last.guard if last else Remembered(), in_use, frozen=frozen)
    ceiling = verdict.ceiling

    target: float | None = None
    value: int | None = None
    reason = learnt.reason
    if learnt.smoothed is not None:
        target, reason = _limit(learnt.smoothed, reason, law, seen)
        if ceiling is not None and ceiling < target:
            target, reason = float(ceiling), Reason.LOSS_GUARD_HOLD
            if verdict.clean and ceiling > (verdict.left.clean or 0):
                reason = Reason.LOSS_GUARD_STEP
            if verdict.harm:
                reason = Reason.LOSS_GUARD
        value = to_segments(target)
        if current is None:
            if measured < law.duty_rounds:
                value, reason = None, Reason.BELOW_DUTY_CYCLE
        elif ceiling is not None and current > ceiling:
            pass
        elif frozen:
            value, reason = current, Reason.HELD_INCOMPLETE_INPUT
        elif value != current and not verdict.harm:
            if reason != Reason.LOSS_GUARD_STEP and abs(value - current) < smallest_change(current, law):
                value, reason = current, Reason.HELD_HYSTERESIS
            elif value > current and penalty.suppressed:
                value, reason = current, Reason.HELD_DAMPING
    elif in_use is not None:
        reason = Reason.EXPIRED
    if override is not None:
        value, reason = override.initcwnd, Reason.OVERRIDE
    a_step = reason == Reason.LOSS_GUARD_STEP and (value or 0) > (in_use or 0)
    if value is not None and in_use is not None and value != in_use and not a_step:
        penalty = _charge(penalty, policy.damping)

    kept = verdict.left
    if value != in_use:
        kept = replace(kept, rounds=0, trial=(0, 0))
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
        young_lossy_connections=seen.young_lossy_connections,
        young_timeout_connections=seen.young_timeout_connections,
        receiver_cwnd=seen.receiver_cwnd,
        previous_initcwnd=in_use,
        previous_cwnd=alive,
        smoothed_cwnd=learnt.smoothed,
        target_cwnd=target,
        measured_rounds=measured,
        ceiling_initcwnd=ceiling,
        **kept.columns(),
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
