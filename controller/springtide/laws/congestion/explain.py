"""Why a client prefix uses BBR or does not, and what would change it: sentences made from its decision row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from springtide import instants
from springtide.errors import InputError, Problem
from springtide.laws.congestion.law import Reason, needed_excess
from springtide.policy import CLIENT_PREFIX_LENGTH, CongestionPolicy, Policy


@dataclass(frozen=True)
class PrefixExplanation:
    """What new connections use, why, the rule that decided, and what would change it."""

    value: str
    because: str
    rule: str
    would_change: str


RULES = {
    Reason.CONSISTENTLY_LOW: "low ones exceed congestion.enter_duty of the newest rounds, as congestion.min_rounds do",
    Reason.HELD_HYSTERESIS: "between congestion.leave_duty and congestion.enter_duty nothing changes",
    Reason.HELD_MIN_STAY: "congestion.min_stay_s",
    Reason.HELD_THIN_EVIDENCE: "congestion.min_rounds",
    Reason.HELD_INCOMPLETE_INPUT: "where the newest round cannot be trusted, the last decisions stay in force",
    Reason.RECOVERED: "low ones fall short of congestion.leave_duty of the newest rounds, as clearly as it was chosen",
    Reason.NO_EVIDENCE: "nothing measured within congestion.window_rounds",
    Reason.NOT_HELPED: "congestion.min_benefit: what it, or its PoP, grew beyond the held-out prefixes lies below",
    Reason.BACK_OFFICE: "BBR is for clients: the addresses are a PoP's own",
    Reason.HEALTHY_PATH: "congestion.low_rtt_us and congestion.few_retransmits",
    Reason.FLAPPING: "congestion.max_flap_rate",
    Reason.HELD_DAMPING: "congestion_damping.suppress_above, until congestion_damping.reuse_below",
    Reason.GIVEN_BACK: "congestion.give_back_hold_s",
    Reason.CAPPED: "congestion.max_new and congestion.max_selected",
    Reason.BELOW_DUTY_CYCLE: "low ones exceed congestion.enter_duty of the newest rounds, as congestion.min_rounds do",
    Reason.THIN_EVIDENCE: "congestion.min_rounds",
    Reason.OVERRIDE: "an operator's override in the policy",
}


def client_prefix(text: str) -> str | None:
    """The client prefix that is given, or that has the address; None where the text is not an address."""
    if not any(character in text for character in "./:"):
        return None
    try:
        if "/" not in text:
            address = ip_address(text)
            return str(ip_network(f"{address}/{CLIENT_PREFIX_LENGTH[address.version]}", strict=False))
        network = ip_network(text)
    except ValueError as error:
        fix = "write an IPv4 /24 or an IPv6 /56, or an address"
        raise InputError(
            [Problem("explain", "DESTINATION", f"{text!r} is not a client prefix: {error}", fix)]
        ) from None
    if network.prefixlen != CLIENT_PREFIX_LENGTH[network.version]:
        fix = f"write one of its /{CLIENT_PREFIX_LENGTH[network.version]}"
        raise InputError([Problem("explain", "DESTINATION", f"clients are not grouped by {text}", fix)])
    return str(network)


def explain(row: Mapping[str, Any] | None, policy: Policy, unranked: Mapping[str, int]) -> PrefixExplanation:
    """`row` is a decision as for JSON; None where the prefix was not measured at all. `unranked`: rounds of the window
    that showed it and did not rank it, by why, as congestion_rows.unranked gives them."""
    law = policy.congestion
    left_out = _not_ranked(unranked, law)
    if row is None:
        limited = bool(unranked["app_limited"])
        seen = f"the last {law.window_rounds} rounds show no traffic to it that could be ranked"
        if unranked["enough"]:
            seen = f"not ranked: its PoP showed fewer than {law.min_prefixes} prefixes that could be"
        return PrefixExplanation(
            "the kernel's default",
            left_out or seen,
            "congestion.min_connections, congestion.min_samples and congestion.min_bytes, of connections above "
            "congestion.min_object_bytes that the application does not limit",
            "more traffic to it" + (" that the path limits, and not the application" if limited else ""),
        )
    reason = Reason(row["reason"])
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
    return PrefixExplanation(value, because, RULES[reason], _change(row, reason, policy))


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


def _change(row: Mapping[str, Any], reason: Reason, policy: Policy) -> str:
    law = policy.congestion
    needed = needed_excess(law)
    leaves = f"low ones {needed:g} rounds short of {law.leave_duty:.0%} of the newest (now {row['good_excess']:.1f})"
    since = row["selected_since"]
    stay = instants.show(instants.parse(since) + law.min_stay_s) if since else ""
    bounds = f"{law.low_rtt_us / 1000:g} ms or {law.few_retransmits:.1%} sent again"
    texts = {
        Reason.CONSISTENTLY_LOW: f"{leaves}, from {stay} on",
        Reason.HELD_HYSTERESIS: leaves,
        Reason.HELD_MIN_STAY: f"the end of its minimum stay at {stay}",
        Reason.HELD_THIN_EVIDENCE: f"{law.min_rounds - row['measured_rounds']} more measured rounds",
        Reason.HELD_INCOMPLETE_INPUT: "a round in which most of the PoP's hosts send samples",
        Reason.BACK_OFFICE: "another prefix of the PoPs in fleet.yaml",
        Reason.HEALTHY_PATH: f"a round-trip time of {bounds}",
        Reason.FLAPPING: f"at most {law.max_flap_rate * row['measured_rounds']:.0f} changes of state",
        Reason.HELD_DAMPING: f"a penalty below {policy.congestion_damping.reuse_below:g}: it is {row['penalty']:.2f}",
        Reason.NOT_HELPED: f"another trial after {row['hold_until']}",
        Reason.GIVEN_BACK: f"another trial after {row['hold_until']}",
        Reason.CAPPED: "room: a later round, or a higher cap",
        Reason.OVERRIDE: "the override's end, or another policy",
        Reason.THIN_EVIDENCE: f"{law.min_rounds - row['measured_rounds']} more measured rounds",
    }
    enters = f"low ones {needed:g} rounds beyond {law.enter_duty:.0%} of the newest (now {row['low_excess']:.1f})"
    return texts.get(reason, enters)
