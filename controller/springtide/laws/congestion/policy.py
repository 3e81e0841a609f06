"""Policy of congestion control: its tunables, its damping, its overrides, and which of them contradict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from springtide.document import Document
from springtide.errors import Problem
from springtide.laws.damping import FIX, DampingPolicy
from springtide.override import Word
from springtide.section import MAX_HISTORY_S, MAX_OBJECT_BYTES, MAX_TTL_S, ClientPrefix, Section

if TYPE_CHECKING:
    from springtide.policy import Policy


class CongestionPolicy(Section):
    """BBR or the kernel's default per PoP and client prefix (the selective-BBR article)."""

    window_rounds: int = Field(default=72, ge=2, le=128)
    """Rounds over which duty cycle and flap rate are counted, the present one included.
    Source: the article looks at the last hours: six of them in five-minute rounds."""
    low_share: float = Field(default=0.2, ge=0.01, le=0.5)
    """Share of a PoP's prefixes, by delivery rate, that are low in a round.
    Source: the article: the lower 20th percentile."""
    min_prefixes: int = Field(default=10, ge=2, le=1_000_000)
    """Prefixes that a PoP must show in a round before any of them is low.
    Source: of ten, a fifth are two; of fewer, the lowest is only the last."""
    min_connections: int = Field(default=3, ge=1, le=1_000_000)
    """Connections of a prefix, above min_object_bytes and not limited by the application, that a round must show before
    it counts as measured.
    Source: the median of three withstands one odd connection."""
    min_samples: int = Field(default=10, ge=1, le=1_000_000)
    """Samples of such connections that a round must show before their prefix counts as measured.
    Source: three connections, each polled some times."""
    min_bytes: int = Field(default=1_000_000, ge=0, le=1_000_000_000)
    """Bytes that such connections must have delivered in a round before their prefix counts as measured.
    Source: ten objects of the size from which the article uses BBR."""
    min_rounds: int = Field(default=12, ge=1, le=128)
    """Rounds, all of them low, after which a prefix is chosen; where some are not, it takes more. It is let go by as
    much evidence, and with fewer measured rounds than this nothing changes.
    Source: one hour: consistency cannot be seen in less."""
    enter_duty: float = Field(default=0.5, ge=0.05, le=0.95)
    """Share of the newest measured rounds that low ones must exceed, by (1 - enter_duty) x min_rounds, for a prefix to
    be chosen.
    Source: the article wants consistently poor prefixes and gives no number: low more often than not."""
    leave_duty: float = Field(default=0.2, ge=0.0, le=0.95)
    """Share of the newest measured rounds that low ones must fall short of, by the same number, for a chosen prefix to
    have recovered.
    Source: low_share: what any prefix is low in; between it and enter_duty nothing changes."""
    max_flap_rate: float = Field(default=0.55, ge=0.0, le=1.0)
    """Changes between low and not low, as a share of the measured rounds, above which none is chosen.
    Source: the article's flap rate, which it gives no number for; low by chance in half of the rounds changes in half
    of them: what changes more often alternates."""
    bbr_discount: float = Field(default=2.0, ge=1.0, le=10.0)
    """Divisor of a delivery rate under BBR before it is compared: what BBR improved would be low again without BBR.
    Source: the article's figure 4: one provider's low-percentile rates about doubled under BBR."""
    low_rtt_us: int = Field(default=20_000, ge=0, le=1_000_000)
    """Prefixes with a round-trip time below this and few retransmissions are not chosen.
    Source: the article: BBR did worse at low RTT with few retransmissions; it gives no number."""
    few_retransmits: float = Field(default=0.005, ge=0.0, le=1.0)
    """Share of bytes sent again that counts as few.
    Source: an assumption: half a percent is what a healthy path loses; the article gives no number."""
    min_object_bytes: int = Field(default=100_000, ge=0, le=MAX_OBJECT_BYTES)
    """BBR is for connections that have delivered this much, and only their rates are ranked; the condition travels in
    the bundle.
    Source: the article: little to no benefit below 100 KB."""
    min_stay_s: int = Field(default=7200, ge=0, le=MAX_TTL_S)
    """Seconds for which a chosen prefix stays, unless it is back-office or an operator overrides it.
    Source: a third of the window; also what it takes to see whether BBR helps."""
    max_new: int = Field(default=20, ge=1, le=100_000)
    """Most prefixes that a PoP chooses in one round.
    Source: the article's figure 2: few new ones in each round, of hundreds chosen."""
    max_selected: int = Field(default=2000, ge=1, le=100_000)
    """Most prefixes that a PoP has chosen at once.
    Source: the article: hundreds a PoP."""
    holdout_share: float = Field(default=0.1, ge=0.0, le=0.5)
    """Share of the chosen prefixes, by a hash of PoP and prefix, that keep the default: what BBR does is the difference
    to them.
    Source: choosing the worst guarantees regression to the mean: only a held-out set shows it."""
    benefit_rounds: int = Field(default=12, ge=1, le=128)
    """Newest rounds over which a chosen prefix is compared with what it was, from as many rounds after it was chosen.
    Until twice as many it is on trial.
    Source: one hour: noise of 30 % a round becomes 9 %; within more hours paths change by more than that."""
    min_held_out: int = Field(default=20, ge=2, le=100_000)
    """Held-out prefixes of the PoP, or else of the fleet, that a comparison needs.
    Source: the median of 20 with a spread of 10 % is known to 3 %."""
    min_benefit: float = Field(default=0.0, ge=-0.5, le=1.0)
    """Growth of the delivery rate beyond the held-out ones' below which the whole interval of a PoP's prefixes, or of
    one prefix, must lie to give them back.
    Source: what is shown not to help is given back; by point estimates simulated prefixes change twice as often, for
    less gain (`make calm`)."""
    give_back_hold_s: int = Field(default=259_200, ge=0, le=7 * MAX_TTL_S)
    """Seconds for which a prefix that was given back is not chosen again.
    Source: three days: two hours of a trial are then 3 % of the time; after a day they were 8 %."""

    @property
    def needed_excess(self) -> float:
        """By how many rounds low ones must exceed `enter_duty` of the newest, or fall short of `leave_duty`: by as many
        as they do when `min_rounds` are low one after the other."""
        return (1.0 - self.enter_duty) * self.min_rounds


class CongestionDampingPolicy(DampingPolicy):
    """Flap damping of chosen prefixes (RFC 2439): each choice and each end of one costs 1."""

    half_life_s: int = Field(default=43_200, ge=5, le=MAX_TTL_S)
    """Seconds in which the penalty halves.
    Source: twice the duty cycle's window: what has left the window then counts for half."""
    suppress_above: float = Field(default=2.0, ge=0.5, le=100.0)
    """Penalty above which a prefix is not chosen.
    Source: chosen, let go, chosen again as fast as the duty cycle allows gives 2.3: it can fire."""
    max_suppress_s: int = Field(default=86_400, ge=5, le=MAX_TTL_S)
    """Longest that a prefix is not chosen after its last change, seconds.
    Source: a day, as after giving back."""


class CongestionOverride(Word):
    """An operator's word for one client prefix at one PoP, until an instant.
    Each item: {pop: ams, prefix: 192.0.2.0/24, algorithm: bbr, until: '2026-01-02T03:05:00Z', reason: trial};
    algorithm: default keeps the kernel's."""

    pop: str
    prefix: ClientPrefix
    algorithm: Literal["bbr", "default"]


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys; reported at the key that the file has."""
    law, interval_s = policy.congestion, policy.round.interval_s
    window = ("congestion", "window_rounds")
    if law.leave_duty >= law.enter_duty:
        message = f"{law.leave_duty:g} is not below enter_duty {law.enter_duty:g}"
        yield document.problem(("congestion", "leave_duty"), message, "lower it: what was chosen would leave at once")
    elif (highest := law.leave_duty * law.window_rounds) < law.needed_excess - 1e-9:
        message = f"none low in {law.window_rounds} rounds is {highest:g} too few, not {law.needed_excess:g}"
        yield document.problem(("congestion", "leave_duty"), message, "raise it: what was chosen would never leave")
    for key in ("min_rounds", "benefit_rounds"):
        yield from document.not_above(("congestion", key), getattr(law, key), window, law.window_rounds)
    if law.window_rounds * interval_s > MAX_HISTORY_S:
        message = f"{law.window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(window, message, "shorten the window or the rounds")
    # A prefix that is low for as short as is noticed, and then not for as long, changes this often.
    if (what := policy.congestion_damping.contradiction(law.min_rounds * interval_s)) is not None:
        yield document.problem(("congestion_damping",), what, FIX)
