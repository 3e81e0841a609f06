"""Why a client prefix uses BBR or does not, and what would change it: sentences made from its decision row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from springtide import instants
from springtide.laws.base import Lines
from springtide.laws.congestion.rows import PREFIXES
from springtide.policy import CongestionPolicy, Policy


def explain(row: Mapping[str, Any] | None, policy: Policy, unranked: Mapping[str, int]) -> Lines:
    """Lines, each with its label: what new connections use, why, the rule that decided, and what would change it.

    `row` is a decision as for JSON; None where the prefix was not measured at all. `unranked`: rounds of the window
    that showed it and did not rank it, by why, as congestion_rows.unranked gives them."""
    law = policy.congestion
    left_out = _not_ranked(unranked, law)
    if row is None:
        limited = bool(unranked["app_limited"])
        seen = f"the last {law.window_rounds} rounds show no traffic to it that could be ranked"
        if unranked["enough"]:
            seen = f"not ranked: its PoP showed fewer than {law.min_prefixes} prefixes that could be"
        rule = (
            "congestion.min_connections, congestion.min_samples and congestion.min_bytes, of connections above "
            "congestion.min_object_bytes that the application does not limit"
        )
        more = "more traffic to it" + (" that the path limits, and not the application" if limited else "")
        return _lines("the kernel's default", left_out or seen, rule, more)
    if row["algorithm"] == "bbr":
        would = "would be " if policy.advises else ""
        value = (
            f"{would}chosen for BBR since {row['selected_since']}, once {law.min_object_bytes:,} bytes are delivered"
        )
    elif row["held_out"]:
        value = f"held out since {row['selected_since']}: chosen, but it keeps the default so that BBR can be judged"
    else:
        left = " (BBR is taken back in this round)" if row["action"] == "leave" else ""
        value = f"the kernel's default{left}"
    because = "; ".join([_because(row, law), *([left_out] if left_out else [])])
    return _lines(value, because, PREFIXES.rules[row["reason"]], _change(row, policy))


def _lines(*texts: str) -> Lines:
    return list(zip(("decided", "because", "rule", "would change"), texts, strict=True))


def _not_ranked(unranked: Mapping[str, int], law: CongestionPolicy) -> str:
    """In plain words; empty where every round that showed it ranked it."""
    above = f"above {law.min_object_bytes:,} bytes"
    causes = {
        "app_limited": "its connections were limited by the application",
        "small": f"too few connections {above}",
        "thin": f"too few samples or bytes of its connections {above}",
        "other_bytes": f"the round was rolled up for connections above fewer than {law.min_object_bytes:,} bytes",
        "unknown": "the round was rolled up before such connections were distinguished",
    }
    reasons = [f"{causes[why]} ({unranked[why]} rounds)" for why in causes if unranked[why]]
    return f"not ranked: {', '.join(reasons)}" if reasons else ""


def _because(row: Mapping[str, Any], law: CongestionPolicy) -> str:
    parts = [
        f"low in {row['low_rounds']} of {row['measured_rounds']} measured rounds of the last {law.window_rounds}",
        f"{row['state_changes']} changes between low and not",
    ]
    if row["rtt_us"] is not None:
        parts.append(f"{row['rtt_us'] / 1000:.1f} ms, {row['retransmit_ratio'] or 0.0:.2%} sent again")
    if row["rate"] is not None:
        parts.append(f"{row['rate'] * 8 / 1e6:.2f} Mbit/s")
    if row["benefit"] is not None:
        parts.append(f"grew {row['benefit']:+.0%} beyond the held-out prefixes")
    if row["expected_benefit"] is not None:
        parts.append(f"of its trial {row['expected_benefit']:+.0%} is expected of BBR")
    return "; ".join(parts)


def _change(row: Mapping[str, Any], policy: Policy) -> str:
    law = policy.congestion
    needed = law.needed_excess
    leaves = f"low ones {needed:g} rounds short of {law.leave_duty:.0%} of the newest (now {row['good_excess']:.1f})"
    since = row["selected_since"]
    stay = instants.show(instants.parse(since) + law.min_stay_s) if since else ""
    bounds = f"{law.low_rtt_us / 1000:g} ms or {law.few_retransmits:.1%} sent again"
    texts = {
        "consistently_low": f"{leaves}, from {stay} on",
        "held_hysteresis": leaves,
        "held_min_stay": f"the end of its minimum stay at {stay}",
        "held_thin_evidence": f"{law.min_rounds - row['measured_rounds']} more measured rounds",
        "held_incomplete_input": "a round in which most of the PoP's hosts send samples",
        "back_office": "another prefix of the PoPs in fleet.yaml",
        "healthy_path": f"a round-trip time of {bounds}",
        "flapping": f"at most {law.max_flap_rate * row['measured_rounds']:.0f} changes of state",
        "held_damping": f"a penalty below {policy.congestion_damping.reuse_below:g}: it is {row['penalty']:.2f}",
        "not_helped": f"another trial after {row['hold_until']}",
        "given_back": f"another trial after {row['hold_until']}",
        "capped": "room: a later round, or a higher cap",
        "override": "the override's end, or another policy",
        "thin_evidence": f"{law.min_rounds - row['measured_rounds']} more measured rounds",
    }
    enters = f"low ones {needed:g} rounds beyond {law.enter_duty:.0%} of the newest (now {row['low_excess']:.1f})"
    return texts.get(row["reason"], enters)
