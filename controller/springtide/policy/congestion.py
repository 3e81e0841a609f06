"""The law of congestion control."""

from __future__ import annotations

from springtide.policy.limits import MAX_OBJECT_BYTES, MAX_TTL_S
from springtide.policy.section import Section, tunable


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
        "Measured rounds of the window before a prefix is chosen, or let go as recovered.",
        source="one hour: consistency cannot be seen in less",
        ge=1,
        le=128,
    )
    enter_duty: float = tunable(
        0.8,
        "Share of the measured rounds in which a prefix must have been low to be chosen.",
        source="the article wants consistently poor prefixes and gives no number: low in four rounds of five",
        ge=0.05,
        le=1.0,
    )
    leave_duty: float = tunable(
        0.4,
        "Share of low rounds at which a chosen prefix has recovered.",
        source="half of enter_duty: between the two nothing changes",
        ge=0.0,
        le=0.95,
    )
    max_flap_rate: float = tunable(
        0.25,
        "Changes between low and not low, as a share of the measured rounds, above which none is chosen.",
        source="the article's flap rate, which it gives no number for; low by chance in 80 % of rounds changes in 32 %",
        ge=0.0,
        le=1.0,
    )
    bbr_discount: float = tunable(
        2.0,
        (
            "What a delivery rate under BBR is divided by before it is compared: what BBR cured would be low "
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
        "Seconds for which a chosen prefix stays, unless it is back-office or an operator says otherwise.",
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
        24,
        (
            "Newest rounds over which a chosen prefix is compared with what it was, from as many rounds after "
            "it was chosen."
        ),
        source="two hours, as min_stay_s: noise of 30 % a round becomes 6 %",
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
        86_400,
        "Seconds for which a prefix that was given back is not chosen again.",
        source="a day: the same hour of the next day is another trial",
        ge=0,
        le=MAX_TTL_S,
    )
