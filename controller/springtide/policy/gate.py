"""The gate between waves."""

from __future__ import annotations

from springtide.policy.section import Section, tunable


class GatePolicy(Section):
    """What lets a rollout go on after each wave, `springtide gate`."""

    min_connections: int = tunable(
        100,
        "Fewest connections on changed edges that a verdict rests on.",
        source="with 100, a share of 5 % has a standard error of 2 %",
        ge=1,
        le=1_000_000,
    )
    max_retransmit_rise: float = tunable(
        0.01,
        "Most by which the retransmitted share of bytes may rise, beyond what unchanged edges saw.",
        source="a third of initcwnd.loss_bound: a wave stops before the law itself would cut",
        ge=0.0,
        le=1.0,
    )
    max_rtt_ratio: float = tunable(
        1.25,
        "Most by which the median RTT may grow, as a ratio, beyond what unchanged edges saw.",
        source="a standing queue of a quarter of the path's own delay is one that a user feels",
        ge=1.0,
        le=100.0,
    )
    max_failed_rise: float = tunable(
        0.02,
        "Most by which the share of connections that closed unheard may rise.",
        source="a window cannot make a connect fail, a wrong route does: any clear rise is a fault",
        ge=0.0,
        le=1.0,
    )
    max_silence_s: int = tunable(
        60,
        "Seconds after which a changed edge's collector is not fresh.",
        source="collectors poll every few seconds; spool rotation and delivery take up to half a minute",
        ge=1,
        le=3600,
    )
