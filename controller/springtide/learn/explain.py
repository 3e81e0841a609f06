"""Why a pair of PoPs has its initial window, and what would change it: sentences made from decision rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from springtide import instants
from springtide.decide.initcwnd import Action, Decision, Reason, bound, smooth, to_segments
from springtide.policy import Policy

RULES = {
    Reason.LEARNT: "smoothed mean of the earned windows, inside initcwnd.cmin and initcwnd.cmax",
    Reason.CLAMPED_TO_CMAX: "initcwnd.cmax",
    Reason.CLAMPED_TO_CMIN: "initcwnd.cmin",
    Reason.HELD_THIN_EVIDENCE: "initcwnd.min_connections, then initcwnd.ttl_s",
    Reason.HELD_NO_EVIDENCE: "initcwnd.ttl_s",
    Reason.EXPIRED: "initcwnd.ttl_s",
    Reason.THIN_EVIDENCE: "initcwnd.min_connections",
    Reason.NO_EVIDENCE: "only connections that earned their window count",
}


@dataclass(frozen=True)
class Explanation:
    """For one IP version: the value in words, the rule that bound it, and what would change it."""

    ip_version: int | None
    verdict: str
    because: str
    rule: str
    would_change: str
    decision: Decision | None


def explain(decision: Decision, policy: Policy) -> Explanation:
    if decision.action is Action.SET:
        verdict = f"new connections start with {decision.initcwnd} segments"
    elif decision.action is Action.WITHDRAW:
        verdict = "the value is withdrawn: new connections start with the kernel's default of 10 segments"
    else:
        verdict = "no value: new connections start with the kernel's default of 10 segments"
    because = _because(decision, policy)
    return Explanation(
        decision.ip_version, verdict, because, RULES[decision.reason], _change(decision, policy), decision
    )


def without_decision(src_pop: str, dst_pop: str, round_unix_s: int, round_was_decided: bool) -> Explanation:
    """When the pair has no row in the round."""
    moment = instants.show(round_unix_s)
    verdict = "no decision: new connections start with the kernel's default of 10 segments"
    if not round_was_decided:
        because = f"round {moment} has not been decided"
        return Explanation(None, verdict, because, "none", f"`springtide decide initcwnd --round {moment}`", None)
    because = f"no sample of a live connection from {src_pop} to {dst_pop} lies in the round, and no value was alive"
    change = f"connections from edges of {src_pop} to addresses of {dst_pop}, polled by a collector and ingested"
    return Explanation(None, verdict, because, "only what was seen is learnt from", change, None)


def _because(d: Decision, policy: Policy) -> str:
    seen = f"{d.connections_earned} of {d.connections_seen} live connections earned their window"
    observed = "" if d.observed_cwnd is None else f" (mean {d.observed_cwnd:.1f}, {d.min_cwnd} to {d.max_cwnd})"
    needed = policy.initcwnd.min_connections
    since = "" if d.last_evidence is None else instants.show(d.last_evidence)
    if d.reason in (Reason.LEARNT, Reason.CLAMPED_TO_CMAX, Reason.CLAMPED_TO_CMIN):
        if d.previous_cwnd is None:
            history = f"without living history it gives {d.smoothed_cwnd:.1f}"
        else:
            history = f"smoothed with {d.previous_cwnd:.1f} from before it gives {d.smoothed_cwnd:.1f}"
        bounded = {Reason.CLAMPED_TO_CMAX: ", where cmax bounds it", Reason.CLAMPED_TO_CMIN: ", where cmin bounds it"}
        return f"{seen}{observed}; {history}{bounded.get(d.reason, '')}"
    if d.reason in (Reason.HELD_THIN_EVIDENCE, Reason.HELD_NO_EVIDENCE):
        return f"{seen}, {needed} are needed; the value of {since} stays until {_show(d.expires_at)}"
    if d.reason is Reason.EXPIRED:
        return f"{seen}, {needed} are needed; the evidence of {since} was the last, and died at {_show(d.expires_at)}"
    return f"{seen}{observed}, {needed} are needed, and no earlier value is alive"


def _change(d: Decision, policy: Policy) -> str:
    law = policy.initcwnd
    missing = law.min_connections - d.connections_earned
    more = f"{missing} more connection{'s' if missing != 1 else ''} with a full window acknowledged within one round"
    if d.action is not Action.SET or d.smoothed_cwnd is None:
        return more
    if d.reason in (Reason.HELD_THIN_EVIDENCE, Reason.HELD_NO_EVIDENCE):
        return f"{more}; or no such evidence until {_show(d.expires_at)}, when it is withdrawn"
    weight = law.history_weight
    if d.reason is Reason.CLAMPED_TO_CMAX:
        return f"a mean below {law.cmax} in the next round, or another initcwnd.cmax"
    if d.reason is Reason.CLAMPED_TO_CMIN:
        return f"a mean above {law.cmin} in the next round, or another initcwnd.cmin"
    if d.observed_cwnd is not None:
        following, _ = bound(smooth(d.observed_cwnd, d.smoothed_cwnd, weight), law)
        if to_segments(following) != d.initcwnd:
            return f"one more round like this one makes it {to_segments(following)}"
    return f"a mean that differs by more than {math.ceil(0.5 / (1.0 - weight))} segments in the next round"


def _show(unix_s: int | None) -> str:
    return "never" if unix_s is None else instants.show(unix_s)


def history_rows(history: Sequence[Decision]) -> list[tuple[object, ...]]:
    """The last rounds as a table."""
    return [
        (
            instants.show(d.round),
            d.ip_version,
            d.action.value,
            d.initcwnd,
            d.reason.value,
            None if d.observed_cwnd is None else round(d.observed_cwnd, 1),
            None if d.smoothed_cwnd is None else round(d.smoothed_cwnd, 1),
            d.connections_earned,
            d.connections_seen,
            d.policy_version,
        )
        for d in history
    ]
