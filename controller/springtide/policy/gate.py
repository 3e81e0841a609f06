"""The gate between waves."""

from __future__ import annotations

from springtide.policy.section import Section, tunable


class GatePolicy(Section):
    """What lets a rollout go on after each wave, `springtide gate`."""

    min_connections: int = tunable(
        100,
        "Fewest new connections of changed edges that a verdict rests on.",
        source="`make gate-budget`: with 100, 30 % lost instead of 2 % are seen with a chance of more than 95 %",
        ge=1,
        le=1_000_000,
    )
    before_s: int = tunable(
        600,
        "Seconds before the rollout whose new connections those after a wave are held against.",
        source="two rounds: as many connections again as a wave waits for, and not yet another time of day",
        ge=10,
        le=86_400,
    )
    watched_s: int = tunable(
        60,
        "Seconds from its first record on for which a new connection is watched, before the rollout and after a wave.",
        source="a first flight is over in seconds; who is watched for longer shows more losses of another kind",
        ge=1,
        le=3600,
    )
    max_false_roll_backs: float = tunable(
        0.01,
        "Chance at most that a rollout without harm is taken back by chance, over all waves, looks and signals.",
        source="one rollout of a hundred; `make gate-budget` has what is left of it for each wave",
        ge=0.000001,
        le=0.2,
    )
    max_host_ratio: float = tunable(
        2.0,
        "Most for which one edge's connections count, as a multiple of the middle edge's.",
        source="of five canaries one that lies then has a third of the weight; honest edges of a PoP differ by less",
        ge=1.0,
        le=1000.0,
    )
    max_lost_rise: float = tunable(
        0.03,
        "Most by which the share of young new connections that lost of their first flight may rise; young: two of the "
        "larger window were not yet acknowledged.",
        source="a quarter of initcwnd.loss_bound: a wave stops before the law would cut a window of 100",
        ge=0.0,
        le=1.0,
    )
    lossy_share: float = tunable(
        0.03,
        "Share of its bytes sent again from which a connection that is no longer young is lossy.",
        source="six times congestion.few_retransmits: a long transfer nearly always loses some at its own top rate",
        ge=0.0,
        le=1.0,
    )
    max_lossy_rise: float = tunable(
        0.05,
        "Most by which the share of lossy ones among them may rise.",
        source="where a first flight loses cannot be told from what came later: a coarser bound than for young ones",
        ge=0.0,
        le=1.0,
    )
    max_timeout_rise: float = tunable(
        0.02,
        "Most by which the share of new connections with a retransmission timeout may rise.",
        source="a timeout costs 200 ms and more (RFC 6298), ten times what a repaired loss does: less than for losses",
        ge=0.0,
        le=1.0,
    )
    max_rtt_ratio: float = tunable(
        1.25,
        "A new connection's RTT beyond this multiple of what is usual towards its destination is slow.",
        source="a standing queue of a quarter of the path's own delay is one that a user feels",
        ge=1.0,
        le=100.0,
    )
    max_slow_rise: float = tunable(
        0.25,
        "Most by which the share of slow new connections may rise.",
        source="half of them slow is what a median would show: half of that",
        ge=0.0,
        le=1.0,
    )
    max_failed_rise: float = tunable(
        0.02,
        "Most by which the share of new connections that heard nothing may rise.",
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
