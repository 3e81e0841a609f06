"""Policy of starts: its tunables, its overrides, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from springtide._core import KERNEL_DEFAULT, MAX_RATE
from springtide.document import Document
from springtide.errors import Problem
from springtide.override import PathWord
from springtide.override import contradictions as contradicting
from springtide.section import MAX_TTL_S, Section

if TYPE_CHECKING:
    from springtide.policy import Policy


class StartPolicy(Section):
    """Rate and window of new connections, per ordered pair of PoPs and per client prefix; for edges by: bpf."""

    careful: bool = False
    """Half of the rate and of the window, and only while the round trip is within a half and ten times of the one at
    which they were learnt.
    Source: RFC 9959 (Careful Resume)."""
    share_quantile: float = Field(default=0.5, ge=0.01, le=0.9)
    """Quantile of single connections' delivery rates that counts as a connection's share of the path.
    Source: beside four bulk flows an equal share was safe where the path's rate was not; a quarter gives away more of
    the attainable gain, and harms no less (`make calm`)."""
    path_quantile: float = Field(default=0.9, ge=0.1, le=1.0)
    """Quantile over short times of what a unit's connections were delivered together that counts as the path's.
    Source: what was delivered was there; the last tenth are bursts and clocks."""
    min_connections: int = Field(default=3, ge=1, le=1_000_000)
    """Connections that must have met the path, decayed as history_weight says, before their share counts.
    Source: of two the middle is anything between them; four give away half a point of the gain (`make calm`)."""
    history_weight: float = Field(default=0.8, ge=0.0, le=0.99)
    """Weight of the evidence of the rounds before, each time that there is new evidence.
    Source: as initcwnd.history_weight."""
    collapse: float = Field(default=0.5, ge=0.1, le=1.0)
    """A round's share at or below this part of what is in use is followed at once, and history forgotten.
    Source: single rates differ by a quarter: with 0.6 three connections fall by chance more often (`make calm`)."""
    pace_gain: float = Field(default=0.95, ge=0.1, le=1.0)
    """Start rates as a part of what was proved.
    Source: acknowledgements, headers and what else is on the path; so every path of the lab was within a few percent of
    its limit."""
    headroom: float = Field(default=1.25, ge=0.5, le=4.0)
    """Largest window as a multiple of what the path's rate carries in its lowest round trip.
    Source: a window above rate x round trip costs hundreds of retransmissions on objects of 1 MB."""
    cmax: int = Field(default=400, ge=KERNEL_DEFAULT, le=1000)
    """Largest window that is ever set, segments.
    Source: 400 at the path's rate reached the limit on every path of the lab; 100 kB are 70."""
    ttl_s: int = Field(default=3600, ge=5, le=MAX_TTL_S)
    """Seconds after its last evidence at which a value expires and the kernel's default returns.
    Source: as initcwnd.ttl_s."""
    hysteresis: float = Field(default=0.25, ge=0.0, le=0.9)
    """Smallest change of a rate or window that is published or tried, as a share of the one in use.
    Source: a fifth changes a quarter more often at the same gain (`make calm`); 100 kB at a rate that is a fifth too
    low take a few ms more."""
    duty_rounds: int = Field(default=2, ge=1, le=288)
    """Rounds with evidence before a unit is first given values, on trial.
    Source: a trial is its own caution; initcwnd waits for three."""
    trial_permille: int = Field(default=100, ge=1, le=1000)
    """Connections of a thousand that are given the values on trial, at least. Where there are few connections, more
    are, so that trial_flights show soon, at most enforce.max_trial_permille.
    Source: a tenth pays for knowing; where it shows nothing for hours, gain is lost: 84 % of what is attainable with a
    tenth, 90 % with up to a half (`make calm`)."""
    trial_flights: int = Field(default=20, ge=1, le=1_000_000)
    """First flights of more than ten segments that must have been on trial before it is judged well; half as many where
    none of them lost anything.
    Source: as initcwnd.loss_min_connections; the half gives two points of the attainable gain (`make calm`)."""
    trial_rounds: int = Field(default=1, ge=1, le=288)
    """Rounds that a trial must have lasted before it is judged well. Harm counts at once.
    Source: its records name the round they started by: none of another decision is counted."""
    step: float = Field(default=1.5, ge=1.05, le=4.0)
    """Factor of a step beyond what is in use, where nothing met the path yet.
    Source: slow start doubles; a step that is too far is on trial only."""
    step_gain: float = Field(default=0.02, ge=0.0, le=0.9)
    """Part of the time of 100 kB (or 50) that a step must save to be promoted.
    Source: below it, a step buys risk with milliseconds."""
    slower: float = Field(default=0.1, ge=0.0, le=1.0)
    """A trial whose 100 kB (or 50) take this much longer than the others' is not promoted.
    Source: medians of twenty flights differ by a few percent by themselves."""
    loss_bound: float = Field(default=0.12, ge=0.0, le=1.0)
    """As initcwnd.loss_bound, of first flights: the share of those that may lose anything where they start with 100
    segments.
    Source: as initcwnd.loss_bound."""
    loss_segments: float = Field(default=0.02, ge=0.0, le=1.0)
    """Share of first flights' segments that may be sent again without harm, however many connections lose one.
    Source: four that start together on a queue of 32 lose one to four of 280, the kernel's default 41 (`make calm`); a
    burst that does not fit loses half."""
    loss_default_bound: float = Field(default=0.2, ge=0.0, le=1.0)
    """Share of default starts that may lose something; up to here it is not held against what is set.
    Source: random loss of 2 % a segment touches 18 % of connections of ten segments; pacing adds none."""
    cut: float = Field(default=0.8, ge=0.1, le=0.9)
    """Part of the rate and window in use that is left after harm.
    Source: what is paced exceeds the path by little when it first does harm; CUBIC's 0.7 (RFC 9438) gives away a point
    of the attainable gain (`make calm`)."""
    hold_s: int = Field(default=900, ge=0, le=MAX_TTL_S)
    """Seconds after harm, or after a trial in vain, in which nothing above the cut is tried; doubled each time.
    Source: three rounds: the retry is on trial, where initcwnd's is on all."""
    group_units: int = Field(default=3, ge=2, le=1000)
    """Units of a group that must have evidence of their own before others borrow from it.
    Source: of two, one is half of the estimate."""
    group_quantile: float = Field(default=0.25, ge=0.0, le=0.9)
    """Quantile of the group's shares that a unit without evidence of its own may be given at most.
    Source: three of four of its neighbours carry more."""
    max_prefixes: int = Field(default=5000, ge=0, le=1_000_000)
    """Client prefixes of a PoP that are decided on, those with most to gain.
    Source: a bundle's entries are bounded; what is left out gains least."""


class StartOverride(PathWord):
    """An operator's word for how connections to one PoP or client prefix start, until an instant; edges by: bpf.
    Each item: {src: ams, to: sin, initcwnd: 60, connection_rate: 2500000, until: '2026-01-02T03:05:00Z', reason:
    drain}; rates in bytes/s: connection_rate of each, path_rate of all that start at once; ip_version: 4 or 6 narrows
    it to one; initcwnd: null keeps the kernel's default."""

    # None: the kernel's default, without a rate.
    initcwnd: Annotated[int, Field(ge=KERNEL_DEFAULT, le=1000)] | None
    connection_rate: Annotated[int, Field(ge=1, le=MAX_RATE)] | None = None
    path_rate: Annotated[int, Field(ge=1, le=MAX_RATE)] | None = None


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    law, most = policy.start, ("enforce", "max_trial_permille")
    yield from document.not_above(
        ("start", "trial_permille"), law.trial_permille, most, policy.enforce.max_trial_permille
    )
    yield from contradicting(document, "start_overrides", policy.start_overrides)
    for index, override in enumerate(policy.start_overrides):
        if override.initcwnd is not None and override.initcwnd > law.cmax:
            message = f"is {override.initcwnd}, above start.cmax {law.cmax}"
            yield document.problem(("start_overrides", index, "initcwnd"), message, "lower it, or raise cmax")
        if override.initcwnd is None and (override.connection_rate or override.path_rate):
            message = "has a rate beside initcwnd: null, which keeps the kernel's default"
            yield document.problem(("start_overrides", index), message, "give a window, or no rate")
    # For edges that pace, windows of pairs are starts.
    for index, pair in enumerate(policy.overrides if policy.paces(0) else ()):
        window = pair.initcwnd
        if window is not None and pair.edges is None and not KERNEL_DEFAULT <= window <= law.cmax:
            message = f"is {window}, and edges by bpf take the kernel's {KERNEL_DEFAULT} to start.cmax = {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a window within them, or null")
