"""The law of the initial window as the rest of Springtide meets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType

from springtide import instants
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.base import (
    HISTORY_ROUNDS,
    BenefitLine,
    Clock,
    Contribution,
    Explained,
    Law,
    Newest,
    Outcome,
    State,
    Step,
    Treated,
    Values,
    View,
    newest_of,
    once_a_round,
    pops_of,
)
from springtide.laws.columns import Table
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd import benefit, bundle, disabled, edges, rows, switched, treated
from springtide.laws.initcwnd.decision import Decision, Reason
from springtide.laws.initcwnd.explain import became, history_row, in_force, labelled, left_out, without_decision
from springtide.laws.initcwnd.law import PREVIOUS, decide
from springtide.laws.initcwnd.rows import WINDOWS
from springtide.laws.standing import Standing, standing
from springtide.laws.units import keys
from springtide.metrics import Metric
from springtide.observe.pairs import pair_observations
from springtide.policy import Policy
from springtide.store import Store


class Initcwnd(Law):
    name = "initcwnd"
    decisions = WINDOWS
    title = "The initial congestion window of every pair of PoPs"
    help = """Decide the initial congestion window of every pair of PoPs for one round.

    Over the same samples a round always gives the same rows, however often it is run. Nothing from its instant on is
    read. Decide rounds in their order: each smooths with the one before. A round that has no tables yet, or only
    those from before round.lateness_s, is rolled up first, as by `springtide rollup --round`.
    """
    units = "pairs"
    acts = "initcwnd > 0"
    changes = "initcwnd != previous_initcwnd"
    damped = True
    metrics: Mapping[str, Metric] = MappingProxyType(
        {"springtide_initcwnd_windows": Metric("Pairs with a window of their own.")}
    )
    seen_name = "seen windows"
    explains = ("pop",)
    benefit_name = "windows: time"
    benefit_title = "Initial windows between PoPs"
    benefit_note = "Time with data outstanding; negative is faster."

    def observe(self, store: Store, policy: Policy, round_unix_s: int) -> tuple[Table, Frame]:
        return pair_observations(store, round_unix_s), rows.previous(store, round_unix_s, policy)

    def pops(self, seen: Table, before: Frame) -> set[str]:
        return pops_of(before["src_pop"].tolist())

    def decide(self, now: int, policy: Policy, seen: Table, before: Frame, frozen: Collection[str]) -> Frame:
        return decide(now, policy, seen, before, frozen)

    def write(self, store: Store, policy: Policy, round_unix_s: int, decided: Frame) -> bool:
        written = super().write(store, policy, round_unix_s, decided)
        edges.write_round(store, round_unix_s, edges.edge_decisions(policy, round_unix_s), policy.version)
        return written

    def acting(self, decided: Frame) -> Values:
        chosen = decided[decided["initcwnd"] > 0]
        return dict(zip(keys(chosen).tolist(), chosen["initcwnd"].tolist(), strict=True))

    def view(self, outcome: Outcome, fleet: Fleet, policy: Policy) -> View:
        decided = rows.as_decisions(outcome.decided, outcome.round, policy.version)
        of_edges = edges.edge_decisions(policy, outcome.round)
        silent = max(0, len(fleet.pops) * (len(fleet.pops) - 1) - len({d.pair[:2] for d in decided}))
        return View(
            decisions=[rows.as_dict(d) for d in decided],
            columns=["from", "to", "ip", "action", "initcwnd", "reason", "observed", "earned", "seen", "retransmitted"],
            rows=[
                (
                    d.src_pop,
                    d.dst_pop,
                    d.ip_version,
                    left_out(d, policy),
                    d.initcwnd,
                    d.reason.value,
                    None if d.observed_cwnd is None else round(d.observed_cwnd, 1),
                    d.connections_earned,
                    d.connections_seen,
                    None if d.retransmit_ratio is None else f"{d.retransmit_ratio:.2%}",
                )
                for d in decided
            ],
            summary=f"{silent} pairs of the fleet have no samples",
            gauges={"springtide_initcwnd_windows": {(): sum(d.initcwnd is not None for d in decided)}},
            more={"pairs_without_samples": silent, "edge_decisions": [_of_edge(one) for one in of_edges]},
            notes=[
                *_off(decided),
                *(
                    f"override on {one.edge} to {one.dst_pop} (IPv{one.ip_version}): "
                    f"{one.initcwnd or 'default'}: {one.why}"
                    for one in of_edges
                ),
            ],
        )

    def shown(self, store: Store, policy: Policy, round_unix_s: int) -> Table:
        return pair_observations(store, round_unix_s)

    def carried(self, store: Store, policy: Policy, since_unix_s: int) -> Callable[[Frame, int, int], Frame]:
        window_s = (policy.initcwnd.duty_window_rounds - 1) * policy.round.interval_s
        memory = rows.duty_memory(store, since_unix_s - window_s, since_unix_s)

        def carry(decided: Frame, moment: int, following: int) -> Frame:
            memory.remember(moment, keys(decided[decided["last_evidence"] == moment]))
            left = WINDOWS.carry(decided, moment)
            return Frame(PREVIOUS, {**left.columns, "measured_rounds": memory.count(left, following - window_s)})

        return carry

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> Explained | None:
        if {policy.enforce_of(edge, src_pop, round_unix_s).by for edge in fleet.pops[src_pop].edges} == {"bpf"}:
            # None of them has a route.
            return None
        since = round_unix_s - HISTORY_ROUNDS * policy.round.interval_s
        history = rows.read_pair(store, src_pop, destination, round_unix_s, since)
        found = [d for d in history if d.round == round_unix_s]
        of_edges = [
            one for one in edges.read_round(store, round_unix_s) if (one.src_pop, one.dst_pop) == (src_pop, destination)
        ]
        now = standing(store, list(fleet.pops[src_pop].edges), policy, instants.now())
        held = _in_force(store, now, policy, src_pop, destination)
        nothing = without_decision(src_pop, destination, round_unix_s, self.latest(store, round_unix_s) == round_unix_s)
        nothing[1:1] = became(now, held)
        return Explained(
            lines=[(d.ip_version, labelled(d, policy, became(now, held, d.ip_version))) for d in found]
            or [(None, nothing)],
            decisions=[rows.as_dict(d) for d in found],
            history=[rows.as_dict(d) for d in history],
            table=[history_row(d, policy) for d in history],
            notes=[
                f"but on {one.edge}, IPv{one.ip_version}: "
                + ("the kernel's default" if one.initcwnd is None else f"{one.initcwnd} segments")
                + f" until {instants.show(one.until)}: {one.why}"
                for one in of_edges
            ],
            more={"edges": [_of_edge(one) for one in of_edges]},
        )

    def newest(self, store: Store, policy: Policy, until_unix_s: int) -> Newest | None:
        # As in springtide.laws.initcwnd.decision.is_left_out.
        late = "action = 'set' and reason != 'override' and coalesce(expires_at < round + {ttl_s:UInt32}, true)"
        return newest_of(store, self.name, self.acts, until_unix_s, late, policy.bundle.ttl_s)

    def decided_step(self, newest: Newest | None, clock: Clock) -> Step:
        fix = f"run `springtide decide {self.name}` each round"
        if newest is None:
            return Step(self.name, State.NONE, "nothing decided yet", fix)
        text = f"decided {clock.ago(newest.round)}: {newest.acting:,} of {newest.rows:,} pairs have a window"
        if newest.left_out:
            text += f"; {newest.left_out:,} left out of bundles: their evidence is too old"
        if newest.held_incomplete:
            text += f"; {newest.held_incomplete:,} stand, input incomplete"
        if newest.held_incomplete and newest.held_incomplete == newest.rows:
            fix = "`springtide sql incomplete-hosts` lists the missing hosts"
            return Step(self.name, State.STALE, text, fix, newest.round)
        return once_a_round(clock, self.name, newest.round, text, fix)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> Contribution:
        decided, of_edges = rows.read_round(store, round_unix_s), edges.read_round(store, round_unix_s)
        return contribution(fleet, policy, decided, expires_unix_s, of_edges)

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> Treated:
        return treated.treated(store, newest_round_unix_s, interval_s)

    def treated_step(self, found: Treated) -> Step:
        """Whether new connections begin with what was decided for their edge."""
        what = self.seen_name
        more = f"; {found.controls:,} begin with one that was not decided" if found.controls else ""
        if not found.decided:
            return Step(what, State.NOTE, f"no connection between PoPs should begin with a window of its own{more}")
        units = f"{found.decided:,} pairs of an edge and a PoP"
        if not found.same + found.differs:
            return Step(what, State.NOTE, f"no evidence: of {units} none shows what its connections began with{more}")
        text = f"{found.same:,} of {units} begin with what was decided"
        text += f"; {found.unknown:,} show nothing" if found.unknown else ""
        if not found.differs:
            return Step(what, State.OK, text + more)
        left = found.differs - len(found.examples)
        text += f"; {found.differs:,} differ: {', '.join(found.examples)}" + (f" and {left:,} more" if left else "")
        fix = "see that these edges applied it: drift.yml, and `springtide-edge status` there"
        return Step(what, State.BROKEN, text + more, fix)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> tuple[list[BenefitLine], list[BenefitLine]]:
        held_out = held_out_edges(fleet, policy.holdout)
        if policy.experiment.kind == "switchback":
            return switched.lines(switched.read(store, policy, span, held_out), policy), []
        decided, seen = (
            benefit.edge_lines(store.query(benefit.BUSY, {**span, "seen": only_seen}), held_out, quantile)
            for only_seen in (0, 1)
        )
        # With the other kinds it is not all that is on before and after a test.
        if policy.experiment.kind == "holdout" and policy.experiment.disable_every_days:
            decided += disabled.lines(disabled.read(store, policy, span, held_out))
        return decided, [replace(line, units="seen") for line in seen]


INITCWND = Initcwnd()


def _in_force(store: Store, now: Standing, policy: Policy, src_pop: str, dst_pop: str) -> dict[int, str]:
    """Text by IP version, from the rounds of the publications that the source's edges hold."""
    rounds = sorted({held.publication.round for held in now.last.values()})
    values = {
        (d.round, d.ip_version): d for each in rounds for d in rows.read_pair(store, src_pop, dst_pop, each, each - 1)
    }
    of_edges = {
        (each, one.edge, one.ip_version): one
        for each in rounds
        for one in edges.read_round(store, each)
        if one.dst_pop == dst_pop
    }
    return in_force(now, policy, src_pop, values, of_edges)


def contribution(
    fleet: Fleet,
    policy: Policy,
    decided: Iterable[Decision],
    expires_unix_s: int,
    of_edges: Iterable[edges.EdgeDecision] = (),
) -> Contribution:
    """Pure."""
    found, left_out = bundle.entries(fleet, policy.holdout, decided, expires_unix_s, of_edges)
    # A window that nothing paces is a burst: edges that pace start as the law of starts says.
    return Contribution(found, "routes", [f"{d.src_pop} to {d.dst_pop} (IPv{d.ip_version})" for d in left_out])


def _off(decided: Sequence[Decision]) -> list[str]:
    """What the experiment has switched off."""
    counts = Counter(d.reason for d in decided)
    texts = {Reason.SWITCHBACK: "it is their turn (switchback)", Reason.DISABLE_TEST: "of a disable test"}
    return [f"{counts[each]} pairs are off because {text}" for each, text in texts.items() if counts[each]]


def _of_edge(one: edges.EdgeDecision) -> dict[str, object]:
    return asdict(one) | {"until": instants.show(one.until)}
