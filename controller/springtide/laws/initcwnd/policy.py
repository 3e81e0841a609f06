"""Policy of the initial window: its tunables, its overrides, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from springtide.document import Document
from springtide.errors import Problem
from springtide.laws.damping import FIX
from springtide.override import Word
from springtide.section import MAX_HISTORY_S, MAX_TTL_S, Edges, Section

if TYPE_CHECKING:
    from springtide.policy import Policy


class InitcwndPolicy(Section):
    """The initial congestion window per ordered pair of PoPs and IP version (Riptide III-B)."""

    combiner: Literal["mean", "max", "traffic", "p10", "p25", "p50", "p75", "p90"] = "mean"
    """Way from a round's earned windows to one observed value; traffic weighs each by its bytes, p50 is the median.
    Source: Riptide III-B, Algorithm 1 and the alternatives named there."""
    history_weight: float = Field(default=0.8, ge=0.0, le=0.99)
    """Weight of the previous value when the newest one is higher: a rise is followed slowly.
    Source: Riptide III-B calls it alpha in the text (weight of history), Table I defines alpha the other way; no value
    is published: with 0.8 simulated pairs change least at nearly the same gain (`make calm`)."""
    falling_history_weight: float = Field(default=0.5, ge=0.0, le=0.99)
    """Weight of the previous value when the newest one is lower, but no collapse.
    Source: as for rises: following every small dip at once would sit below the path's mean."""
    collapse: float = Field(default=0.6, ge=0.0, le=1.0)
    """A newest value at or below this share of the previous one is followed at once.
    Source: a window that is too large hurts in the very next round; one too small only wastes."""
    cmin: int = Field(default=10, ge=1, le=1000)
    """Smallest window that is ever set, segments.
    Source: Linux's own default, RFC 6928."""
    cmax: int = Field(default=100, ge=1, le=1000)
    """Largest window that is ever set, segments.
    Source: Riptide IV-B, figure 10: a knee at 100, with diminishing returns beyond it."""
    min_connections: int = Field(default=2, ge=1, le=1_000_000)
    """Connections that must have earned their window before a round's observation counts.
    Source: one connection is an anecdote; asking for three gives up a tenth of the attainable gain (`make calm`)."""
    ttl_s: int = Field(default=3600, ge=5, le=MAX_TTL_S)
    """Seconds after its last evidence at which a value expires and the kernel's default returns.
    Source: Riptide III-B: 90 s (IV-A: one update a second), the blog post 600 s; ours is twelve rounds for thin pairs
    (`make calm`): the loss guard watches a held value too."""
    careful: bool = False
    """Take half of what was learnt.
    Source: RFC 9959 (Careful Resume) jumps to at most half of the saved window."""
    receiver_cap: bool = True
    """Never start with more than the median peer's advertised window holds.
    Source: Riptide III-C: a receiver's first window may not take the burst; a Linux peer by default shows 64 KB."""
    loss_bound: float = Field(default=0.12, ge=0.0, le=1.0)
    """Share of young connections that may lose any of their first flight where they start with 100 segments; smaller
    windows are allowed less, in proportion. Clearly above it (lower bound of Wilson's interval, 99.9 %) the window is
    harmful; 1 turns the guard off. Young: closed after at most twice the window that they started with.
    Source: random loss of 0.06 % a segment, as on a calibrated path from Korea to China, touches 11 % of connections
    that send 200 segments (1 - 0.9994^200); a burst that a queue does not take, all that are as long as it."""
    loss_default_bound: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of young connections that may lose something with the kernel's default. Up to here what a pair loses with
    the default is not held against a larger window; beyond it nothing is raised.
    Source: random loss of 1 % a segment, the worst of a healthy path, touches 10 % of connections of ten segments."""
    loss_min_connections: int = Field(default=20, ge=1, le=1_000_000)
    """Young connections that must have started with a window before it is judged clean; those of several rounds add up.
    Harm needs three that lost, of however few.
    Source: where a quarter of the connections is long enough to overflow a queue, 20 show none with 0.3 %."""
    loss_step: float = Field(default=1.25, ge=1.05, le=2.0)
    """Factor of a step below a ceiling and beyond; at least one segment.
    Source: a step beyond what fits loses at most a fifth of a first flight; from 10 to 82 segments in ten steps."""
    loss_step_rounds: int = Field(default=2, ge=1, le=288)
    """Rounds that a window must have been in use before it is judged clean. Harm counts at once.
    Source: a push takes minutes: of the first round's connections some started with the window before it."""
    loss_cut: float = Field(default=0.5, ge=0.1, le=0.9)
    """The ceiling after harm, as a share of the harmful window, where no larger one was judged clean.
    Source: RFC 5681 section 3.1 halves what was in flight: slow start doubles, so half of it was carried."""
    loss_hold_s: int = Field(default=1800, ge=0, le=MAX_TTL_S)
    """Seconds after harm in which nothing rises above the ceiling; doubled each time that a step beyond it does harm,
    up to a day.
    Source: six rounds: a loss episode of some minutes is over before the ceiling is tried."""
    hysteresis: float = Field(default=0.2, ge=0.0, le=0.9)
    """Smallest change that is published, as a share of the published window (at least one segment).
    Source: a fifth: simulated pairs change less than half as often as with a tenth, at the same gain (`make calm`)."""
    duty_rounds: int = Field(default=3, ge=1, le=288)
    """Rounds with sufficient evidence, among the last duty_window_rounds, before a pair is first given a window.
    Source: the selective-BBR article acts on what recurs (its duty cycle), not on one round."""
    duty_window_rounds: int = Field(default=12, ge=1, le=288)
    """Number of rounds back that duty_rounds counts, the present one included.
    Source: one hour of five-minute rounds."""


class Override(Word):
    """An operator's word for one pair of PoPs, until an instant (Riptide V: hints of planned load changes).
    Each item: {src: ams, dst: sin, initcwnd: 20, until: '2026-01-02T03:05:00Z', reason: planned drain};
    ip_version: 4 or 6 narrows it to one, edges: [ams-1] to these edges of the src; initcwnd: null keeps the
    kernel's default."""

    src: str
    dst: str
    # Edges of `src`; None: all of them.
    edges: Edges | None = None
    ip_version: Literal[4, 6] | None = None
    initcwnd: Annotated[int, Field(ge=1, le=1000)] | None

    def covers(self, ip_version: int, now: int) -> bool:
        return self.ip_version in (None, ip_version) and now < self.until_unix_s


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    law, interval_s = policy.initcwnd, policy.round.interval_s
    duty, window = ("initcwnd", "duty_rounds"), ("initcwnd", "duty_window_rounds")
    yield from document.not_above(("initcwnd", "cmin"), law.cmin, ("initcwnd", "cmax"), law.cmax)
    yield from document.not_above(duty, law.duty_rounds, window, law.duty_window_rounds)
    if (law.duty_window_rounds - 1) * interval_s > MAX_HISTORY_S:
        message = f"{law.duty_window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(window, message, "shorten the window or the rounds")
    if (what := policy.damping.contradiction(interval_s)) is not None:
        yield document.problem(("damping",), what, FIX)
    for index, override in enumerate(policy.overrides):
        if override.initcwnd is not None and not law.cmin <= override.initcwnd <= law.cmax:
            message = f"is {override.initcwnd}, outside initcwnd.cmin {law.cmin} and cmax {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a value within them, or widen them")
        if override.src == override.dst:
            yield document.problem(("overrides", index, "dst"), "is also the src", "name two PoPs")
