"""Why a pair of PoPs has its initial window, and what would change it: sentences made from decision rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from springtide import _core, instants
from springtide._core import KERNEL_DEFAULT
from springtide.instants import when
from springtide.laws.base import Lines
from springtide.laws.initcwnd import edges
from springtide.laws.initcwnd.decision import Action, Decision, is_left_out
from springtide.laws.initcwnd.rows import WINDOWS, read_round
from springtide.laws.standing import Held, Standing
from springtide.laws.switchback import next_on
from springtide.policy import CLIENT_PREFIX_LENGTH as VERSIONS
from springtide.policy import Policy
from springtide.store import Store

DEFAULT = f"the kernel's default of {KERNEL_DEFAULT} segments"


def labelled(decision: Decision, policy: Policy, became: Sequence[tuple[str, str]] = ()) -> Lines:
    """A decision's lines, each with its label; `became`: those of what became of it."""
    late = ""
    if decision.action is Action.SET:
        verdict = f"{decision.initcwnd} segments"
        ends = decision.round + policy.bundle.ttl_s
        if is_left_out(decision, ends):
            late = f"of bundles: they would expire at {instants.show(ends)}, it at {when(decision.expires_at)}"
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
        ("rule", WINDOWS.rules[decision.reason]),
        ("retransmitted", f"{sent_again} of the bytes sent in the round"),
        ("policy", f"{made_by}{other}"),
        ("would change", _change(decision, policy)),
    ]


# Describes what new connections of an IP version start with on an edge, by the publication that it holds.
Describe = Callable[[int, str, Held], str]


def became(standing: Standing, describe: Describe, versions: Sequence[int] = tuple(VERSIONS)) -> Lines:
    """Lines that say whether the newest publication went out, and what new connections start with now."""
    texts = {standing.value(partial(describe, each), DEFAULT): each for each in versions}
    shown = [text if len(texts) == 1 else f"IPv{each}: {text}" for text, each in texts.items()]
    return [("pushed", standing.pushed), ("in force", "; ".join(shown))]


def describing(store: Store, now: Standing, policy: Policy, src_pop: str, dst_pop: str) -> Describe:
    """Describes what the source's edges start with, by the decisions and overrides of the rounds that they hold. Raises
    StoreError."""
    rounds = sorted({held.publication.round for held in now.last.values()})
    values = {(d.round, d.ip_version): d for each in rounds for d in read_round(store, each, (src_pop, dst_pop))}
    of_edges = {
        (each, one.edge, one.ip_version): one
        for each in rounds
        for one in edges.read_round(store, each)
        if one.dst_pop == dst_pop
    }

    def describe(ip_version: int, edge: str, held: Held) -> str:
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

    return describe


def _because(d: Decision, policy: Policy) -> str:
    seen = f"{d.connections_earned} of {d.connections_seen} live connections earned their window"
    observed = "" if d.observed_cwnd is None else f" ({d.observed_cwnd:.1f}, {d.min_cwnd} to {d.max_cwnd})"
    needed = policy.initcwnd.min_connections
    since = "" if d.last_evidence is None else instants.show(d.last_evidence)
    if d.reason == "override":
        found = [
            o
            for o in policy.overrides
            if o.edges is None and (o.src, o.dst) == d.pair[:2] and o.covers(d.ip_version, d.round)
        ]
        return f"until {found[0].until}: {found[0].reason}" if found else "the policy of that round overrode it"
    if d.reason == "expired":
        return f"{seen}, {needed} are needed; the evidence of {since} was the last, and expired at {when(d.expires_at)}"
    if d.reason in ("held_thin_evidence", "held_no_evidence"):
        return f"{seen}, {needed} are needed; the value of {since} stays until {when(d.expires_at)}"
    if d.reason == "held_incomplete_input":
        missing = f"too little of the round arrived from {d.src_pop}"
        return f"{missing}; the value of {since} stays until {when(d.expires_at)}"
    if d.smoothed_cwnd is None:
        return f"{seen}{observed}, {needed} are needed, and no earlier value is alive"
    if d.previous_cwnd is None:
        history = f"without living history it gives {d.smoothed_cwnd:.1f}"
    else:
        history = f"smoothed with {d.previous_cwnd:.1f} from before it gives {d.smoothed_cwnd:.1f}"
    return f"{seen}{observed}; {history}{_limit(d, policy)}"


def _limit(d: Decision, policy: Policy) -> str:
    """Says what the rule that spoke last did to the smoothed value."""
    young = f"{d.young_lossy_connections} of {d.young_connections} young connections lost some of their first flight"
    started = f"that started with {d.previous_initcwnd or KERNEL_DEFAULT} segments"
    timeouts = f" ({d.young_timeout_connections} waited for a timeout)" if d.young_timeout_connections else ""
    sentences = {
        "clamped_to_cmax": "where cmax bounds it",
        "clamped_to_cmin": "where cmin bounds it",
        "careful": "of which the careful profile takes half",
        "receiver_limited": f"but the median peer's advertised window holds {d.receiver_cwnd or 0.0:.0f}",
        "loss_guard": f"but {young} {started}{timeouts}: it falls to {_clean(d)}",
        "loss_guard_hold": f"but {d.harmful_initcwnd} did harm, and the ceiling is {d.ceiling_initcwnd}"
        + (f" until {when(d.guard_until)} at least" if (d.guard_until or 0) > d.round else " until it is judged clean"),
        "loss_guard_step": f"but {d.harmful_initcwnd} did harm: one step above {d.clean_initcwnd}, where no more "
        "was lost than may be",
        "held_hysteresis": f"too close to {d.previous_initcwnd} to be worth a change",
        "held_damping": f"but {d.previous_initcwnd} stays: it has changed too often (penalty {d.penalty:.1f})",
        "switchback": "but it is the pair's turn to be off, drawn by a hash and not for anything that it did",
        "disable_test": "but all pairs are off for a test, and not for anything that they did",
        "below_duty_cycle": f"but {d.measured_rounds} of the last {policy.initcwnd.duty_window_rounds} rounds had "
        f"sufficient evidence, {policy.initcwnd.duty_rounds} are needed",
    }
    return f", {sentences[d.reason]}" if d.reason in sentences else ""


def _change(d: Decision, policy: Policy) -> str:
    law = policy.initcwnd
    judged = f"{law.loss_min_connections} young connections with {d.initcwnd or KERNEL_DEFAULT} segments"
    missing = law.min_connections - d.connections_earned
    more = f"{missing} more connection{'s' if missing != 1 else ''} with a full window acknowledged within one round"
    if d.reason in ("held_thin_evidence", "held_no_evidence"):
        return f"{more}; or no such evidence until {when(d.expires_at)}, when it is withdrawn"
    own = {
        "override": "the override's end, or another policy",
        "clamped_to_cmax": f"a window below {law.cmax} in the next round, or another initcwnd.cmax",
        "clamped_to_cmin": f"a window above {law.cmin} in the next round, or another initcwnd.cmin",
        "careful": "another window in the next round, or initcwnd.careful: false",
        "receiver_limited": "larger receive buffers at the peers (tcp_rmem[1] at least twice the wanted window)",
        "loss_guard": f"{judged} that lose nothing, then steps of a factor {law.loss_step:g}; "
        f"those beyond the ceiling not before {when(d.guard_until)}",
        "loss_guard_hold": f"{judged} that lose nothing ({d.trial_young} so far)"
        + (f", from {when(d.guard_until)} on" if (d.guard_until or 0) > d.round else ""),
        "loss_guard_step": f"{judged} that lose nothing: the next step; harm: back to {d.clean_initcwnd} at once",
        "held_damping": f"a fall at once; a rise when the penalty is below {policy.damping.reuse_below:g}",
        "switchback": f"the pair's next turn to be on, {_next_on(d, policy)}",
        "disable_test": f"the test's end, {_next_on(d, policy)}",
        "below_duty_cycle": f"{law.duty_rounds - d.measured_rounds} more such rounds",
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


def left_out(d: Decision, policy: Policy) -> str:
    """Says what was decided, and whether bundles do without it; in the mode advise, what would be done."""
    if is_left_out(d, d.round + policy.bundle.ttl_s):
        return f"{d.action.value}, left out"
    return f"would {d.action.value}" if policy.advises and d.action is not Action.NONE else d.action.value
