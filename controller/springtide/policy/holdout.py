"""Who keeps the default."""

from __future__ import annotations

from springtide.policy.section import Section, tunable


class HoldoutPolicy(Section):
    """Edges that keep the kernel's default for every destination, so that the benefit is a measured difference."""

    edge_share: float = tunable(
        0.05,
        "Share of each PoP's edges that is held out, chosen by a hash of their names. 0 holds none out.",
        source="one edge in twenty pays for knowing; its connections still work as they always did",
        ge=0.0,
        le=0.5,
    )
    min_edges: int = tunable(
        5,
        "A PoP with at least this many edges holds out at least one; a smaller one none.",
        source="with fewer, one edge is more than a fifth of the PoP",
        ge=2,
        le=1000,
    )
