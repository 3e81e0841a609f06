"""Policy of the initial window: its tunables, its overrides, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from springtide.document import Document
from springtide.errors import Problem
from springtide.laws.damping import DampingPolicy
from springtide.override import Word
from springtide.section import MAX_HISTORY_S, MAX_TTL_S, Section, tunable


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
        "Seconds after its last evidence at which a value expires and the kernel's default returns.",
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
        0.12,
        (
            "Share of young connections that may lose any of their first flight where they start with 100 segments; "
            "smaller windows are allowed less, in proportion. Clearly above it (lower bound of Wilson's interval, "
            "99.9 %) the window is harmful; 1 turns the guard off. Young: closed after at most twice the window that "
            "they started with."
        ),
        source=(
            "random loss of 0.06 % a segment, as on a calibrated path from Korea to China, touches 11 % of connections "
            "that send 200 segments (1 - 0.9994^200); a burst that a queue does not take, all that are as long as it"
        ),
        ge=0.0,
        le=1.0,
    )
    loss_default_bound: float = tunable(
        0.1,
        (
            "Share of young connections that may lose something with the kernel's default. Up to here what a pair "
            "loses with the default is not held against a larger window; beyond it nothing is raised."
        ),
        source="random loss of 1 % a segment, the worst of a healthy path, touches 10 % of connections of ten segments",
        ge=0.0,
        le=1.0,
    )
    loss_min_connections: int = tunable(
        20,
        (
            "Young connections that must have started with a window before it is judged clean; those of several "
            "rounds add up. Harm needs three that lost, of however few."
        ),
        source="where a quarter of the connections is long enough to overflow a queue, 20 show none with 0.3 %",
        ge=1,
        le=1_000_000,
    )
    loss_step: float = tunable(
        1.25,
        "Factor of a step below a ceiling and beyond; at least one segment.",
        source="a step beyond what fits loses at most a fifth of a first flight; from 10 to 82 segments in ten steps",
        ge=1.05,
        le=2.0,
    )
    loss_step_rounds: int = tunable(
        2,
        "Rounds that a window must have been in use before it is judged clean. Harm counts at once.",
        source="a push takes minutes: of the first round's connections some started with the window before it",
        ge=1,
        le=288,
    )
    loss_cut: float = tunable(
        0.5,
        "The ceiling after harm, as a share of the harmful window, where no larger one was judged clean.",
        source="RFC 5681 section 3.1 halves what was in flight: slow start doubles, so half of it was carried",
        ge=0.1,
        le=0.9,
    )
    loss_hold_s: int = tunable(
        1800,
        (
            "Seconds after harm in which nothing rises above the ceiling; doubled each time that a step beyond it does "
            "harm, up to a day."
        ),
        source="six rounds: a loss episode of some minutes is over before the ceiling is tried",
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


class Override(Word):
    """An operator's word for one pair of PoPs, until an instant (Riptide V: hints of planned load changes)."""

    src: str
    dst: str
    # Edges of `src`; None: all of them.
    edges: Annotated[list[str], Field(min_length=1)] | None = None
    ip_version: Literal[4, 6] | None = None
    initcwnd: Annotated[int, Field(ge=1, le=1000)] | None

    def covers(self, ip_version: int, now: int) -> bool:
        return self.ip_version in (None, ip_version) and now < self.until_unix_s

    @staticmethod
    def commented() -> str:
        """The empty section as the default policy.yaml has it."""
        return f"""\
# {Override.__doc__}
# Each item: {{src: ams, dst: sin, initcwnd: 20, until: '2026-01-02T03:05:00Z', reason: planned drain}};
# ip_version: 4 or 6 narrows it to one, edges: [ams-1] to these edges of the src; initcwnd: null keeps the
# kernel's default.
overrides: []"""


def contradictions(
    document: Document, law: InitcwndPolicy, damping: DampingPolicy, overrides: Sequence[Override], interval_s: int
) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    yield from document.not_above(("initcwnd", "cmin"), law.cmin, ("initcwnd", "cmax"), law.cmax)
    if law.duty_rounds > law.duty_window_rounds:
        message = f"{law.duty_rounds} rounds cannot lie within duty_window_rounds = {law.duty_window_rounds}"
        yield document.problem(("initcwnd", "duty_rounds"), message, "lower it or widen the window")
    if (law.duty_window_rounds - 1) * interval_s > MAX_HISTORY_S:
        message = f"{law.duty_window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("initcwnd", "duty_window_rounds"), message, "shorten the window or the rounds")
    if (what := damping.contradiction(interval_s)) is not None:
        yield document.problem(("damping",), what, "lower suppress_above, or raise half_life_s or max_suppress_s")
    for index, override in enumerate(overrides):
        if override.initcwnd is not None and not law.cmin <= override.initcwnd <= law.cmax:
            message = f"is {override.initcwnd}, outside initcwnd.cmin {law.cmin} and cmax {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a value within them, or widen them")
        if override.edges is not None and len(set(override.edges)) < len(override.edges):
            yield document.problem(("overrides", index, "edges"), "names an edge twice", "name each once")
        if override.src == override.dst:
            yield document.problem(("overrides", index, "dst"), "is also the src", "name two PoPs")
