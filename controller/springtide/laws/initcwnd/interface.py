"""The law of the initial window as the rest of Springtide meets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType

from springtide import instants
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws import base
from springtide.laws.columns import Table
from springtide.laws.destinations import prefixes
from springtide.laws.effect import BenefitLine
from springtide.laws.entry import Part, path_name
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd import benefit, edges, rows, switched, treated
from springtide.laws.initcwnd.decision import Action, Decision, is_left_out
from springtide.laws.initcwnd.explain import DEFAULT, became, describing, labelled, left_out
from springtide.laws.initcwnd.law import PREVIOUS, decide
from springtide.laws.initcwnd.rows import WINDOWS
from springtide.laws.standing import standing
from springtide.laws.units import keys
from springtide.metrics import Metric
from springtide.observe.pairs import pair_observations
from springtide.policy import Policy
from springtide.store import Store

# By destination PoP and IP version; None is the kernel's default.
_Windows = dict[tuple[str, int], int | None]


class Initcwnd(base.Law):
    name = "initcwnd"
    decisions = WINDOWS
    title = "The initial congestion window of every pair of PoPs"
    help = """Decide the initial congestion window of every pair of PoPs for one round.

    Over the same samples a round always gives the same rows, however often it is run. Nothing from its instant on is
    read. Decide rounds in their order: each smooths with the one before. A round that has no tables yet, or only
    those from before round.lateness_s, is rolled up first, as by `springtide rollup --round`.
    """
    units = "pairs"
    does = " have a window"
    acts = "initcwnd > 0"
    # As in springtide.laws.initcwnd.decision.is_left_out.
    expires = "action = 'set' and reason != 'override'"
    values = ("initcwnd",)
    history = (
        *("round", "ip_version", "action", "initcwnd", "reason", ("observed", "observed_cwnd")),
        *(("smoothed", "smoothed_cwnd"), ("earned", "connections_earned"), ("seen", "connections_seen")),
        ("policy", "policy_version"),
    )
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
        return base.pops_of(before)

    def decide(self, now: int, policy: Policy, seen: Table, before: Frame, frozen: Collection[str]) -> Frame:
        return decide(now, policy, seen, before, frozen)

    def write(self, store: Store, policy: Policy, round_unix_s: int, decided: Frame) -> bool:
        written = super().write(store, policy, round_unix_s, decided)
        edges.write_round(store, round_unix_s, edges.edge_decisions(policy, round_unix_s), policy.version)
        return written

    def view(self, outcome: base.Outcome, fleet: Fleet, policy: Policy) -> base.View:
        decided = rows.as_decisions(outcome.decided, round=outcome.round, policy_version=policy.version)
        of_edges = edges.edge_decisions(policy, outcome.round)
        silent = max(0, len(fleet.pops) * (len(fleet.pops) - 1) - len({d.pair[:2] for d in decided}))
        return base.View(
            decisions=[WINDOWS.as_dict(vars(d)) for d in decided],
            columns=["from", "to", "ip", "action", "initcwnd", "reason", "observed", "earned", "seen", "retransmitted"],
            rows=[
                (
                    d.src_pop,
                    d.dst_pop,
                    d.ip_version,
                    left_out(d, policy),
                    d.initcwnd,
                    d.reason,
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
    ) -> base.Explained | None:
        if {policy.enforce_of(edge, src_pop, round_unix_s).by for edge in fleet.pops[src_pop].edges} == {"bpf"}:
            # None of them has a route.
            return None
        recent = self.recent(store, policy, src_pop, destination, round_unix_s)
        history = rows.as_decisions(recent)
        found = [d for d in history if d.round == round_unix_s]
        of_edges = [
            one for one in edges.read_round(store, round_unix_s) if (one.src_pop, one.dst_pop) == (src_pop, destination)
        ]
        now = standing(store, fleet, policy, src_pop)
        describe = describing(store, now, policy, src_pop, destination)
        because = f"no sample of a live connection from {src_pop} to {destination} lies in the round"
        change = f"connections from edges of {src_pop} to addresses of {destination}, polled by a collector"
        why = f"{because}, and no value was alive", f"{change} and ingested"
        explained = self.explained(
            recent,
            round_unix_s,
            [(d.ip_version, labelled(d, policy, became(now, describe, [d.ip_version]))) for d in found],
            self.undecided(store, round_unix_s, DEFAULT, became(now, describe), *why),
        )
        return replace(
            explained,
            table=[{**one, "action": left_out(d, policy)} for one, d in zip(explained.table, history, strict=True)],
            notes=[
                f"but on {one.edge}, IPv{one.ip_version}: "
                + ("the kernel's default" if one.initcwnd is None else f"{one.initcwnd} segments")
                + f" until {instants.show(one.until)}: {one.why}"
                for one in of_edges
            ],
            more={"edges": [_of_edge(one) for one in of_edges]},
        )

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> base.Contribution:
        decided, of_edges = rows.read_round(store, round_unix_s), edges.read_round(store, round_unix_s)
        return contribution(fleet, policy, decided, expires_unix_s, of_edges)

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> base.Treated:
        return treated.treated(store, newest_round_unix_s, interval_s)

    def treated_step(self, found: base.Treated) -> base.Step:
        """Whether new connections begin with what was decided for their edge."""
        what = self.seen_name
        more = f"; {found.controls:,} begin with one that was not decided" if found.controls else ""
        if not found.decided:
            text = f"no connection between PoPs should begin with a window of its own{more}"
            return base.Step(what, base.State.NOTE, text)
        units = f"{found.decided:,} pairs of an edge and a PoP"
        if not found.same + found.differs:
            text = f"no evidence: of {units} none shows what its connections began with{more}"
            return base.Step(what, base.State.NOTE, text)
        text = f"{found.same:,} of {units} begin with what was decided"
        text += f"; {found.unknown:,} show nothing" if found.unknown else ""
        if not found.differs:
            return base.Step(what, base.State.OK, text + more)
        left = found.differs - len(found.examples)
        text += f"; {found.differs:,} differ: {', '.join(found.examples)}" + (f" and {left:,} more" if left else "")
        fix = "see that these edges applied it: drift.yml, and `springtide-edge status` there"
        return base.Step(what, base.State.BROKEN, text + more, fix)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> list[BenefitLine]:
        held_out = held_out_edges(fleet, policy.holdout)
        if policy.experiment.kind == "switchback":
            return switched.of_switchback(switched.read_switchback(store, policy, span, held_out), policy)
        decided, seen = (
            benefit.edge_lines(store.query(benefit.BUSY, {**span, "seen": only_seen}), held_out, quantile)
            for only_seen in (0, 1)
        )
        # With the other kinds it is not all that is on before and after a test.
        if policy.experiment.kind == "holdout" and policy.experiment.disable_every_days:
            decided += switched.of_tests(switched.read_tests(store, policy, span, held_out))
        return [*decided, *(replace(line, units="seen") for line in seen)]


INITCWND = Initcwnd()


def contribution(
    fleet: Fleet,
    policy: Policy,
    decided: Iterable[Decision],
    expires_unix_s: int,
    of_edges: Iterable[edges.EdgeDecision] = (),
) -> base.Contribution:
    """Each edge's windows. Pure.

    A decision that expires before the bundle is left out: so no edge can use a value for longer than initcwnd.ttl_s
    after its last evidence, whatever is down, and a pair without evidence shortens no other's life. Policy keeps
    bundle.ttl_s <= initcwnd.ttl_s, so fresh ones always fit. An override is an operator's decision and needs no
    evidence. Edges that are held out get none; what `of_edges` gives single edges precedes that too.
    """
    of_pops: dict[str, _Windows] = {pop: {} for pop in fleet.pops}
    own: dict[str, _Windows] = {}
    left_out = []
    for one in decided:
        if is_left_out(one, expires_unix_s):
            left_out.append(path_name(*one.pair))
        elif one.action is Action.SET:
            of_pops.setdefault(one.src_pop, {})[one.pair[1:]] = one.initcwnd
    for word in of_edges:
        own.setdefault(word.edge, {})[word.dst_pop, word.ip_version] = word.initcwnd
    held_out = held_out_edges(fleet, policy.holdout)
    # The edges of a PoP share them.
    shared = {pop: _routes(fleet, windows) for pop, windows in of_pops.items()}
    entries: dict[str, list[Part]] = {}
    for edge, pop in fleet.edges().items():
        entries[edge] = [] if edge in held_out else shared[pop]
        if edge in own:
            usual = {} if edge in held_out else of_pops[pop]
            entries[edge] = _routes(fleet, {**usual, **own[edge]})
    # A window that nothing paces is a burst: edges that pace start as the law of starts says.
    return base.Contribution(entries, "routes", left_out)


def _routes(fleet: Fleet, windows: _Windows) -> list[Part]:
    return [
        Part(prefix=prefix, initcwnd=window)
        for (dst_pop, version), window in windows.items()
        if window is not None
        for prefix in prefixes(fleet, dst_pop, version)
    ]


def _off(decided: Sequence[Decision]) -> list[str]:
    """Says what the experiment has switched off."""
    counts = Counter(d.reason for d in decided)
    texts = {"switchback": "it is their turn (switchback)", "disable_test": "of a disable test"}
    return [f"{counts[each]} pairs are off because {text}" for each, text in texts.items() if counts[each]]


def _of_edge(one: edges.EdgeDecision) -> dict[str, object]:
    return asdict(one) | {"until": instants.show(one.until)}
