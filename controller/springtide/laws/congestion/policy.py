"""Policy of congestion control: its tunables, its damping, its overrides, and which of them contradict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from springtide.document import Document
from springtide.errors import Problem
from springtide.laws.damping import DampingPolicy
from springtide.override import Word
from springtide.section import MAX_HISTORY_S, MAX_OBJECT_BYTES, MAX_TTL_S, ClientPrefix, Section, tunable


class CongestionPolicy(Section):
    """BBR or the kernel's default per PoP and client prefix (the selective-BBR article)."""

    window_rounds: int = tunable(
        72,
        "Rounds over which duty cycle and flap rate are counted, the present one included.",
        source="the article looks at the last hours: six of them in five-minute rounds",
        ge=2,
        le=128,
    )
    low_share: float = tunable(
        0.2,
        "Share of a PoP's prefixes, by delivery rate, that are low in a round.",
        source="the article: the lower 20th percentile",
        ge=0.01,
        le=0.5,
    )
    min_prefixes: int = tunable(
        10,
        "Prefixes that a PoP must show in a round before any of them is low.",
        source="of ten, a fifth are two; of fewer, the lowest is only the last",
        ge=2,
        le=1_000_000,
    )
    min_connections: int = tunable(
        3,
        "Connections of a prefix, above min_object_bytes and not limited by the application, that a round must show "
        "before it counts as measured.",
        source="the median of three withstands one odd connection",
        ge=1,
        le=1_000_000,
    )
    min_samples: int = tunable(
        10,
        "Samples of such connections that a round must show before their prefix counts as measured.",
        source="three connections, each polled some times",
        ge=1,
        le=1_000_000,
    )
    min_bytes: int = tunable(
        1_000_000,
        "Bytes that such connections must have delivered in a round before their prefix counts as measured.",
        source="ten objects of the size from which the article uses BBR",
        ge=0,
        le=1_000_000_000,
    )
    min_rounds: int = tunable(
        12,
        "Rounds, all of them low, after which a prefix is chosen; where some are not, it takes more. It is let go by "
        "as much evidence, and with fewer measured rounds than this nothing changes.",
        source="one hour: consistency cannot be seen in less",
        ge=1,
        le=128,
    )
    enter_duty: float = tunable(
        0.5,
        "Share of the newest measured rounds that low ones must exceed, by (1 - enter_duty) x min_rounds, for a prefix "
        "to be chosen.",
        source="the article wants consistently poor prefixes and gives no number: low more often than not",
        ge=0.05,
        le=0.95,
    )
    leave_duty: float = tunable(
        0.2,
        "Share of the newest measured rounds that low ones must fall short of, by the same number, for a chosen prefix "
        "to have recovered.",
        source="low_share: what any prefix is low in; between it and enter_duty nothing changes",
        ge=0.0,
        le=0.95,
    )
    max_flap_rate: float = tunable(
        0.55,
        "Changes between low and not low, as a share of the measured rounds, above which none is chosen.",
        source="the article's flap rate, which it gives no number for; low by chance in half of the rounds changes in "
        "half of them: what changes more often alternates",
        ge=0.0,
        le=1.0,
    )
    bbr_discount: float = tunable(
        2.0,
        (
            "What a delivery rate under BBR is divided by before it is compared: what BBR improved would be low "
            "again without it."
        ),
        source="the article's figure 4: one provider's low-percentile rates about doubled under BBR",
        ge=1.0,
        le=10.0,
    )
    low_rtt_us: int = tunable(
        20_000,
        "Prefixes with a round-trip time below this and few retransmissions are not chosen.",
        source="the article: BBR did worse at low RTT with few retransmissions; it gives no number",
        ge=0,
        le=1_000_000,
    )
    few_retransmits: float = tunable(
        0.005,
        "Share of bytes sent again that counts as few.",
        source="an assumption: half a percent is what a healthy path loses; the article gives no number",
        ge=0.0,
        le=1.0,
    )
    min_object_bytes: int = tunable(
        100_000,
        "BBR is for connections that have delivered this much, and only their rates are ranked; the condition travels "
        "in the bundle.",
        source="the article: little to no benefit below 100 KB",
        ge=0,
        le=MAX_OBJECT_BYTES,
    )
    min_stay_s: int = tunable(
        7200,
        "Seconds for which a chosen prefix stays, unless it is back-office or an operator overrides it.",
        source="a third of the window; also what it takes to see whether BBR helps",
        ge=0,
        le=MAX_TTL_S,
    )
    max_new: int = tunable(
        20,
        "Most prefixes that a PoP chooses in one round.",
        source="the article's figure 2: few new ones in each round, of hundreds chosen",
        ge=1,
        le=100_000,
    )
    max_selected: int = tunable(
        2000,
        "Most prefixes that a PoP has chosen at once.",
        source="the article: hundreds a PoP",
        ge=1,
        le=100_000,
    )
    holdout_share: float = tunable(
        0.1,
        (
            "Share of the chosen prefixes, by a hash of PoP and prefix, that keep the default: what BBR does "
            "is the difference to them."
        ),
        source="choosing the worst guarantees regression to the mean: only a held-out set shows it",
        ge=0.0,
        le=0.5,
    )
    benefit_rounds: int = tunable(
        12,
        (
            "Newest rounds over which a chosen prefix is compared with what it was, from as many rounds after "
            "it was chosen. Until twice as many it is on trial."
        ),
        source="one hour: noise of 30 % a round becomes 9 %; within more hours paths change by more than that",
        ge=1,
        le=128,
    )
    min_held_out: int = tunable(
        20,
        "Held-out prefixes of the PoP, or else of the fleet, that a comparison needs.",
        source="the median of 20 with a spread of 10 % is known to 3 %",
        ge=2,
        le=100_000,
    )
    min_benefit: float = tunable(
        0.0,
        "Growth of the delivery rate beyond the held-out ones' below which the whole interval of a PoP's prefixes, or "
        "of one prefix, must lie to give them back.",
        source=(
            "what is shown not to help is given back; by point estimates simulated prefixes change twice as often, for "
            "less gain (`make calm`)"
        ),
        ge=-0.5,
        le=1.0,
    )
    give_back_hold_s: int = tunable(
        259_200,
        "Seconds for which a prefix that was given back is not chosen again.",
        source="three days: two hours of a trial are then 3 % of the time; after a day they were 8 %",
        ge=0,
        le=7 * MAX_TTL_S,
    )

    @property
    def needed_excess(self) -> float:
        """By how many rounds low ones must exceed `enter_duty` of the newest, or fall short of `leave_duty`: by as many
        as they do when `min_rounds` are low one after the other."""
        return (1.0 - self.enter_duty) * self.min_rounds


class CongestionDampingPolicy(DampingPolicy):
    """Flap damping of chosen prefixes (RFC 2439): each choice and each end of one costs 1."""

    half_life_s: int = tunable(
        43_200,
        "Seconds in which the penalty halves.",
        source="twice the duty cycle's window: what has left the window then counts for half",
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


class CongestionOverride(Word):
    """An operator's word for one client prefix at one PoP, until an instant."""

    pop: str
    prefix: ClientPrefix
    algorithm: Literal["bbr", "default"]

    @staticmethod
    def commented() -> str:
        """The empty section as the default policy.yaml has it."""
        return f"""\
# {CongestionOverride.__doc__}
# Each item: {{pop: ams, prefix: 192.0.2.0/24, algorithm: bbr, until: '2026-01-02T03:05:00Z', reason: trial}};
# algorithm: default keeps the kernel's.
congestion_overrides: []"""


def contradictions(
    document: Document, law: CongestionPolicy, damping: CongestionDampingPolicy, interval_s: int
) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    if law.leave_duty >= law.enter_duty:
        message = f"{law.leave_duty:g} is not below enter_duty {law.enter_duty:g}"
        yield document.problem(("congestion", "leave_duty"), message, "lower it: what was chosen would leave at once")
    elif (highest := law.leave_duty * law.window_rounds) < law.needed_excess - 1e-9:
        message = f"none low in {law.window_rounds} rounds is {highest:g} too few, not {law.needed_excess:g}"
        yield document.problem(("congestion", "leave_duty"), message, "raise it: what was chosen would never leave")
    for key in ("min_rounds", "benefit_rounds"):
        if getattr(law, key) > law.window_rounds:
            message = f"{getattr(law, key)} rounds cannot lie within window_rounds = {law.window_rounds}"
            yield document.problem(("congestion", key), message, "lower it or widen the window")
    if law.window_rounds * interval_s > MAX_HISTORY_S:
        message = f"{law.window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("congestion", "window_rounds"), message, "shorten the window or the rounds")
    # A prefix that is low for as short as is noticed, and then not for as long, changes this often.
    swing = law.min_rounds * interval_s
    if (what := damping.contradiction(swing)) is not None:
        fix = "lower suppress_above, or raise half_life_s or max_suppress_s"
        yield document.problem(("congestion_damping",), what, fix)
