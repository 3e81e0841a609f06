"""Sections of the policy that no law owns: rounds, their completeness, bundles, the gate, retention."""

from __future__ import annotations

from springtide import instants
from springtide.section import MAX_TTL_S, Section, tunable


class RoundPolicy(Section):
    """When decisions are made."""

    interval_s: int = tunable(
        300,
        "Seconds between rounds; a round T covers [T - interval_s, T).",
        source=(
            "the selective-BBR article decides every five minutes; Riptide III-B updates every i_u seconds on each host"
        ),
        ge=5,
        le=3600,
    )
    lateness_s: int = tunable(
        60,
        "Seconds after a round's end for which its samples are waited for; what is later is counted.",
        source=(
            "collectors hand over every few seconds, and a broker's restart takes some tens of them; a decision that "
            "waits longer than a minute is late itself"
        ),
        ge=0,
        le=3600,
    )

    def due(self, now_unix_s: int) -> int:
        """The newest round whose samples have had their time to arrive."""
        return instants.latest_round(now_unix_s - self.lateness_s, self.interval_s)


class CompletenessPolicy(Section):
    """How much of a round must have arrived for a PoP to be decided from it."""

    min_hosts: float = tunable(
        0.6,
        "Share of a PoP's hosts, of those that sent samples in the last memory_rounds, that the round must have.",
        source="two edges of three represent their PoP; one of two, or half of many, do not",
        ge=0.0,
        le=1.0,
    )
    min_rows: float = tunable(
        0.6,
        "Share of the rows expected of a PoP's hosts that must have arrived, each host counted alike; "
        "gaps between polls count.",
        source="as for hosts: the missing part may be the slow part",
        ge=0.0,
        le=1.0,
    )
    min_closes: float = tunable(
        0.6,
        "Share of the close records expected of a PoP's hosts that must have arrived, each host counted alike; "
        "sockets that vanish between polls without theirs count. 0 turns it off.",
        source="as for hosts: the loss guard and the benefit use nothing else",
        ge=0.0,
        le=1.0,
    )
    memory_rounds: int = tunable(
        6,
        "Rounds for which a host that sends nothing more is expected.",
        source="half an hour: a host that was taken out must not freeze its PoP until values expire",
        ge=2,
        le=288,
    )


class BundlePolicy(Section):
    """What an edge gets, and for how long."""

    ttl_s: int = tunable(
        900,
        "Seconds after its round at which an edge withdraws a bundle on its own.",
        source="three rounds: two pushes may fail before the edges fall back to the kernel's default",
        ge=5,
        le=MAX_TTL_S,
    )
    max_routes: int = tunable(
        10_000,
        "Most routes that one bundle may hold.",
        source="`ip -batch` applies 10,000 routes in 0.25 s",
        ge=1,
        le=100_000,
    )
    congestion: bool = tunable(
        True,
        "Whether bundles list the client prefixes that use BBR.",
        source="edges whose springtide-edge is older than this field refuse a bundle that has it",
    )
    max_congestion: int = tunable(
        10_000,
        "Most client prefixes with a congestion control of their own that one bundle may hold.",
        source="five times congestion.max_selected, as many as routes",
        ge=0,
        le=100_000,
    )
    max_bytes: int = tunable(
        1_000_000,
        "Largest size of one bundle, bytes.",
        source="10,000 routes of 45 bytes, doubled: larger means broken (Cloudflare, 18 November 2025)",
        ge=1000,
        le=16_000_000,
    )
    min_prefix_length_ipv4: int = tunable(
        16,
        "Shortest (widest) IPv4 prefix that a bundle may name.",
        source="a PoP draws from a /16 at most; an edge refuses wider than a /8",
        ge=8,
        le=32,
    )
    min_prefix_length_ipv6: int = tunable(
        32,
        "Shortest (widest) IPv6 prefix that a bundle may name.",
        source="registries give an operator a /32; an edge refuses wider than a /16",
        ge=16,
        le=128,
    )
    max_changed_share: float = tunable(
        0.5,
        "Most of the fleet's routes, with their rates and trials, that one publication may change or withdraw, as a "
        "share; a promotion, a trial within start.step and a rate within start.hysteresis are no change. So too of its "
        "receive windows.",
        source="smoothing and hysteresis move few values a round: half of them moving is a fault upstream",
        ge=0.0,
        le=1.0,
    )
    max_withdrawn_share: float = tunable(
        0.3,
        "Most of the fleet's routes that one publication may withdraw, as a share.",
        source="a region without samples is less; more means that a collector or a store lost its rows",
        ge=0.0,
        le=1.0,
    )
    max_congestion_withdrawn_share: float = tunable(
        0.5,
        "Most of the edges' client prefixes on BBR that one publication may take off it, or give it from other bytes "
        "on, as a share.",
        source="a whole PoP may be given back where BBR does not help it; half of a fleet at once is a fault upstream",
        ge=0.0,
        le=1.0,
    )
    max_growth: float = tunable(
        2.0,
        "Most routes of a publication, with what is on trial, as a multiple of those on the fleet.",
        source="a fleet does not double within a round: a duplicated or broken input does",
        ge=1.0,
        le=100.0,
    )
    caps_from_routes: int = tunable(
        20,
        "Routes on the fleet from which on these caps apply.",
        source="with fewer, one pair is more than a twentieth, and a fleet that begins must grow",
        ge=0,
        le=1_000_000,
    )


class GatePolicy(Section):
    """When a rollout goes on after each wave, `springtide gate`."""

    min_connections: int = tunable(
        100,
        "Fewest new connections of changed edges for a verdict.",
        source="`make gate-budget`: beside many unchanged, 30 % lost instead of 2 % are seen with a chance of 96 %",
        ge=1,
        le=1_000_000,
    )
    before_s: int = tunable(
        600,
        "Seconds before the rollout whose new connections those after a wave are compared with.",
        source="two rounds: as many connections again as a wave waits for, and not yet another time of day",
        ge=10,
        le=86_400,
    )
    watched_s: int = tunable(
        60,
        "Seconds from its first record on for which a new connection is watched, before the rollout and after a wave.",
        source="a first flight is over in seconds; watching for longer shows more losses of another kind",
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
        "Most weight of one edge's connections, as a multiple of the middle edge's.",
        source="of five canaries a lying one then has a third of the weight; truthful edges of a PoP differ by less",
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
        source="losses of the first flight cannot be separated from later ones: a coarser bound than for young ones",
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
        source="a standing queue of a quarter of the path's own delay is noticeable to users",
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
        "Most by which the share of new connections without any answer may rise.",
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


class RetentionPolicy(Section):
    """How long rows are kept; `springtide retention apply` sets it."""

    samples_days: int = tunable(
        7,
        "Days of single samples.",
        source="a week shows every day of it beside the day before; the largest table by far",
        ge=1,
        le=36_500,
    )
    sockets_days: int = tunable(
        3,
        "Days of each round's sockets.",
        source="round tables are made of them at once; afterwards they serve investigations only",
        ge=1,
        le=36_500,
    )
    rounds_days: int = tunable(
        90,
        "Days of round tables.",
        source="a quarter: a season of decisions can be replayed and backfilled",
        ge=1,
        le=36_500,
    )
    hours_days: int = tunable(
        400,
        "Days of hours.",
        source="a year and a month: this month beside the same month a year ago",
        ge=1,
        le=36_500,
    )
    days_days: int = tunable(
        1830,
        "Days of days.",
        source="five years: how paths grow",
        ge=1,
        le=36_500,
    )
    decisions_days: int = tunable(
        400,
        "Days of decisions and of the audit.",
        source="as long as the hours that show their effect",
        ge=1,
        le=36_500,
    )
    rejected_days: int = tunable(
        30,
        "Days of Kafka messages that could not be decoded.",
        source="long enough to investigate a faulty sender; any sender can make it grow",
        ge=1,
        le=36_500,
    )
