"""Sections of the policy that no law owns: rounds, their completeness, bundles, the gate, retention."""

from __future__ import annotations

from pydantic import Field

from springtide import instants
from springtide.section import MAX_TTL_S, Section


class RoundPolicy(Section):
    """When decisions are made."""

    interval_s: int = Field(default=300, ge=5, le=3600)
    """Seconds between rounds; a round T covers [T - interval_s, T).
    Source: the selective-BBR article decides every five minutes; Riptide III-B updates every i_u seconds on each
    host."""
    lateness_s: int = Field(default=60, ge=0, le=3600)
    """Seconds after a round's end for which its samples are waited for; what is later is counted.
    Source: collectors hand over every few seconds, and a broker's restart takes some tens of them; a decision that
    waits longer than a minute is late itself."""

    def due(self, now_unix_s: int) -> int:
        """The newest round whose samples have had their time to arrive."""
        return instants.latest_round(now_unix_s - self.lateness_s, self.interval_s)


class CompletenessPolicy(Section):
    """The part of a round that must have arrived for a PoP to be decided from it."""

    min_hosts: float = Field(default=0.6, ge=0.0, le=1.0)
    """Share of a PoP's hosts, of those that sent samples in the last memory_rounds, that the round must have.
    Source: two edges of three represent their PoP; one of two, or half of many, do not."""
    min_rows: float = Field(default=0.6, ge=0.0, le=1.0)
    """Share of the rows expected of a PoP's hosts that must have arrived, each host counted alike; gaps between polls
    count.
    Source: as for hosts: the missing part may be the slow part."""
    min_closes: float = Field(default=0.6, ge=0.0, le=1.0)
    """Share of the close records expected of a PoP's hosts that must have arrived, each host counted alike; sockets
    that vanish between polls without theirs count. 0 turns it off.
    Source: as for hosts: the loss guard and the benefit use nothing else."""
    memory_rounds: int = Field(default=6, ge=2, le=288)
    """Rounds for which a host that sends nothing more is expected.
    Source: half an hour: a host that was taken out must not freeze its PoP until values expire."""


class BundlePolicy(Section):
    """Contents of an edge's bundle, and how long it lasts."""

    ttl_s: int = Field(default=900, ge=5, le=MAX_TTL_S)
    """Seconds after its round at which an edge withdraws a bundle on its own.
    Source: three rounds: two pushes may fail before the edges fall back to the kernel's default."""
    max_routes: int = Field(default=10_000, ge=1, le=100_000)
    """Most routes that one bundle may hold.
    Source: `ip -batch` applies 10,000 routes in 0.25 s."""
    congestion: bool = True
    """Whether bundles list the client prefixes that use BBR.
    Source: edges whose springtide-edge is older than this field refuse a bundle that has it."""
    max_congestion: int = Field(default=10_000, ge=0, le=100_000)
    """Most client prefixes with a congestion control of their own that one bundle may hold.
    Source: five times congestion.max_selected, as many as routes."""
    max_bytes: int = Field(default=1_000_000, ge=1000, le=16_000_000)
    """Largest size of one bundle, bytes.
    Source: 10,000 routes of 45 bytes, doubled: larger means broken (Cloudflare, 18 November 2025)."""
    min_prefix_length_ipv4: int = Field(default=16, ge=8, le=32)
    """Shortest (widest) IPv4 prefix that a bundle may name.
    Source: a PoP draws from a /16 at most; an edge refuses wider than a /8."""
    min_prefix_length_ipv6: int = Field(default=32, ge=16, le=128)
    """Shortest (widest) IPv6 prefix that a bundle may name.
    Source: registries give an operator a /32; an edge refuses wider than a /16."""
    max_changed_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Most of the fleet's routes, with their rates and trials, that one publication may change or withdraw, as a share;
    a promotion, a trial within start.step and a rate within start.hysteresis are no change. So too of its receive
    windows.
    Source: smoothing and hysteresis move few values a round: half of them moving is a fault upstream."""
    max_withdrawn_share: float = Field(default=0.3, ge=0.0, le=1.0)
    """Most of the fleet's routes that one publication may withdraw, as a share.
    Source: a region without samples is less; more means that a collector or a store lost its rows."""
    max_congestion_withdrawn_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Most of the edges' client prefixes on BBR that one publication may take off it, or give it from other bytes on,
    as a share.
    Source: a whole PoP may be given back where BBR does not help it; half of a fleet at once is a fault upstream."""
    max_growth: float = Field(default=2.0, ge=1.0, le=100.0)
    """Most routes of a publication, with what is on trial, as a multiple of those on the fleet.
    Source: a fleet does not double within a round: a duplicated or broken input does."""
    caps_from_routes: int = Field(default=20, ge=0, le=1_000_000)
    """Routes on the fleet from which on these caps apply.
    Source: with fewer, one pair is more than a twentieth, and a fleet that begins must grow."""


class GatePolicy(Section):
    """When a rollout goes on after each wave, `springtide gate`."""

    min_connections: int = Field(default=100, ge=1, le=1_000_000)
    """Fewest new connections of changed edges for a verdict.
    Source: `make gate-budget`: beside many unchanged, 30 % lost instead of 2 % are seen with a chance of 96 %."""
    before_s: int = Field(default=600, ge=10, le=86_400)
    """Seconds before the rollout whose new connections those after a wave are compared with.
    Source: two rounds: as many connections again as a wave waits for, and not yet another time of day."""
    watched_s: int = Field(default=60, ge=1, le=3600)
    """Seconds from its first record on for which a new connection is watched, before the rollout and after a wave.
    Source: a first flight is over in seconds; watching for longer shows more losses of another kind."""
    max_false_roll_backs: float = Field(default=0.01, ge=0.000001, le=0.2)
    """Chance at most that a rollout without harm is taken back by chance, over all waves, looks and signals.
    Source: one rollout of a hundred; `make gate-budget` has what is left of it for each wave."""
    max_host_ratio: float = Field(default=2.0, ge=1.0, le=1000.0)
    """Most weight of one edge's connections, as a multiple of the middle edge's.
    Source: of five canaries a lying one then has a third of the weight; truthful edges of a PoP differ by less."""
    max_lost_rise: float = Field(default=0.03, ge=0.0, le=1.0)
    """Most by which the share of young new connections that lost of their first flight may rise; young: two of the
    larger window were not yet acknowledged.
    Source: a quarter of initcwnd.loss_bound: a wave stops before the law would cut a window of 100."""
    lossy_share: float = Field(default=0.03, ge=0.0, le=1.0)
    """Share of its bytes sent again from which a connection that is no longer young is lossy.
    Source: six times congestion.few_retransmits: a long transfer nearly always loses some at its own top rate."""
    max_lossy_rise: float = Field(default=0.05, ge=0.0, le=1.0)
    """Most by which the share of lossy ones among them may rise.
    Source: losses of the first flight cannot be separated from later ones: a coarser bound than for young ones."""
    max_timeout_rise: float = Field(default=0.02, ge=0.0, le=1.0)
    """Most by which the share of new connections with a retransmission timeout may rise.
    Source: a timeout costs 200 ms and more (RFC 6298), ten times what a repaired loss does: less than for losses."""
    max_rtt_ratio: float = Field(default=1.25, ge=1.0, le=100.0)
    """A new connection's RTT beyond this multiple of what is usual towards its destination is slow.
    Source: a standing queue of a quarter of the path's own delay is noticeable to users."""
    max_slow_rise: float = Field(default=0.25, ge=0.0, le=1.0)
    """Most by which the share of slow new connections may rise.
    Source: half of them slow is what a median would show: half of that."""
    max_failed_rise: float = Field(default=0.02, ge=0.0, le=1.0)
    """Most by which the share of new connections without any answer may rise.
    Source: a window cannot make a connect fail, a wrong route does: any clear rise is a fault."""
    max_silence_s: int = Field(default=60, ge=1, le=3600)
    """Seconds after which a changed edge's collector is not fresh.
    Source: collectors poll every few seconds; spool rotation and delivery take up to half a minute."""


class RetentionPolicy(Section):
    """Time for which rows are kept; `springtide retention apply` sets it."""

    samples_days: int = Field(default=7, ge=1, le=36_500)
    """Days of single samples.
    Source: a week shows every day of it beside the day before; the largest table by far."""
    sockets_days: int = Field(default=3, ge=1, le=36_500)
    """Days of each round's sockets.
    Source: round tables are made of them at once; afterwards they serve investigations only."""
    rounds_days: int = Field(default=90, ge=1, le=36_500)
    """Days of round tables.
    Source: a quarter: a season of decisions can be replayed and backfilled."""
    hours_days: int = Field(default=400, ge=1, le=36_500)
    """Days of hours.
    Source: a year and a month: this month beside the same month a year ago."""
    days_days: int = Field(default=1830, ge=1, le=36_500)
    """Days of days.
    Source: five years: how paths grow."""
    decisions_days: int = Field(default=400, ge=1, le=36_500)
    """Days of decisions and of the audit.
    Source: as long as the hours that show their effect."""
    rejected_days: int = Field(default=30, ge=1, le=36_500)
    """Days of Kafka messages that could not be decoded.
    Source: long enough to investigate a faulty sender; any sender can make it grow."""
