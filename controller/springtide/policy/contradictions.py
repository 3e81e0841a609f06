"""Rules between keys: each key may be within its range, and yet they cannot all be meant."""

from __future__ import annotations

import math
from collections.abc import Iterator

from springtide.document import Document
from springtide.errors import Problem
from springtide.policy.limits import MAX_HISTORY_S
from springtide.policy.whole import Policy


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """The message stands at the key that the file gives."""
    yield from _between_sections(document, policy)
    yield from _of_congestion(document, policy)
    yield from _of_overrides(document, policy)


def _between_sections(document: Document, policy: Policy) -> Iterator[Problem]:
    keep = policy.retention
    rules = [
        (("initcwnd", "cmin"), policy.initcwnd.cmin, ("initcwnd", "cmax"), policy.initcwnd.cmax),
        # An edge may use a value until its bundle expires: a fresh decision must outlive the bundle that carries it.
        (("bundle", "ttl_s"), policy.bundle.ttl_s, ("initcwnd", "ttl_s"), policy.initcwnd.ttl_s),
        # Otherwise every route would vanish before the next round could renew it.
        (("round", "interval_s"), policy.round.interval_s, ("bundle", "ttl_s"), policy.bundle.ttl_s),
        # Each tier is made of the one before it.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "hours_days"), keep.hours_days),
        (("retention", "hours_days"), keep.hours_days, ("retention", "days_days"), keep.days_days),
        # The controller reads its last decisions; so does whoever asks why.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "decisions_days"), keep.decisions_days),
    ]
    for low_keys, low, high_keys, high in rules:
        if low > high:
            keys = low_keys if low_keys in document.lines else high_keys
            message = f"{'.'.join(low_keys)} = {low} is above {'.'.join(high_keys)} = {high}"
            yield document.problem(keys, message, f"lower {'.'.join(low_keys)} or raise {'.'.join(high_keys)}")
    law = policy.initcwnd
    if law.duty_rounds > law.duty_window_rounds:
        message = f"{law.duty_rounds} rounds cannot lie within duty_window_rounds = {law.duty_window_rounds}"
        yield document.problem(("initcwnd", "duty_rounds"), message, "lower it or widen the window")
    if (law.duty_window_rounds - 1) * policy.round.interval_s > MAX_HISTORY_S:
        message = f"{law.duty_window_rounds} rounds of {policy.round.interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("initcwnd", "duty_window_rounds"), message, "shorten the window or the rounds")
    if (what := policy.damping.contradiction(policy.round.interval_s)) is not None:
        yield document.problem(("damping",), what, "lower suppress_above, or raise half_life_s or max_suppress_s")


def _of_congestion(document: Document, policy: Policy) -> Iterator[Problem]:
    law, interval_s = policy.congestion, policy.round.interval_s
    if law.leave_duty >= law.enter_duty:
        message = f"{law.leave_duty:g} is not below enter_duty {law.enter_duty:g}"
        yield document.problem(("congestion", "leave_duty"), message, "lower it: what was chosen would leave at once")
    for key in ("min_rounds", "benefit_rounds"):
        if getattr(law, key) > law.window_rounds:
            message = f"{getattr(law, key)} rounds cannot lie within window_rounds = {law.window_rounds}"
            yield document.problem(("congestion", key), message, "lower it or widen the window")
    if law.window_rounds * interval_s > MAX_HISTORY_S:
        message = f"{law.window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("congestion", "window_rounds"), message, "shorten the window or the rounds")
    # A prefix that is low for as short as is noticed, and then not for as long, changes this often.
    swing = max(1, math.ceil(law.enter_duty * law.window_rounds)) * interval_s
    if (what := policy.congestion_damping.contradiction(swing)) is not None:
        fix = "lower suppress_above, or raise half_life_s or max_suppress_s"
        yield document.problem(("congestion_damping",), what, fix)


def _of_overrides(document: Document, policy: Policy) -> Iterator[Problem]:
    law = policy.initcwnd
    for index, override in enumerate(policy.overrides):
        if override.initcwnd is not None and not law.cmin <= override.initcwnd <= law.cmax:
            message = f"is {override.initcwnd}, outside initcwnd.cmin {law.cmin} and cmax {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a value within them, or widen them")
        if override.edges is not None and len(set(override.edges)) < len(override.edges):
            yield document.problem(("overrides", index, "edges"), "names an edge twice", "name each once")
        if override.src == override.dst:
            yield document.problem(("overrides", index, "dst"), "is also the src", "name two PoPs")
