"""Rounds: when they are, and what makes one complete."""

from __future__ import annotations

from springtide.policy.section import Section, tunable


class RoundPolicy(Section):
    """When decisions are made."""

    interval_s: int = tunable(
        300,
        "Seconds between rounds; a round T covers [T - interval_s, T).",
        source=(
            "the selective-BBR article decides every five minutes; Riptide III-B updates every i_u seconds on each host"
        ),
        ge=5,
        le=3600,
    )
    lateness_s: int = tunable(
        60,
        "Seconds after a round's end for which its samples are waited for; what is later is counted.",
        source=(
            "collectors hand over every few seconds, and a broker's restart takes some tens of them; a decision that "
            "waits longer than a minute is late itself"
        ),
        ge=0,
        le=3600,
    )


class CompletenessPolicy(Section):
    """How much of a round must have arrived for a PoP's decisions to follow it."""

    min_hosts: float = tunable(
        0.6,
        "Share of a PoP's hosts, of those heard in the last memory_rounds, that the round must have.",
        source="two edges of three still speak for their PoP; one of two, or half of many, do not",
        ge=0.0,
        le=1.0,
    )
    min_rows: float = tunable(
        0.6,
        "Share of the rows expected of a PoP's hosts that must have arrived, each host counted alike; "
        "gaps between polls count.",
        source="as for hosts: what is missing may be what is slow",
        ge=0.0,
        le=1.0,
    )
    min_closes: float = tunable(
        0.6,
        "Share of the close records expected of a PoP's hosts that must have arrived, each host counted alike; "
        "sockets that vanish between polls without theirs count. 0 turns it off.",
        source="as for hosts: the loss guard and the benefit look at nothing else",
        ge=0.0,
        le=1.0,
    )
    memory_rounds: int = tunable(
        6,
        "Rounds for which a host that fell silent is still expected.",
        source="half an hour: a host that was taken out must not freeze its PoP until values expire",
        ge=2,
        le=288,
    )
