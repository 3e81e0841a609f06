"""Flap damping of a value that is published round by round (RFC 2439).

Each change adds one to a penalty that halves every `half_life_s`. Above `suppress_above` changes are held back until
the penalty has decayed below `reuse_below`. It has a ceiling: nothing is held longer than `max_suppress_s` after its
last change.
"""

from __future__ import annotations

from pydantic import Field

from springtide.section import MAX_TTL_S, Section

# Advice where limits contradict.
FIX = "lower suppress_above, or raise half_life_s or max_suppress_s"


class DampingPolicy(Section):
    """Flap damping of published windows (RFC 2439): each change costs 1, the cost halves every half_life_s."""

    half_life_s: int = Field(default=1800, ge=5, le=MAX_TTL_S)
    """Seconds in which the penalty halves.
    Source: routers (Cisco, Juniper) take 15 minutes for routes that flap in seconds; ours is six rounds."""
    suppress_above: float = Field(default=2.5, ge=0.5, le=100.0)
    """Penalty above which rises are held back. Falls never are.
    Source: the third change in a row; a change in every round would reach 3.0, so it can fire."""
    reuse_below: float = Field(default=0.75, ge=0.1, le=100.0)
    """Penalty below which rises are let through again.
    Source: routers (Cisco, Juniper) take 750 of the 1000 that one flap costs: three quarters of one change."""
    max_suppress_s: int = Field(default=3600, ge=5, le=MAX_TTL_S)
    """Longest that a rise is held back after the last change, seconds.
    Source: routers (Cisco, Juniper) take 60 minutes."""

    @property
    def ceiling(self) -> float:
        """The penalty that decays to `reuse_below` in `max_suppress_s`: none is ever higher (RFC 2439)."""
        return float(self.reuse_below * 2.0 ** min(self.max_suppress_s / self.half_life_s, 50.0))

    def contradiction(self, interval_s: int) -> str | None:
        """Why these limits would never hold anything back, or not let go: a penalty has an upper bound (RFC 7196).

        `interval_s` is the shortest time between two changes of one value.
        """
        if self.reuse_below >= self.suppress_above:
            return f"reuse_below {self.reuse_below:g} is not below suppress_above {self.suppress_above:g}"
        # As many changes as can be: the sum of a geometric series.
        highest = min(self.ceiling, 1.0 / (1.0 - 0.5 ** (interval_s / self.half_life_s)))
        if highest <= self.suppress_above:
            return (
                f"a change every {interval_s} s brings the penalty to {highest:.2f} at most, not above "
                f"suppress_above {self.suppress_above:g}: nothing would ever be held back"
            )
        return None
