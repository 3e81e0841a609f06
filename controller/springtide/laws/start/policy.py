"""Policy of starts: its tunables, its overrides, and which of them contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from springtide._core import KERNEL_DEFAULT, MAX_RATE
from springtide.document import Document
from springtide.errors import Problem
from springtide.laws.initcwnd.policy import Override
from springtide.override import PathWord
from springtide.override import contradictions as contradicting
from springtide.section import MAX_TTL_S, Section, tunable


class StartPolicy(Section):
    """How fast and how wide connections start, per ordered pair of PoPs and per client prefix; for edges by: bpf."""

    careful: bool = tunable(
        False,
        "Half of the rate and of the window, and only while the round trip is within a half and ten times of the one "
        "at which they were learnt.",
        source="RFC 9959 (Careful Resume)",
    )
    share_quantile: float = tunable(
        0.5,
        "Quantile of single connections' delivery rates that counts as a connection's share of the path.",
        source="beside four bulk flows an equal share was safe where the path's rate was not; a quarter gives away "
        "more of the attainable gain, and harms no less (`make calm`)",
        ge=0.01,
        le=0.9,
    )
    path_quantile: float = tunable(
        0.9,
        "Quantile over short times of what a unit's connections were delivered together that counts as the path's.",
        source="what was delivered was there; the last tenth are bursts and clocks",
        ge=0.1,
        le=1.0,
    )
    min_connections: int = tunable(
        3,
        "Connections that must have met the path, decayed as history_weight says, before their share counts.",
        source="of two the middle is anything between them; four give away half a point of the gain (`make calm`)",
        ge=1,
        le=1_000_000,
    )
    history_weight: float = tunable(
        0.8,
        "What the evidence of the rounds before weighs, each time that there is new evidence.",
        source="as initcwnd.history_weight",
        ge=0.0,
        le=0.99,
    )
    collapse: float = tunable(
        0.5,
        "A round's share at or below this part of what is in use is followed at once, and history forgotten.",
        source="single rates differ by a quarter: with 0.6 three connections fall by chance more often (`make calm`)",
        ge=0.1,
        le=1.0,
    )
    pace_gain: float = tunable(
        0.95,
        "Start rates as a part of what was proved.",
        source="acknowledgements, headers and what else is on the path; so every path of the lab was within a few "
        "percent of its limit",
        ge=0.1,
        le=1.0,
    )
    headroom: float = tunable(
        1.25,
        "Largest window as a multiple of what the path's rate carries in its lowest round trip.",
        source="a window above rate x round trip costs hundreds of retransmissions on objects of 1 MB",
        ge=0.5,
        le=4.0,
    )
    cmax: int = tunable(
        400,
        "Largest window that is ever set, segments.",
        source="400 at the path's rate reached the limit on every path of the lab; 100 kB are 70",
        ge=KERNEL_DEFAULT,
        le=1000,
    )
    ttl_s: int = tunable(
        3600,
        "Seconds after its last evidence at which a value expires and the kernel's default returns.",
        source="as initcwnd.ttl_s",
        ge=5,
        le=MAX_TTL_S,
    )
    hysteresis: float = tunable(
        0.25,
        "Smallest change of a rate or window that is published or tried, as a share of the one in use.",
        source="a fifth changes a quarter more often at the same gain (`make calm`); 100 kB at a rate that is a fifth "
        "too low take a few ms more",
        ge=0.0,
        le=0.9,
    )
    duty_rounds: int = tunable(
        2,
        "Rounds with evidence before a unit is first given values, on trial.",
        source="a trial is its own caution; initcwnd waits for three",
        ge=1,
        le=288,
    )
    trial_permille: int = tunable(
        100,
        "Of a thousand connections at least those that are given the values on trial; of few connections more, so that "
        "trial_flights show soon, at most enforce.max_trial_permille.",
        source="a tenth pays for knowing; where it shows nothing for hours, gain is lost: 84 % of what is attainable "
        "with a tenth, 90 % with up to a half (`make calm`)",
        ge=1,
        le=1000,
    )
    trial_flights: int = tunable(
        20,
        "First flights of more than ten segments that must have been on trial before it is judged well; half as many "
        "where none of them lost anything.",
        source="as initcwnd.loss_min_connections; the half gives two points of the attainable gain (`make calm`)",
        ge=1,
        le=1_000_000,
    )
    trial_rounds: int = tunable(
        1,
        "Rounds that a trial must have lasted before it is judged well. Harm counts at once.",
        source="its records name the round they started by: none of another decision is counted",
        ge=1,
        le=288,
    )
    step: float = tunable(
        1.5,
        "Factor of a step beyond what is in use, where nothing met the path yet.",
        source="slow start doubles; a step that is too far is on trial only",
        ge=1.05,
        le=4.0,
    )
    step_gain: float = tunable(
        0.02,
        "What a step must save of the time of 100 kB (or 50) to be promoted.",
        source="below it, a step buys risk with milliseconds",
        ge=0.0,
        le=0.9,
    )
    slower: float = tunable(
        0.1,
        "A trial whose 100 kB (or 50) take this much longer than the others' is not promoted.",
        source="medians of twenty flights differ by a few percent by themselves",
        ge=0.0,
        le=1.0,
    )
    loss_bound: float = tunable(
        0.12,
        "As initcwnd.loss_bound, of first flights: the share of those that may lose anything where they start with 100 "
        "segments.",
        source="as initcwnd.loss_bound",
        ge=0.0,
        le=1.0,
    )
    loss_segments: float = tunable(
        0.02,
        "Share of first flights' segments that may be sent again without harm, however many connections lose one.",
        source="four that start together on a queue of 32 lose one to four of 280, the kernel's default 41 "
        "(`make calm`); a burst that does not fit loses half",
        ge=0.0,
        le=1.0,
    )
    loss_default_bound: float = tunable(
        0.2,
        "Share of default starts that may lose something; up to here it is not held against what is set.",
        source="random loss of 2 % a segment touches 18 % of connections of ten segments; pacing adds none",
        ge=0.0,
        le=1.0,
    )
    cut: float = tunable(
        0.8,
        "What is left of the rate and window in use after harm.",
        source="what is paced exceeds the path by little when it first does harm; CUBIC's 0.7 (RFC 9438) gives away a "
        "point of the attainable gain (`make calm`)",
        ge=0.1,
        le=0.9,
    )
    hold_s: int = tunable(
        900,
        "Seconds after harm, or after a trial in vain, in which nothing above the cut is tried; doubled each time.",
        source="three rounds: the retry is on trial, where initcwnd's is on all",
        ge=0,
        le=MAX_TTL_S,
    )
    group_units: int = tunable(
        3,
        "Units of a group that must have evidence of their own before others borrow from it.",
        source="of two, one is half of the estimate",
        ge=2,
        le=1000,
    )
    group_quantile: float = tunable(
        0.25,
        "Quantile of the group's shares that a unit without evidence of its own may be given at most.",
        source="three of four of its neighbours carry more",
        ge=0.0,
        le=0.9,
    )
    max_prefixes: int = tunable(
        5000,
        "Client prefixes of a PoP that are decided on, those with most to gain.",
        source="a bundle's entries are bounded; what is left out gains least",
        ge=0,
        le=1_000_000,
    )


class StartOverride(PathWord):
    """An operator's word for how connections to one PoP or client prefix start, until an instant; edges by: bpf."""

    # None: the kernel's default, without a rate.
    initcwnd: Annotated[int, Field(ge=KERNEL_DEFAULT, le=1000)] | None
    connection_rate: Annotated[int, Field(ge=1, le=MAX_RATE)] | None = None
    path_rate: Annotated[int, Field(ge=1, le=MAX_RATE)] | None = None

    @staticmethod
    def commented() -> str:
        """The empty section as the default policy.yaml has it."""
        return f"""\
# {StartOverride.__doc__}
# Each item: {{src: ams, to: sin, initcwnd: 60, connection_rate: 2500000, until: '2026-01-02T03:05:00Z', reason:
# drain}}; rates in bytes/s: connection_rate of each, path_rate of all that start at once; ip_version: 4 or 6 narrows it
# to one; initcwnd: null keeps the kernel's default.
start_overrides: []"""


def contradictions(
    document: Document,
    law: StartPolicy,
    overrides: Sequence[StartOverride],
    of_pairs: Sequence[Override],
    max_trial_permille: int,
    paced: bool,
) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has. `paced`: some edges enforce by bpf, for which windows
    of pairs are starts."""
    trial = ("start", "trial_permille")
    most = ("enforce", "max_trial_permille")
    yield from document.not_above(trial, law.trial_permille, most, max_trial_permille)
    yield from contradicting(document, "start_overrides", overrides)
    for index, override in enumerate(overrides):
        if override.initcwnd is not None and override.initcwnd > law.cmax:
            message = f"is {override.initcwnd}, above start.cmax {law.cmax}"
            yield document.problem(("start_overrides", index, "initcwnd"), message, "lower it, or raise cmax")
        if override.initcwnd is None and (override.connection_rate or override.path_rate):
            message = "has a rate beside initcwnd: null, which keeps the kernel's default"
            yield document.problem(("start_overrides", index), message, "give a window, or no rate")
    for index, pair in enumerate(of_pairs if paced else ()):
        window = pair.initcwnd
        if window is not None and pair.edges is None and not KERNEL_DEFAULT <= window <= law.cmax:
            message = f"is {window}, and edges by bpf take the kernel's {KERNEL_DEFAULT} to start.cmax = {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a window within them, or null")
