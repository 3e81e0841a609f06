"""policy.yaml: every tunable, each with its default, its range and where the default comes from."""

from __future__ import annotations

import hashlib
import json
import math
import textwrap
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from springtide import instants
from springtide.document import Document, load, validate
from springtide.errors import InputError, Problem

# A decision older than this is dead under any policy: it bounds how far back the controller looks for the last one.
MAX_TTL_S = 86_400
# How far back decisions are read at most.
MAX_HISTORY_S = 2 * MAX_TTL_S
# How far clients are told apart, by IP version (the selective-BBR article).
CLIENT_PREFIX_LENGTH = {4: 24, 6: 56}


def _from(source: str) -> dict[str, JsonValue]:
    return {"source": source}


def _instant(text: str) -> str:
    try:
        instants.parse(text)
    except ValueError:
        what, fix = f"{text!r} is not an instant", "write it in UTC and quoted, like '2026-01-02T03:05:00Z'"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix}) from None
    return text


def _client_prefix(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen != CLIENT_PREFIX_LENGTH[network.version]:
        what, fix = f"{text!r} is no client prefix", "write an IPv4 /24 or an IPv6 /56, like 192.0.2.0/24"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix}) from None
    return str(network)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoundPolicy(_Section):
    """When decisions are made."""

    interval_s: int = Field(
        default=300,
        description="Seconds between rounds; a round T covers [T - interval_s, T).",
        json_schema_extra=_from(
            "the selective-BBR article decides every five minutes; Riptide III-B updates every i_u seconds on each host"
        ),
        ge=5,
        le=3600,
    )
    lateness_s: int = Field(
        default=60,
        description="Seconds after a round's end for which its samples are waited for; what is later is counted.",
        json_schema_extra=_from(
            "collectors hand over every few seconds, and a broker's restart takes some tens of them; a decision that "
            "waits longer than a minute is late itself"
        ),
        ge=0,
        le=3600,
    )


class CompletenessPolicy(_Section):
    """How much of a round must have arrived for a PoP's decisions to follow it."""

    min_hosts: float = Field(
        default=0.6,
        description="Share of a PoP's hosts, of those heard in the last memory_rounds, that the round must have.",
        json_schema_extra=_from("two edges of three still speak for their PoP; one of two, or half of many, do not"),
        ge=0.0,
        le=1.0,
    )
    min_rows: float = Field(
        default=0.6,
        description="Share of the rows expected of a PoP's hosts that must have arrived; gaps between polls count.",
        json_schema_extra=_from("as for hosts: what is missing may be what is slow"),
        ge=0.0,
        le=1.0,
    )
    memory_rounds: int = Field(
        default=6,
        description="Rounds for which a host that fell silent is still expected.",
        json_schema_extra=_from("half an hour: a host that was taken out must not freeze its PoP until values expire"),
        ge=2,
        le=288,
    )


class InitcwndPolicy(_Section):
    """The initial congestion window per ordered pair of PoPs and IP version (Riptide III-B)."""

    combiner: Literal["mean", "max", "traffic", "p10", "p25", "p50", "p75", "p90"] = Field(
        default="mean",
        description="How the earned windows of a round become one observed value; traffic weighs "
        "each by its bytes, p50 is the median.",
        json_schema_extra=_from("Riptide III-B, Algorithm 1 and the alternatives named there"),
    )
    history_weight: float = Field(
        default=0.8,
        description="Weight of the previous value when the newest one is higher: a rise is followed slowly.",
        json_schema_extra=_from(
            "Riptide III-B calls it alpha in the text (weight of history), Table I defines alpha the other way; "
            "no value is published: with 0.8 simulated pairs change least at nearly the same gain (`make calm`)"
        ),
        ge=0.0,
        le=0.99,
    )
    falling_history_weight: float = Field(
        default=0.5,
        description="Weight of the previous value when the newest one is lower, but no collapse.",
        json_schema_extra=_from("as for rises: following every small dip at once would sit below the path's mean"),
        ge=0.0,
        le=0.99,
    )
    collapse: float = Field(
        default=0.6,
        description="A newest value at or below this share of the previous one is followed at once.",
        json_schema_extra=_from("a window that is too large hurts in the very next round; one too small only wastes"),
        ge=0.0,
        le=1.0,
    )
    cmin: int = Field(
        default=10,
        description="Smallest window that is ever set, segments.",
        json_schema_extra=_from("Linux's own default, RFC 6928"),
        ge=1,
        le=1000,
    )
    cmax: int = Field(
        default=100,
        description="Largest window that is ever set, segments.",
        json_schema_extra=_from("Riptide IV: the knee of its results is at 100; beyond it there was no further gain"),
        ge=1,
        le=1000,
    )
    min_connections: int = Field(
        default=2,
        description="Connections that must have earned their window before a round's observation counts.",
        json_schema_extra=_from(
            "one connection is an anecdote; asking for three gives up a tenth of the attainable gain (`make calm`)"
        ),
        ge=1,
        le=1_000_000,
    )
    ttl_s: int = Field(
        default=3600,
        description="Seconds after its last evidence at which a value dies and the kernel's default returns.",
        json_schema_extra=_from(
            "Riptide III-B: 90 s at one update a second, the blog post 600 s; ours is twelve rounds for thin pairs "
            "(`make calm`): the loss guard watches a held value too"
        ),
        ge=5,
        le=MAX_TTL_S,
    )
    careful: bool = Field(
        default=False,
        description="Take half of what was learnt.",
        json_schema_extra=_from("RFC 9959 (Careful Resume) jumps to half of the saved window"),
    )
    receiver_cap: bool = Field(
        default=True,
        description="Never start with more than the median peer's advertised window holds.",
        json_schema_extra=_from(
            "Riptide III-C: what exceeds the receiver's window is wasted; a Linux peer by default shows 64 KB"
        ),
    )
    loss_bound: float = Field(
        default=0.03,
        description="Share of young connections' bytes sent again above which the window is cut; 1 turns it off. "
        "Young: closed after at most two windows were sent, the ones that an initial window can have hurt.",
        json_schema_extra=_from(
            "Riptide IV-C reports no visible change of retransmissions; 3 % is well above a healthy path's 0.1 to 1 %"
        ),
        ge=0.0,
        le=1.0,
    )
    loss_cut: float = Field(
        default=0.7,
        description="What a cut leaves of the window.",
        json_schema_extra=_from(
            "CUBIC's own reduction (RFC 9438 section 4.6: beta 0.7); it cuts again in the next round if need be"
        ),
        ge=0.1,
        le=0.9,
    )
    loss_min_connections: int = Field(
        default=20,
        description="Young connections that a round must show before their loss counts.",
        json_schema_extra=_from("of 20 connections of 10 segments one lost segment is 0.5 %: a sixth of the bound"),
        ge=1,
        le=1_000_000,
    )
    loss_hold_s: int = Field(
        default=1800,
        description="Seconds after a cut in which the window does not rise.",
        json_schema_extra=_from("six rounds: the cut is seen to help before it is tried again"),
        ge=0,
        le=MAX_TTL_S,
    )
    hysteresis: float = Field(
        default=0.2,
        description="Smallest change that is published, as a share of the published window (at least one segment).",
        json_schema_extra=_from(
            "a fifth: simulated pairs change less than half as often as with a tenth, at the same gain (`make calm`)"
        ),
        ge=0.0,
        le=0.9,
    )
    duty_rounds: int = Field(
        default=3,
        description="Rounds with sufficient evidence, among the last duty_window_rounds, before a pair is first given "
        "a window.",
        json_schema_extra=_from("the selective-BBR article acts on what recurs (its duty cycle), not on one round"),
        ge=1,
        le=288,
    )
    duty_window_rounds: int = Field(
        default=12,
        description="How many rounds back duty_rounds counts, the present one included.",
        json_schema_extra=_from("one hour of five-minute rounds"),
        ge=1,
        le=288,
    )


class DampingPolicy(_Section):
    """Flap damping of published windows (RFC 2439): each change costs 1, the cost halves every half_life_s."""

    half_life_s: int = Field(
        default=1800,
        description="Seconds in which the penalty halves.",
        json_schema_extra=_from(
            "RFC 2439 section 4.2 takes 15 minutes for routes that flap in seconds; ours is six rounds"
        ),
        ge=5,
        le=MAX_TTL_S,
    )
    suppress_above: float = Field(
        default=2.5,
        description="Penalty above which rises are held back. Falls never are.",
        json_schema_extra=_from(
            "the third change in a row; a change in every round would reach 3.0, so it can fire (RFC 7196's lesson)"
        ),
        ge=0.5,
        le=100.0,
    )
    reuse_below: float = Field(
        default=0.75,
        description="Penalty below which rises are let through again.",
        json_schema_extra=_from("RFC 2439 section 4.2: three quarters of one change"),
        ge=0.1,
        le=100.0,
    )
    max_suppress_s: int = Field(
        default=3600,
        description="Longest that a rise is held back after the last change, seconds.",
        json_schema_extra=_from("RFC 2439 section 4.2: 60 minutes"),
        ge=5,
        le=MAX_TTL_S,
    )

    @property
    def ceiling(self) -> float:
        """The penalty that decays to `reuse_below` in `max_suppress_s`: none is ever higher (RFC 2439 section 4.2)."""
        return float(self.reuse_below * 2.0 ** min(self.max_suppress_s / self.half_life_s, 50.0))

    def contradiction(self, interval_s: int) -> str | None:
        """Why these limits would never hold anything back, or would not let go (RFC 7196 found such in use).

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


class CongestionPolicy(_Section):
    """BBR or the kernel's default per PoP and client prefix (the selective-BBR article)."""

    window_rounds: int = Field(
        default=72,
        description="Rounds over which duty cycle and flap rate are counted, the present one included.",
        json_schema_extra=_from("the article looks at the last hours: six of them in five-minute rounds"),
        ge=2,
        le=128,
    )
    low_share: float = Field(
        default=0.2,
        description="Share of a PoP's prefixes, by delivery rate, that are low in a round.",
        json_schema_extra=_from("the article: the lower 20th percentile"),
        ge=0.01,
        le=0.5,
    )
    min_prefixes: int = Field(
        default=10,
        description="Prefixes that a PoP must show in a round before any of them is low.",
        json_schema_extra=_from("of ten, a fifth are two; of fewer, the lowest is only the last"),
        ge=2,
        le=1_000_000,
    )
    min_connections: int = Field(
        default=3,
        description="Connections of a prefix that a round must show before it counts as measured.",
        json_schema_extra=_from("the median of three withstands one odd connection"),
        ge=1,
        le=1_000_000,
    )
    min_samples: int = Field(
        default=10,
        description="Samples of a prefix that a round must show before it counts as measured.",
        json_schema_extra=_from("three connections, each polled some times"),
        ge=1,
        le=1_000_000,
    )
    min_bytes: int = Field(
        default=1_000_000,
        description="Bytes delivered to a prefix in a round before it counts as measured.",
        json_schema_extra=_from("ten objects of the size from which the article uses BBR"),
        ge=0,
        le=1_000_000_000,
    )
    min_rounds: int = Field(
        default=12,
        description="Measured rounds of the window before a prefix is chosen, or let go as recovered.",
        json_schema_extra=_from("one hour: consistency cannot be seen in less"),
        ge=1,
        le=128,
    )
    enter_duty: float = Field(
        default=0.8,
        description="Share of the measured rounds in which a prefix must have been low to be chosen.",
        json_schema_extra=_from(
            "the article wants consistently poor prefixes and gives no number: low in four rounds of five"
        ),
        ge=0.05,
        le=1.0,
    )
    leave_duty: float = Field(
        default=0.4,
        description="Share of low rounds at which a chosen prefix has recovered.",
        json_schema_extra=_from("half of enter_duty: between the two nothing changes"),
        ge=0.0,
        le=0.95,
    )
    max_flap_rate: float = Field(
        default=0.25,
        description="Changes between low and not low, as a share of the measured rounds, above which none is chosen.",
        json_schema_extra=_from(
            "the article's flap rate, which it gives no number for; low by chance in 80 % of rounds changes in 32 %"
        ),
        ge=0.0,
        le=1.0,
    )
    bbr_discount: float = Field(
        default=2.0,
        description="What a delivery rate under BBR is divided by before it is compared: what BBR cured would be low "
        "again without it.",
        json_schema_extra=_from("the article's figure 4: low-percentile rates about doubled under BBR"),
        ge=1.0,
        le=10.0,
    )
    low_rtt_us: int = Field(
        default=20_000,
        description="Prefixes with a round-trip time below this and few retransmissions are not chosen.",
        json_schema_extra=_from("the article: BBR did worse at low RTT with few retransmissions; it gives no number"),
        ge=0,
        le=1_000_000,
    )
    few_retransmits: float = Field(
        default=0.005,
        description="Share of bytes sent again that counts as few.",
        json_schema_extra=_from("healthy paths lose 0.1 to 1 %"),
        ge=0.0,
        le=1.0,
    )
    min_object_bytes: int = Field(
        default=100_000,
        description="BBR is for connections that have delivered this much; the condition travels in the bundle.",
        json_schema_extra=_from("the article: no benefit below 100 KB"),
        ge=0,
        le=1_000_000_000,
    )
    min_stay_s: int = Field(
        default=7200,
        description="Seconds for which a chosen prefix stays, unless it is back-office or an operator says otherwise.",
        json_schema_extra=_from("a third of the window; also what it takes to see whether BBR helps"),
        ge=0,
        le=MAX_TTL_S,
    )
    max_new: int = Field(
        default=20,
        description="Most prefixes that a PoP chooses in one round.",
        json_schema_extra=_from("the article's figure 2: few new ones in each round, of hundreds chosen"),
        ge=1,
        le=100_000,
    )
    max_selected: int = Field(
        default=2000,
        description="Most prefixes that a PoP has chosen at once.",
        json_schema_extra=_from("the article: hundreds a PoP"),
        ge=1,
        le=100_000,
    )
    holdout_share: float = Field(
        default=0.1,
        description="Share of the chosen prefixes, by a hash of PoP and prefix, that keep the default: what BBR does "
        "is the difference to them.",
        json_schema_extra=_from("choosing the worst guarantees regression to the mean: only a held-out set shows it"),
        ge=0.0,
        le=0.5,
    )
    benefit_rounds: int = Field(
        default=24,
        description="Newest rounds over which a chosen prefix is compared with what it was, from as many rounds after "
        "it was chosen.",
        json_schema_extra=_from("two hours, as min_stay_s: noise of 30 % a round becomes 6 %"),
        ge=1,
        le=128,
    )
    min_held_out: int = Field(
        default=20,
        description="Held-out prefixes of the PoP, or else of the fleet, that a comparison needs.",
        json_schema_extra=_from("the median of 20 with a spread of 10 % is known to 3 %"),
        ge=2,
        le=100_000,
    )
    min_benefit: float = Field(
        default=0.0,
        description="Growth of the delivery rate beyond the held-out ones' at or below which a prefix is given back.",
        json_schema_extra=_from("what is not shown to help is given back"),
        ge=-0.5,
        le=1.0,
    )
    give_back_hold_s: int = Field(
        default=86_400,
        description="Seconds for which a prefix that was given back is not chosen again.",
        json_schema_extra=_from("a day: the same hour of the next day is another trial"),
        ge=0,
        le=MAX_TTL_S,
    )


class CongestionDampingPolicy(DampingPolicy):
    """Flap damping of chosen prefixes (RFC 2439): each choice and each end of one costs 1."""

    half_life_s: int = Field(
        default=43_200,
        description="Seconds in which the penalty halves.",
        json_schema_extra=_from("twice the duty cycle's window: what has left the window still counts for half"),
        ge=5,
        le=MAX_TTL_S,
    )
    suppress_above: float = Field(
        default=2.0,
        description="Penalty above which a prefix is not chosen.",
        json_schema_extra=_from(
            "chosen, let go, chosen again as fast as the duty cycle allows gives 2.3: it can fire (RFC 7196's lesson)"
        ),
        ge=0.5,
        le=100.0,
    )
    max_suppress_s: int = Field(
        default=86_400,
        description="Longest that a prefix is not chosen after its last change, seconds.",
        json_schema_extra=_from("a day, as after giving back"),
        ge=5,
        le=MAX_TTL_S,
    )


class HoldoutPolicy(_Section):
    """Edges that keep the kernel's default for every destination, so that the benefit is a measured difference."""

    edge_share: float = Field(
        default=0.05,
        description="Share of each PoP's edges that is held out, chosen by a hash of their names. 0 holds none out.",
        json_schema_extra=_from("one edge in twenty pays for knowing; its connections still work as they always did"),
        ge=0.0,
        le=0.5,
    )
    min_edges: int = Field(
        default=5,
        description="A PoP with at least this many edges holds out at least one; a smaller one none.",
        json_schema_extra=_from("with fewer, one edge is more than a fifth of the PoP"),
        ge=2,
        le=1000,
    )


class Override(_Section):
    """An operator's word for one pair of PoPs, until an instant (Riptide III-D: hints of planned load changes)."""

    src: str
    dst: str
    ip_version: Literal[4, 6] | None = None
    initcwnd: Annotated[int, Field(ge=1, le=1000)] | None
    until: Annotated[str, AfterValidator(_instant)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def until_unix_s(self) -> int:
        return instants.parse(self.until)

    def covers(self, ip_version: int, now: int) -> bool:
        return self.ip_version in (None, ip_version) and now < self.until_unix_s


class CongestionOverride(_Section):
    """An operator's word for one client prefix at one PoP, until an instant."""

    pop: str
    prefix: Annotated[str, AfterValidator(_client_prefix)]
    algorithm: Literal["bbr", "default"]
    until: Annotated[str, AfterValidator(_instant)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def until_unix_s(self) -> int:
        return instants.parse(self.until)


class BundlePolicy(_Section):
    """What an edge is given, and for how long."""

    ttl_s: int = Field(
        default=900,
        description="Seconds after its round at which an edge withdraws a bundle on its own.",
        json_schema_extra=_from("three rounds: two pushes may fail before the edges fall back to the kernel's default"),
        ge=5,
        le=MAX_TTL_S,
    )
    max_routes: int = Field(
        default=10_000,
        description="Most routes that one bundle may hold.",
        json_schema_extra=_from("`ip -batch` applies 10,000 routes in 0.25 s"),
        ge=1,
        le=100_000,
    )
    max_bytes: int = Field(
        default=1_000_000,
        description="Largest size of one bundle, bytes.",
        json_schema_extra=_from(
            "10,000 routes of 45 bytes, doubled: what outgrows this is broken (Cloudflare, 18 November 2025)"
        ),
        ge=1000,
        le=16_000_000,
    )
    min_prefix_length_ipv4: int = Field(
        default=16,
        description="Shortest (widest) IPv4 prefix that a bundle may name.",
        json_schema_extra=_from("a PoP draws from a /16 at most; an edge takes nothing wider than a /8"),
        ge=8,
        le=32,
    )
    min_prefix_length_ipv6: int = Field(
        default=32,
        description="Shortest (widest) IPv6 prefix that a bundle may name.",
        json_schema_extra=_from("registries give an operator a /32; an edge takes nothing wider than a /16"),
        ge=16,
        le=128,
    )
    max_changed_share: float = Field(
        default=0.5,
        description="Most of the fleet's routes that one publication may change or withdraw, as a share.",
        json_schema_extra=_from(
            "smoothing and hysteresis move few values a round: half of them moving is a fault upstream"
        ),
        ge=0.0,
        le=1.0,
    )
    max_withdrawn_share: float = Field(
        default=0.3,
        description="Most of the fleet's routes that one publication may withdraw, as a share.",
        json_schema_extra=_from(
            "a region that falls silent is less; more is a collector or a store that lost its rows"
        ),
        ge=0.0,
        le=1.0,
    )
    max_growth: float = Field(
        default=2.0,
        description="Most routes of a publication, as a multiple of what holds on the fleet.",
        json_schema_extra=_from("a fleet does not double within a round: what does is a duplicated or broken input"),
        ge=1.0,
        le=100.0,
    )
    caps_from_routes: int = Field(
        default=20,
        description="Routes on the fleet from which on these three caps hold.",
        json_schema_extra=_from("with fewer, one pair is more than a twentieth, and a fleet that begins must grow"),
        ge=0,
        le=1_000_000,
    )


class GatePolicy(_Section):
    """What lets a rollout go on after each wave, `springtide gate`."""

    min_connections: int = Field(
        default=100,
        description="Fewest connections on changed edges that a verdict rests on.",
        json_schema_extra=_from("with 100, a share of 5 % has a standard error of 2 %"),
        ge=1,
        le=1_000_000,
    )
    max_retransmit_rise: float = Field(
        default=0.01,
        description="Most by which the retransmitted share of bytes may rise, beyond what unchanged edges saw.",
        json_schema_extra=_from("a third of initcwnd.loss_bound: a wave stops before the law itself would cut"),
        ge=0.0,
        le=1.0,
    )
    max_rtt_ratio: float = Field(
        default=1.25,
        description="Most by which the median RTT may grow, as a ratio, beyond what unchanged edges saw.",
        json_schema_extra=_from("a standing queue of a quarter of the path's own delay is one that a user feels"),
        ge=1.0,
        le=100.0,
    )
    max_failed_rise: float = Field(
        default=0.02,
        description="Most by which the share of connections that closed unheard may rise.",
        json_schema_extra=_from("a window cannot make a connect fail, a wrong route does: any clear rise is a fault"),
        ge=0.0,
        le=1.0,
    )
    max_silence_s: int = Field(
        default=60,
        description="Seconds after which a changed edge's collector is not fresh.",
        json_schema_extra=_from(
            "collectors poll every few seconds; spool rotation and delivery take up to half a minute"
        ),
        ge=1,
        le=3600,
    )


class RetentionPolicy(_Section):
    """How long rows are kept; `springtide retention apply` sets it."""

    samples_days: int = Field(
        default=7,
        description="Days of single samples.",
        json_schema_extra=_from("a week shows every day of it beside the day before; the largest table by far"),
        ge=1,
        le=36_500,
    )
    sockets_days: int = Field(
        default=3,
        description="Days of each round's sockets.",
        json_schema_extra=_from("round tables are made of them at once; afterwards they serve close looks only"),
        ge=1,
        le=36_500,
    )
    rounds_days: int = Field(
        default=90,
        description="Days of round tables.",
        json_schema_extra=_from("a quarter: a season of decisions can be replayed and backfilled"),
        ge=1,
        le=36_500,
    )
    hours_days: int = Field(
        default=400,
        description="Days of hours.",
        json_schema_extra=_from("a year and a month: this month beside the same month a year ago"),
        ge=1,
        le=36_500,
    )
    days_days: int = Field(
        default=1830,
        description="Days of days.",
        json_schema_extra=_from("five years: how paths grow"),
        ge=1,
        le=36_500,
    )
    decisions_days: int = Field(
        default=400,
        description="Days of decisions and of the audit.",
        json_schema_extra=_from("as long as the hours that show their effect"),
        ge=1,
        le=36_500,
    )


class Policy(_Section):
    round: RoundPolicy = RoundPolicy()
    completeness: CompletenessPolicy = CompletenessPolicy()
    initcwnd: InitcwndPolicy = InitcwndPolicy()
    damping: DampingPolicy = DampingPolicy()
    holdout: HoldoutPolicy = HoldoutPolicy()
    overrides: list[Override] = []
    congestion: CongestionPolicy = CongestionPolicy()
    congestion_damping: CongestionDampingPolicy = CongestionDampingPolicy()
    congestion_overrides: list[CongestionOverride] = []
    bundle: BundlePolicy = BundlePolicy()
    gate: GatePolicy = GatePolicy()
    retention: RetentionPolicy = RetentionPolicy()

    @property
    def version(self) -> str:
        """First 12 hex digits of the SHA-256 of the effective policy as canonical JSON, defaults included."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def load_policy(path: Path) -> Policy:
    """Raises InputError with every problem of the file."""
    document = load(path)
    policy = validate(document, Policy)
    problems = [
        *_contradictions(document, policy),
        *_congestion_contradictions(document, policy),
        *_wrong_overrides(document, policy),
    ]
    if problems:
        raise InputError(problems)
    return policy


def _contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys; the message stands at the key that the file gives."""
    keep = policy.retention
    rules = [
        (("initcwnd", "cmin"), policy.initcwnd.cmin, ("initcwnd", "cmax"), policy.initcwnd.cmax),
        # An edge may use a value until its bundle expires: a fresh decision must outlive the bundle that carries it.
        (("bundle", "ttl_s"), policy.bundle.ttl_s, ("initcwnd", "ttl_s"), policy.initcwnd.ttl_s),
        # Otherwise every route would vanish before the next round could renew it.
        (("round", "interval_s"), policy.round.interval_s, ("bundle", "ttl_s"), policy.bundle.ttl_s),
        # Each tier is made of the one before it.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "hours_days"), keep.hours_days),
        (("retention", "hours_days"), keep.hours_days, ("retention", "days_days"), keep.days_days),
        # The controller reads its last decisions; so does whoever asks why.
        (("retention", "rounds_days"), keep.rounds_days, ("retention", "decisions_days"), keep.decisions_days),
    ]
    for low_keys, low, high_keys, high in rules:
        if low > high:
            keys = low_keys if low_keys in document.lines else high_keys
            message = f"{'.'.join(low_keys)} = {low} is above {'.'.join(high_keys)} = {high}"
            yield document.problem(keys, message, f"lower {'.'.join(low_keys)} or raise {'.'.join(high_keys)}")
    law = policy.initcwnd
    if law.duty_rounds > law.duty_window_rounds:
        message = f"{law.duty_rounds} rounds cannot lie within duty_window_rounds = {law.duty_window_rounds}"
        yield document.problem(("initcwnd", "duty_rounds"), message, "lower it or widen the window")
    if (law.duty_window_rounds - 1) * policy.round.interval_s > MAX_HISTORY_S:
        message = f"{law.duty_window_rounds} rounds of {policy.round.interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("initcwnd", "duty_window_rounds"), message, "shorten the window or the rounds")
    if (what := policy.damping.contradiction(policy.round.interval_s)) is not None:
        yield document.problem(("damping",), what, "lower suppress_above, or raise half_life_s or max_suppress_s")


def _congestion_contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    law, interval_s = policy.congestion, policy.round.interval_s
    if law.leave_duty >= law.enter_duty:
        message = f"{law.leave_duty:g} is not below enter_duty {law.enter_duty:g}"
        yield document.problem(("congestion", "leave_duty"), message, "lower it: what was chosen would leave at once")
    for key in ("min_rounds", "benefit_rounds"):
        if getattr(law, key) > law.window_rounds:
            message = f"{getattr(law, key)} rounds cannot lie within window_rounds = {law.window_rounds}"
            yield document.problem(("congestion", key), message, "lower it or widen the window")
    if law.window_rounds * interval_s > MAX_HISTORY_S:
        message = f"{law.window_rounds} rounds of {interval_s} s reach back beyond {MAX_HISTORY_S} s"
        yield document.problem(("congestion", "window_rounds"), message, "shorten the window or the rounds")
    # A prefix that is low for as short as is noticed, and then not for as long, changes this often.
    swing = max(1, math.ceil(law.enter_duty * law.window_rounds)) * interval_s
    if (what := policy.congestion_damping.contradiction(swing)) is not None:
        fix = "lower suppress_above, or raise half_life_s or max_suppress_s"
        yield document.problem(("congestion_damping",), what, fix)


def _wrong_overrides(document: Document, policy: Policy) -> Iterator[Problem]:
    law = policy.initcwnd
    for index, override in enumerate(policy.overrides):
        if override.initcwnd is not None and not law.cmin <= override.initcwnd <= law.cmax:
            message = f"is {override.initcwnd}, outside initcwnd.cmin {law.cmin} and cmax {law.cmax}"
            yield document.problem(("overrides", index, "initcwnd"), message, "give a value within them, or widen them")
        if override.src == override.dst:
            yield document.problem(("overrides", index, "dst"), "is also the src", "name two PoPs")


def default_yaml() -> str:
    """The default policy as a commented policy.yaml."""
    lines = ["# Every key is optional; these are the defaults."]
    for section_name, section in Policy.model_fields.items():
        model = section.annotation
        if section_name in _LISTS:
            lines += ["", *_LISTS[section_name]]
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"policy section {section_name} is not a model")
        lines += ["", f"# {model.__doc__}", f"{section_name}:"]
        for name, info in model.model_fields.items():
            for text in (info.description or "", f"Range: {_range(info)}.", f"Source: {_source(info)}."):
                lines += textwrap.wrap(text, width=110, initial_indent="  # ", subsequent_indent="  #   ")
            lines.append(f"  {name}: {json.dumps(info.default)}")
    return "\n".join(lines) + "\n"


_LISTS = {
    "overrides": (
        f"# {Override.__doc__}",
        "# Each item: {src: ams, dst: sin, initcwnd: 20, until: '2026-01-02T03:05:00Z', reason: planned drain};",
        "# ip_version: 4 or 6 narrows it to one; initcwnd: null keeps the kernel's default.",
        "overrides: []",
    ),
    "congestion_overrides": (
        f"# {CongestionOverride.__doc__}",
        "# Each item: {pop: ams, prefix: 192.0.2.0/24, algorithm: bbr, until: '2026-01-02T03:05:00Z', reason: trial};",
        "# algorithm: default keeps the kernel's.",
        "congestion_overrides: []",
    ),
}


def _source(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


def _range(info: FieldInfo) -> str:
    limits = {kind: getattr(item, kind) for item in info.metadata for kind in ("ge", "le") if hasattr(item, kind)}
    if limits:
        return f"{limits['ge']} to {limits['le']}"
    return ", ".join(str(choice) for choice in getattr(info.annotation, "__args__", ()))
