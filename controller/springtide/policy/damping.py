"""Flap damping, of windows and of prefixes."""

from __future__ import annotations

from springtide.policy.limits import MAX_TTL_S
from springtide.policy.section import Section, tunable


class DampingPolicy(Section):
    """Flap damping of published windows (RFC 2439): each change costs 1, the cost halves every half_life_s."""

    half_life_s: int = tunable(
        1800,
        "Seconds in which the penalty halves.",
        source="routers (Cisco, Juniper) take 15 minutes for routes that flap in seconds; ours is six rounds",
        ge=5,
        le=MAX_TTL_S,
    )
    suppress_above: float = tunable(
        2.5,
        "Penalty above which rises are held back. Falls never are.",
        source="the third change in a row; a change in every round would reach 3.0, so it can fire",
        ge=0.5,
        le=100.0,
    )
    reuse_below: float = tunable(
        0.75,
        "Penalty below which rises are let through again.",
        source="routers (Cisco, Juniper) take 750 of the 1000 that one flap costs: three quarters of one change",
        ge=0.1,
        le=100.0,
    )
    max_suppress_s: int = tunable(
        3600,
        "Longest that a rise is held back after the last change, seconds.",
        source="routers (Cisco, Juniper) take 60 minutes",
        ge=5,
        le=MAX_TTL_S,
    )

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


class CongestionDampingPolicy(DampingPolicy):
    """Flap damping of chosen prefixes (RFC 2439): each choice and each end of one costs 1."""

    half_life_s: int = tunable(
        43_200,
        "Seconds in which the penalty halves.",
        source="twice the duty cycle's window: what has left the window still counts for half",
        ge=5,
        le=MAX_TTL_S,
    )
    suppress_above: float = tunable(
        2.0,
        "Penalty above which a prefix is not chosen.",
        source="chosen, let go, chosen again as fast as the duty cycle allows gives 2.3: it can fire",
        ge=0.5,
        le=100.0,
    )
    max_suppress_s: int = tunable(
        86_400,
        "Longest that a prefix is not chosen after its last change, seconds.",
        source="a day, as after giving back",
        ge=5,
        le=MAX_TTL_S,
    )
