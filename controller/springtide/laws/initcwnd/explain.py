"""Why a pair of PoPs has its initial window, and what would change it: sentences made from decision rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from springtide import _core, instants
from springtide._core import KERNEL_DEFAULT
from springtide.laws.initcwnd.decision import RULES, Action, Decision, Reason, is_left_out
from springtide.laws.initcwnd.edges import EdgeDecision
from springtide.laws.standing import Held, Standing
from springtide.laws.switchback import next_on
from springtide.policy import CLIENT_PREFIX_LENGTH as VERSIONS
from springtide.policy import Policy

DEFAULT = f"the kernel's default of {KERNEL_DEFAULT} segments"


def labelled(decision: Decision, policy: Policy, became: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """A decision's lines, each with its label; `became`: those of what became of it."""
    late = ""
    if decision.action is Action.SET:
        verdict = f"{decision.initcwnd} segments"
        ends = decision.round + policy.bundle.ttl_s
        if is_left_out(decision, ends):
            late = f"of bundles: they would expire at {instants.show(ends)}, it at {_show(decision.expires_at)}"
        elif policy.advises:
            verdict = f"new connections would start with {verdict}"
    elif decision.action is Action.WITHDRAW:
        verdict = f"the value is withdrawn: {DEFAULT}"
    else:
        verdict = f"no value: {DEFAULT}"
    ratio, made_by = decision.retransmit_ratio, decision.policy_version
    sent_again = "unknown" if ratio is None else f"{ratio:.2%}"
    other = "" if made_by == policy.version else f"; the policy at hand is {policy.version}"
    return [
        ("decided", verdict),
        *([("left out", late)] if late else []),
        *became,
        ("because", _because(decision, policy)),
        ("rule", RULES[decision.reason]),
        ("retransmitted", f"{sent_again} of the bytes sent in the round"),
        ("policy", f"{made_by}{other}"),
        ("would change", _change(decision, policy)),
    ]


def became(standing: Standing, held: Mapping[int, str], ip_version: int | None = None) -> list[tuple[str, str]]:
    """Lines that say whether the newest publication went out, and what new connections start with now. `held` is
    in_force's; `ip_version` None: of both."""
    texts = {text: each for each, text in held.items() if ip_version in (None, each)}
    shown = [text if len(texts) == 1 else f"IPv{each}: {text}" for text, each in texts.items()]
    return [("pushed", standing.pushed), ("in force", "; ".join(shown))]


def in_force(
    standing: Standing,
    policy: Policy,
    src_pop: str,
    values: Mapping[tuple[int, int], Decision],
    of_edges: Mapping[tuple[int, str, int], EdgeDecision],
) -> dict[int, str]:
    """Text by IP version: the start of new connections of the source's edges now. `values` are the pair's decisions by
    round and IP version, `of_edges` its overrides by round, edge and IP version, both of the rounds of the publications
    that the edges hold. Pure."""

    def describe(edge: str, held: Held, ip_version: int) -> str:
        publication = held.publication
        until = f"until {instants.show(held.until)}"
        if policy.enforce_of(edge, src_pop, publication.round).by == "bpf":
            return "what the law start gives, as the edge paces"
        own = of_edges.get((publication.round, edge, ip_version))
        if own is not None:
            return (DEFAULT if own.initcwnd is None else f"{own.initcwnd} segments {until}") + " (an override)"
        if edge in publication.held_out:
            return f"{DEFAULT} (held out)"
        one = values.get((publication.round, ip_version))
        if one is None or one.action is not Action.SET or is_left_out(one, publication.expires):
            return DEFAULT
        return f"{one.initcwnd} segments {until}"

    return {version: standing.value(partial(describe, ip_version=version), DEFAULT) for version in sorted(VERSIONS)}


def without_decision(src_pop: str, dst_pop: str, round_unix_s: int, was_decided: bool) -> list[tuple[str, str]]:
    """When the pair has no row in the round."""
    moment = instants.show(round_unix_s)
    if was_decided:
        because = (
            f"no sample of a live connection from {src_pop} to {dst_pop} lies in the round, and no value was alive"
        )
        rule = "only what was seen is learnt from"
        change = f"connections from edges of {src_pop} to addresses of {dst_pop}, polled by a collector and ingested"
    else:
        because, rule = f"round {moment} has not been decided", "none"
        change = f"`springtide decide initcwnd --round {moment}`"
    return [
        ("decided", f"no decision: {DEFAULT}"),
        ("because", because),
        ("rule", rule),
        ("would change", change),
    ]


def _because(d: Decision, policy: Policy) -> str:
    seen = f"{d.connections_earned} of {d.connections_seen} live connections earned their window"
    observed = "" if d.observed_cwnd is None else f" ({d.observed_cwnd:.1f}, {d.min_cwnd} to {d.max_cwnd})"
    needed = policy.initcwnd.min_connections
    since = "" if d.last_evidence is None else instants.show(d.last_evidence)
    if d.reason is Reason.OVERRIDE:
        found = [
            o
            for o in policy.overrides
            if o.edges is None and (o.src, o.dst) == d.pair[:2] and o.covers(d.ip_version, d.round)
        ]
        return f"until {found[0].until}: {found[0].reason}" if found else "the policy of that round overrode it"
    if d.reason is Reason.EXPIRED:
        return (
            f"{seen}, {needed} are needed; the evidence of {since} was the last, and expired at {_show(d.expires_at)}"
        )
    if d.reason in (Reason.HELD_THIN_EVIDENCE, Reason.HELD_NO_EVIDENCE):
        return f"{seen}, {needed} are needed; the value of {since} stays until {_show(d.expires_at)}"
    if d.reason is Reason.HELD_INCOMPLETE_INPUT:
        return (
            f"too little of the round arrived from {d.src_pop}; the value of {since} stays until {_show(d.expires_at)}"
        )
    if d.smoothed_cwnd is None:
        return f"{seen}{observed}, {needed} are needed, and no earlier value is alive"
    if d.previous_cwnd is None:
        history = f"without living history it gives {d.smoothed_cwnd:.1f}"
    else:
        history = f"smoothed with {d.previous_cwnd:.1f} from before it gives {d.smoothed_cwnd:.1f}"
    return f"{seen}{observed}; {history}{_limit(d, policy)}"


def _limit(d: Decision, policy: Policy) -> str:
    """What the rule that spoke last did to the smoothed value."""
    young = f"{d.young_lossy_connections} of {d.young_connections} young connections lost some of their first flight"
    started = f"that started with {d.previous_initcwnd or KERNEL_DEFAULT} segments"
    timeouts = f" ({d.young_timeout_connections} waited for a timeout)" if d.young_timeout_connections else ""
    sentences = {
        Reason.CLAMPED_TO_CMAX: "where cmax bounds it",
        Reason.CLAMPED_TO_CMIN: "where cmin bounds it",
        Reason.CAREFUL: "of which the careful profile takes half",
        Reason.RECEIVER_LIMITED: f"but the median peer's advertised window holds {d.receiver_cwnd or 0.0:.0f}",
        Reason.LOSS_GUARD: f"but {young} {started}{timeouts}: it falls to {_clean(d)}",
        Reason.LOSS_GUARD_HOLD: f"but {d.harmful_initcwnd} did harm, and the ceiling is {d.ceiling_initcwnd}"
        + (
            f" until {_show(d.guard_until)} at least" if (d.guard_until or 0) > d.round else " until it is judged clean"
        ),
        Reason.LOSS_GUARD_STEP: f"but {d.harmful_initcwnd} did harm: one step above {d.clean_initcwnd}, where no more "
        "was lost than may be",
        Reason.HELD_HYSTERESIS: f"too close to {d.previous_initcwnd} to be worth a change",
        Reason.HELD_DAMPING: f"but {d.previous_initcwnd} stays: it has changed too often (penalty {d.penalty:.1f})",
        Reason.SWITCHBACK: "but it is the pair's turn to be off, drawn by a hash and not for anything that it did",
        Reason.DISABLE_TEST: "but all pairs are off for a test, and not for anything that they did",
        Reason.BELOW_DUTY_CYCLE: f"but {d.measured_rounds} of the last {policy.initcwnd.duty_window_rounds} rounds had "
        f"sufficient evidence, {policy.initcwnd.duty_rounds} are needed",
    }
    return f", {sentences[d.reason]}" if d.reason in sentences else ""


def _change(d: Decision, policy: Policy) -> str:
    law = policy.initcwnd
    judged = f"{law.loss_min_connections} young connections with {d.initcwnd or KERNEL_DEFAULT} segments"
    missing = law.min_connections - d.connections_earned
    more = f"{missing} more connection{'s' if missing != 1 else ''} with a full window acknowledged within one round"
    if d.reason in (Reason.HELD_THIN_EVIDENCE, Reason.HELD_NO_EVIDENCE):
        return f"{more}; or no such evidence until {_show(d.expires_at)}, when it is withdrawn"
    own = {
        Reason.OVERRIDE: "the override's end, or another policy",
        Reason.CLAMPED_TO_CMAX: f"a window below {law.cmax} in the next round, or another initcwnd.cmax",
        Reason.CLAMPED_TO_CMIN: f"a window above {law.cmin} in the next round, or another initcwnd.cmin",
        Reason.CAREFUL: "another window in the next round, or initcwnd.careful: false",
        Reason.RECEIVER_LIMITED: "larger receive buffers at the peers (tcp_rmem[1] at least twice the wanted window)",
        Reason.LOSS_GUARD: f"{judged} that lose nothing, then steps of a factor {law.loss_step:g}; "
        f"those beyond the ceiling not before {_show(d.guard_until)}",
        Reason.LOSS_GUARD_HOLD: f"{judged} that lose nothing ({d.trial_young} so far)"
        + (f", from {_show(d.guard_until)} on" if (d.guard_until or 0) > d.round else ""),
        Reason.LOSS_GUARD_STEP: f"{judged} that lose nothing: the next step; harm: back to {d.clean_initcwnd} at once",
        Reason.HELD_DAMPING: f"a fall at once; a rise when the penalty is below {policy.damping.reuse_below:g}",
        Reason.SWITCHBACK: f"the pair's next turn to be on, {_next_on(d, policy)}",
        Reason.DISABLE_TEST: f"the test's end, {_next_on(d, policy)}",
        Reason.BELOW_DUTY_CYCLE: f"{law.duty_rounds - d.measured_rounds} more such rounds",
    }
    if d.reason in own:
        return own[d.reason]
    if d.action is not Action.SET or d.smoothed_cwnd is None or d.initcwnd is None:
        return more
    observed = math.nan if d.observed_cwnd is None else d.observed_cwnd
    least, following = _core.window_changes(law.model_dump_json(), d.initcwnd, observed, d.smoothed_cwnd)
    if abs(following - d.initcwnd) >= least:
        return f"one more round like this one makes it {following:.0f}"
    return f"a smoothed window that differs by {least:.0f} segment{'s' if least != 1 else ''} or more"


def _next_on(d: Decision, policy: Policy) -> str:
    on = next_on(policy.experiment, policy.round.interval_s, d.src_pop, d.dst_pop, d.round)
    return f"in round {instants.show(on)}" if on != d.round else "as the policy at hand switches nothing off"


def _clean(d: Decision) -> str:
    if d.clean_initcwnd is None:
        return "the smallest window, as no larger one was judged clean"
    return f"{d.clean_initcwnd}, the last window that was judged clean"


def _show(unix_s: int | None) -> str:
    return "never" if unix_s is None else instants.show(unix_s)


def left_out(d: Decision, policy: Policy) -> str:
    """What was decided, and whether bundles do without it; in the mode advise, what would be done."""
    if is_left_out(d, d.round + policy.bundle.ttl_s):
        return f"{d.action.value}, left out"
    return f"would {d.action.value}" if policy.advises and d.action is not Action.NONE else d.action.value


def history_row(d: Decision, policy: Policy) -> dict[str, object]:
    """A decision as a line of the last rounds."""
    return {
        "round": instants.show(d.round),
        "ip_version": d.ip_version,
        "action": left_out(d, policy),
        "initcwnd": d.initcwnd,
        "reason": d.reason.value,
        "observed": None if d.observed_cwnd is None else round(d.observed_cwnd, 1),
        "smoothed": None if d.smoothed_cwnd is None else round(d.smoothed_cwnd, 1),
        "earned": d.connections_earned,
        "seen": d.connections_seen,
        "policy": d.policy_version,
    }
