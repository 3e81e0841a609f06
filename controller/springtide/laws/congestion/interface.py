"""The law of congestion control as the rest of Springtide meets it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from springtide.fleet import Fleet, Prefix
from springtide.frame import Frame
from springtide.laws import base
from springtide.laws.congestion import benefit, rows
from springtide.laws.congestion.explain import explain
from springtide.laws.congestion.law import PREVIOUS, decide
from springtide.laws.congestion.rows import PREFIXES
from springtide.laws.effect import BenefitLine
from springtide.laws.entry import Part
from springtide.laws.standing import standing
from springtide.metrics import Gauges, Labels, Metric
from springtide.policy import Policy
from springtide.store import Row, Store


class Congestion(base.Law):
    name = "congestion"
    decisions = PREFIXES
    title = "Which client prefixes use BBR"
    help = """Decide which client prefixes of each PoP use BBR, for one round.

    Those that are consistently among their PoP's slowest, by the round tables of the last hours; a hashed share of them
    is held out to measure what it is good for. Nothing after the round is read, and again gives the same rows. Decide
    rounds in their order: each remembers the one before.
    """
    units = "prefixes"
    does = " decided for BBR"
    idle = "no prefix chosen yet"
    late = base.State.NOTE
    acts = "algorithm = 'bbr'"
    values = ("algorithm",)
    counted = (("PoP", "pop"), "action", "reason")
    history = (
        *("round", "action", "algorithm", "held_out", "reason", "measured_rounds", "low_rounds", "state_changes"),
        *("penalty", "policy_version"),
    )
    changes = "action in ('enter', 'leave')"
    damped = True
    metrics: Mapping[str, Metric] = MappingProxyType(
        {
            "springtide_congestion_prefixes": Metric(
                "Chosen prefixes: those decided for BBR, and those held out.", ("algorithm",)
            )
        }
    )
    seen_name = "seen BBR"
    explains = ("prefix",)
    benefit_name = "BBR: rate"
    benefit_title = "BBR for the slowest prefixes"
    caveats: Sequence[str] = (
        "Growth is of the rate over all of a prefix's connections, whichever algorithm each used.",
    )
    # Only prefixes with a decision have rows: a round without any is not a fault.
    every_round = False

    def observe(self, store: Store, policy: Policy, round_unix_s: int) -> tuple[Frame, Frame]:
        last = PREFIXES.last_round(store, round_unix_s)
        return rows.evidence(store, round_unix_s, policy, last), PREFIXES.left(store, round_unix_s)

    def decide(self, now: int, policy: Policy, seen: Frame, before: Frame, frozen: Collection[str]) -> Frame:
        return decide(now, policy, seen, before, frozen)

    def summed(self, rows: Sequence[Row]) -> tuple[str, Gauges]:
        chosen = sum(row["algorithm"] == "bbr" for row in rows)
        held = sum(row["held_out"] for row in rows)
        gauges: dict[Labels, float] = {(("algorithm", "bbr"),): chosen, (("algorithm", "held_out"),): held}
        return f"{chosen} prefixes decided for BBR, {held} are held out", {"springtide_congestion_prefixes": gauges}

    def shown(self, store: Store, policy: Policy, round_unix_s: int) -> Frame:
        # Every prefix: which ones a replay remembers the store does not know.
        return rows.evidence(store, round_unix_s, policy, 0, least_low=0)

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> base.Explained:
        recent = self.recent(store, policy, src_pop, destination, round_unix_s)
        found = recent[recent["round"] == round_unix_s]
        if not len(found):
            # Most prefixes have no row: nothing is remembered of them, so the tables are complete.
            shown = self.shown(store, policy, round_unix_s)
            own = (shown["src_pop"] == src_pop.encode()) & (shown["destination"] == destination.encode())
            found = decide(round_unix_s, policy, shown[own], Frame.empty(0, PREVIOUS), everyone=True)
        decisions = [PREFIXES.as_dict(row) for row in PREFIXES.rows(found)]
        unranked = rows.unranked(store, round_unix_s, policy, src_pop, destination)
        value, *others = explain(decisions[0] if decisions else None, policy, unranked)
        held = standing(store, fleet, policy, src_pop).lines(lambda _, held: str(held), "the kernel's default")
        explained = self.explained(recent, round_unix_s, [], [value, *held, *others])
        return replace(explained, decisions=decisions)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> base.Contribution:
        if not policy.bundle.congestion:
            return base.Contribution()
        decided = PREFIXES.newest(store, round_unix_s, policy.bundle.ttl_s)
        on_bbr: dict[str, list[str]] = {}
        for row in PREFIXES.rows(decided[decided["algorithm"] > 0]):
            on_bbr.setdefault(row["pop"], []).append(row["prefix"])
        return contribution(fleet, policy, on_bbr)

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> base.Treated:
        """Client prefixes in the newest round that decided any."""
        [counts] = store.query(
            """
            select
                countIf(decided = 'bbr' and seen = 'same') as same,
                countIf(decided = 'bbr' and seen = 'differs') as differs,
                countIf(decided = 'bbr' and seen = 'unknown') as unknown,
                countIf(decided != 'bbr' and seen = 'differs') as controls
            from prefix_treatments
            where round = fromUnixTimestamp({newest:UInt32})
            """,
            {"newest": PREFIXES.last_round(store, newest_round_unix_s + 1)},
        )
        return base.Treated(**counts)

    def treated_step(self, found: base.Treated) -> base.Step:
        """Only a note: bundles bring the choice to the edges, of which those by routes keep most of it unapplied."""
        what = self.seen_name
        more = f"; {found.controls:,} of those held out use it" if found.controls else ""
        if not found.decided:
            return base.Step(what, base.State.NOTE, f"no prefix that had time to use it was decided for BBR{more}")
        text = f"{found.same:,} of {found.decided:,} prefixes decided for BBR use it for most of their bytes"
        text += f"; {found.unknown:,} show nothing" if found.unknown else ""
        if found.differs:
            text += f"; {found.differs:,} do not: edges by routes only keep the choice, by bpf they apply it"
        return base.Step(what, base.State.NOTE if found.differs or not found.same else base.State.OK, text + more)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> list[BenefitLine]:
        stay = policy.congestion.benefit_rounds * policy.round.interval_s
        grown = store.query(benefit.GROWTH, {**span, "stay": stay})
        sizes = store.query(benefit.GOODPUT_BY_SIZE, span)
        # In at least half of the rounds that show anything, they went as decided.
        used = {(row["pop"], row["client_prefix"]) for row in store.query(benefit.USED, span)}

        def seen(found: list[Row]) -> list[Row]:
            return [row for row in found if (row["pop"], row["client_prefix"]) in used]

        decided = [*benefit.growth_lines(grown, quantile), *benefit.size_lines(sizes, quantile)]
        as_seen = [*benefit.growth_lines(seen(grown), quantile), *benefit.size_lines(seen(sizes), quantile)]
        return [*decided, *(replace(line, units="seen") for line in as_seen)]

    def figures(self, store: Store, policy: Policy, span: Mapping[str, int]) -> list[base.Figure]:
        return benefit.figures(store, policy.congestion.min_object_bytes, span)


CONGESTION = Congestion()


def contribution(
    fleet: Fleet, policy: Policy, on_bbr: Mapping[str, Iterable[Prefix | str]] | None
) -> base.Contribution:
    """Entries of each PoP's client prefixes that use BBR, for all of its edges: held-out prefixes are not among them.
    `on_bbr` is None where that is not decided. Pure."""
    # Lets BBR act from the first byte on edges that cannot wait for `from_bytes`.
    always = policy.enforce.congestion_always or None
    bbr = Part(algorithm="bbr", from_bytes=policy.congestion.min_object_bytes, always=always)
    entries: dict[str, list[Part]] = {}
    for pop, prefixes in (on_bbr or {}).items():
        shared = [Part(prefix=str(prefix), congestion=bbr) for prefix in prefixes]
        entries |= dict.fromkeys(fleet.pops[pop].edges if pop in fleet.pops else (), shared)
    return base.Contribution(entries)
