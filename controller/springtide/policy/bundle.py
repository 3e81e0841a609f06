"""Bundles, and the caps of a publication."""

from __future__ import annotations

from springtide.policy.limits import MAX_TTL_S
from springtide.policy.section import Section, tunable


class BundlePolicy(Section):
    """What an edge is given, and for how long."""

    ttl_s: int = tunable(
        900,
        "Seconds after its round at which an edge withdraws a bundle on its own.",
        source="three rounds: two pushes may fail before the edges fall back to the kernel's default",
        ge=5,
        le=MAX_TTL_S,
    )
    max_routes: int = tunable(
        10_000,
        "Most routes that one bundle may hold.",
        source="`ip -batch` applies 10,000 routes in 0.25 s",
        ge=1,
        le=100_000,
    )
    congestion: bool = tunable(
        True,
        "Whether bundles say which client prefixes use BBR.",
        source="edges whose springtide_routes.py is older than this field refuse a bundle that has it",
    )
    max_congestion: int = tunable(
        10_000,
        "Most client prefixes with a congestion control of their own that one bundle may hold.",
        source="five times congestion.max_selected, as many as routes",
        ge=0,
        le=100_000,
    )
    max_bytes: int = tunable(
        1_000_000,
        "Largest size of one bundle, bytes.",
        source="10,000 routes of 45 bytes, doubled: what outgrows this is broken (Cloudflare, 18 November 2025)",
        ge=1000,
        le=16_000_000,
    )
    min_prefix_length_ipv4: int = tunable(
        16,
        "Shortest (widest) IPv4 prefix that a bundle may name.",
        source="a PoP draws from a /16 at most; an edge takes nothing wider than a /8",
        ge=8,
        le=32,
    )
    min_prefix_length_ipv6: int = tunable(
        32,
        "Shortest (widest) IPv6 prefix that a bundle may name.",
        source="registries give an operator a /32; an edge takes nothing wider than a /16",
        ge=16,
        le=128,
    )
    max_changed_share: float = tunable(
        0.5,
        "Most of the fleet's routes that one publication may change or withdraw, as a share.",
        source="smoothing and hysteresis move few values a round: half of them moving is a fault upstream",
        ge=0.0,
        le=1.0,
    )
    max_withdrawn_share: float = tunable(
        0.3,
        "Most of the fleet's routes that one publication may withdraw, as a share.",
        source="a region that falls silent is less; more is a collector or a store that lost its rows",
        ge=0.0,
        le=1.0,
    )
    max_congestion_withdrawn_share: float = tunable(
        0.5,
        "Most of the fleet's client prefixes on BBR that one publication may take off it, as a share.",
        source="a whole PoP may be given back where BBR does not help it; half of a fleet at once is a fault upstream",
        ge=0.0,
        le=1.0,
    )
    max_growth: float = tunable(
        2.0,
        "Most routes of a publication, as a multiple of what holds on the fleet.",
        source="a fleet does not double within a round: what does is a duplicated or broken input",
        ge=1.0,
        le=100.0,
    )
    caps_from_routes: int = tunable(
        20,
        "Routes on the fleet from which on these three caps hold.",
        source="with fewer, one pair is more than a twentieth, and a fleet that begins must grow",
        ge=0,
        le=1_000_000,
    )
