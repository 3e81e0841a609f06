"""The law of the initial window."""

from __future__ import annotations

from typing import Literal

from springtide.policy.limits import MAX_TTL_S
from springtide.policy.section import Section, tunable


class InitcwndPolicy(Section):
    """The initial congestion window per ordered pair of PoPs and IP version (Riptide III-B)."""

    combiner: Literal["mean", "max", "traffic", "p10", "p25", "p50", "p75", "p90"] = tunable(
        "mean",
        (
            "How the earned windows of a round become one observed value; traffic weighs "
            "each by its bytes, p50 is the median."
        ),
        source="Riptide III-B, Algorithm 1 and the alternatives named there",
    )
    history_weight: float = tunable(
        0.8,
        "Weight of the previous value when the newest one is higher: a rise is followed slowly.",
        source=(
            "Riptide III-B calls it alpha in the text (weight of history), Table I defines alpha the other way; "
            "no value is published: with 0.8 simulated pairs change least at nearly the same gain (`make calm`)"
        ),
        ge=0.0,
        le=0.99,
    )
    falling_history_weight: float = tunable(
        0.5,
        "Weight of the previous value when the newest one is lower, but no collapse.",
        source="as for rises: following every small dip at once would sit below the path's mean",
        ge=0.0,
        le=0.99,
    )
    collapse: float = tunable(
        0.6,
        "A newest value at or below this share of the previous one is followed at once.",
        source="a window that is too large hurts in the very next round; one too small only wastes",
        ge=0.0,
        le=1.0,
    )
    cmin: int = tunable(
        10,
        "Smallest window that is ever set, segments.",
        source="Linux's own default, RFC 6928",
        ge=1,
        le=1000,
    )
    cmax: int = tunable(
        100,
        "Largest window that is ever set, segments.",
        source="Riptide IV-B, figure 10: a knee at 100, with diminishing returns beyond it",
        ge=1,
        le=1000,
    )
    min_connections: int = tunable(
        2,
        "Connections that must have earned their window before a round's observation counts.",
        source="one connection is an anecdote; asking for three gives up a tenth of the attainable gain (`make calm`)",
        ge=1,
        le=1_000_000,
    )
    ttl_s: int = tunable(
        3600,
        "Seconds after its last evidence at which a value dies and the kernel's default returns.",
        source=(
            "Riptide III-B: 90 s (IV-A: one update a second), the blog post 600 s; ours is twelve rounds for thin "
            "pairs (`make calm`): the loss guard watches a held value too"
        ),
        ge=5,
        le=MAX_TTL_S,
    )
    careful: bool = tunable(
        False,
        "Take half of what was learnt.",
        source="RFC 9959 (Careful Resume) jumps to at most half of the saved window",
    )
    receiver_cap: bool = tunable(
        True,
        "Never start with more than the median peer's advertised window holds.",
        source="Riptide III-C: a receiver's first window may not take the burst; a Linux peer by default shows 64 KB",
    )
    loss_bound: float = tunable(
        0.03,
        (
            "Share of young connections that lost anything above which the window is cut; 1 turns it off. "
            "Young: closed after at most two of the windows that they began with, the ones that it can have hurt."
        ),
        source=(
            "Riptide IV-D: losses did not seem to become more frequent; it gives no number. 3 % is assumed to be "
            "well above a healthy path's"
        ),
        ge=0.0,
        le=1.0,
    )
    loss_cut: float = tunable(
        0.7,
        "What a cut leaves of the window.",
        source="CUBIC's own reduction (RFC 9438 section 4.6: beta 0.7); it cuts again in the next round if need be",
        ge=0.1,
        le=0.9,
    )
    loss_min_connections: int = tunable(
        20,
        "Young connections that a round must show before their loss counts.",
        source="of 20 connections of 10 segments one lost segment is 0.5 %: a sixth of the bound",
        ge=1,
        le=1_000_000,
    )
    loss_hold_s: int = tunable(
        1800,
        "Seconds after a cut in which the window does not rise.",
        source="six rounds: the cut is seen to help before it is tried again",
        ge=0,
        le=MAX_TTL_S,
    )
    hysteresis: float = tunable(
        0.2,
        "Smallest change that is published, as a share of the published window (at least one segment).",
        source=(
            "a fifth: simulated pairs change less than half as often as with a tenth, at the same gain (`make calm`)"
        ),
        ge=0.0,
        le=0.9,
    )
    duty_rounds: int = tunable(
        3,
        ("Rounds with sufficient evidence, among the last duty_window_rounds, before a pair is first given a window."),
        source="the selective-BBR article acts on what recurs (its duty cycle), not on one round",
        ge=1,
        le=288,
    )
    duty_window_rounds: int = tunable(
        12,
        "How many rounds back duty_rounds counts, the present one included.",
        source="one hour of five-minute rounds",
        ge=1,
        le=288,
    )
