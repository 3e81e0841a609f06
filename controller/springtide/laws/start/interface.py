"""The law of starts as the rest of Springtide meets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from springtide import instants
from springtide.fleet import Fleet
from springtide.frame import Coded, Frame
from springtide.laws import beside
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
from springtide.laws.columns import Bits, begins, taken_at
from springtide.laws.standing import standing
from springtide.laws.start import bundle, shares
from springtide.laws.start.evidence import OBSERVED, SHOWN, edge_parts, observe
from springtide.laws.start.explain import became, labelled, without_decision
from springtide.laws.start.groups import PLACE, places, regions
from springtide.laws.start.groups import named as group_names
from springtide.laws.start.law import PREVIOUS, STARTS, UNSEEN, decide
from springtide.laws.start.rows import history
from springtide.laws.units import UNIT_KEY, keys, placed
from springtide.metrics import Metric
from springtide.policy import Policy
from springtide.store import Store

# Rounds in which a connection between two places that talk is expected.
_SEEN_ROUNDS = 3
# An edge's part of a unit's starts is that of the last hour.
_PARTS_ROUNDS = 12
# What a round shows but of whom.
_EVIDENCE = [name for name in OBSERVED.names or () if name in (SHOWN.names or ()) and OBSERVED[name].kind != "S"]


class Start(Law):
    name = "start"
    decisions = STARTS
    title = "How fast and how wide connections start"
    help = """Decide how fast and how wide connections start, for one round: the rate that a path has proved, for one
    connection and for all together, and the window that it carries in a round trip.

    For edges that enforce by bpf; without any the policy has nothing to decide. Whatever rises is given to a share of
    the connections first. Nothing from the round's instant on is read, and again gives the same rows. Decide rounds in
    their order: each remembers the one before.
    """
    units = "pairs and prefixes"
    acts = "window > 0 or trial_permille > 0"
    changes = "window != previous_window or coalesce(connection_rate, 0) != coalesce(previous_connection_rate, 0)"
    damped = True
    metrics: Mapping[str, Metric] = MappingProxyType(
        {"springtide_start_units": Metric("Pairs and client prefixes with a start of their own.", ("state",))}
    )
    seen_name = "seen starts"
    explains = ("pop", "prefix")
    benefit_title = "Starts at a rate"
    benefit_name = "starts: time"
    benefit_note = "Time of first flights; negative is faster."
    # Where no edge paces there is nothing to decide.
    every_round = False

    def observe(self, store: Store, policy: Policy, round_unix_s: int) -> tuple[Frame, Frame]:
        if not policy.paces(round_unix_s):
            return Frame.empty(0, OBSERVED), Frame.empty(0, PREVIOUS)
        seen, last = _seen(store, policy, round_unix_s)
        return seen, STARTS.lasting(last)

    def decides(self, policy: Policy, round_unix_s: int) -> bool:
        return policy.paces(round_unix_s)

    def pops(self, seen: Frame, before: Frame) -> set[str]:
        return pops_of(*(_runs(table.columns["src_pop"]).tolist() for table in (seen, before)))

    def decide(self, now: int, policy: Policy, seen: Frame, before: Frame, frozen: Collection[str]) -> Frame:
        if not policy.paces(now):
            return decide(now, policy, seen[:0], before[:0], seen[:0], frozen)[:0]
        return decide(now, policy, seen, before, seen, frozen)

    def acting(self, decided: Frame) -> Values:
        chosen = decided[decided["window"] > 0]
        rates, windows = np.nan_to_num(chosen["connection_rate"]).tolist(), chosen["window"].tolist()
        return dict(zip(keys(chosen).tolist(), zip(rates, windows, strict=True), strict=True))

    def view(self, outcome: Outcome, fleet: Fleet, policy: Policy) -> View:
        listed = list(STARTS.rows(outcome.decided))
        counts = Counter((row["src_pop"], row["action"], row["reason"]) for row in listed)
        states = {
            "set": sum(row["window"] > 0 for row in listed),
            "trial": sum(bool(row["trial_window"]) for row in listed),
        }
        return View(
            decisions=[{"round": outcome.round, **STARTS.as_dict(row)} for row in listed],
            columns=["from", "action", "reason", "pairs and prefixes"],
            rows=[(*key, count) for key, count in sorted(counts.items())],
            summary=f"{states['set']} start at a rate of their own, {states['trial']} have values on trial",
            gauges={"springtide_start_units": {(("state", name),): count for name, count in states.items()}},
        )

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> Explained | None:
        if not policy.paces(round_unix_s):
            return None
        since = round_unix_s - HISTORY_ROUNDS * policy.round.interval_s
        decided = STARTS.read(store, round_unix_s - 1, round_unix_s, (src_pop, destination))
        found = list(STARTS.rows(decided))
        now = standing(store, list(fleet.pops[src_pop].edges), policy, instants.now())
        lately = round_unix_s - _PARTS_ROUNDS * policy.round.interval_s
        parts = bundle.parts(edge_parts(store, round_unix_s, lately, decided))
        ends = round_unix_s + policy.bundle.ttl_s
        edges = [bundle.entries(fleet, policy, round_unix_s, [row], parts, ends)[0] for row in found]
        own = [{edge: of_all[edge] for edge in fleet.pops[src_pop].edges} for of_all in edges]
        nothing = without_decision(instants.show(round_unix_s), self.latest(store, round_unix_s) == round_unix_s)
        nothing[1:1] = became(policy, src_pop, now)
        return Explained(
            lines=[
                (row["ip_version"], labelled(row, policy, now, of_pop)) for row, of_pop in zip(found, own, strict=True)
            ]
            or [(None, nothing)],
            decisions=[STARTS.as_dict(row) for row in found],
            history=history(store, src_pop, destination, since, round_unix_s),
        )

    def newest(self, store: Store, policy: Policy, until_unix_s: int) -> Newest | None:
        if not policy.paces(until_unix_s):
            return None
        late = "not overridden and coalesce(expires_at < round + {ttl_s:UInt32}, true)"
        return newest_of(store, self.name, self.acts, until_unix_s, f"({self.acts}) and {late}", policy.bundle.ttl_s)

    def decided_step(self, newest: Newest | None, clock: Clock) -> Step:
        fix = f"run `springtide decide {self.name}` each round"
        if newest is None:
            return Step(self.name, State.NOTE, "no edge enforces by bpf, or nothing was decided yet")
        text = f"decided {clock.ago(newest.round)}: {newest.acting:,} of {newest.rows:,} {self.units} start at a rate"
        text += f"; {newest.left_out:,} left out of bundles: their evidence is too old" if newest.left_out else ""
        text += f"; {newest.held_incomplete:,} stand, input incomplete" if newest.held_incomplete else ""
        return once_a_round(clock, self.name, newest.round, text, fix)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> Contribution:
        if not policy.paces(round_unix_s):
            return Contribution()
        # A round without this law keeps what the last one decided, for as long as a bundle may live.
        newest = STARTS.last_round(store, round_unix_s + 1)
        old = newest <= round_unix_s - policy.bundle.ttl_s
        decided = STARTS.read_round(store, 0 if old else newest)
        since = round_unix_s - _PARTS_ROUNDS * policy.round.interval_s
        parts = bundle.parts(edge_parts(store, round_unix_s, since, decided))
        listed = STARTS.rows(bundle.by_gain(decided))
        entries, left_out = bundle.entries(fleet, policy, round_unix_s, listed, parts, expires_unix_s)
        return Contribution(entries, "bpf", left_out)

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> Treated:
        """By the records of first flights, which name the round that they started by: what starts with values of its
        own since the newest round, and has records of it in any of the last rounds: few connect in every one."""
        newest = STARTS.last_round(store, newest_round_unix_s + 1)
        if not newest:
            return Treated()
        [counts] = store.query(
            """
            select countIf(flights > 0) as same, countIf(flights = 0) as unknown
            from (
                select
                    max(round) as newest,
                    argMax(previous_window, round) as window,
                    sumIf(flights_0, previous_window > 0) as flights
                from path_decisions final
                where part = 'start' and round > fromUnixTimestamp({newest:UInt32} - {span_s:UInt32})
                    and round <= fromUnixTimestamp({newest:UInt32})
                group by src_pop, destination, ip_version
            )
            where window > 0 and newest = fromUnixTimestamp({newest:UInt32})
            """,
            {"newest": newest, "span_s": _SEEN_ROUNDS * interval_s},
        )
        return Treated(**counts)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> tuple[list[BenefitLine], list[BenefitLine]]:
        if policy.experiment.kind == "share":
            return shares.lines(shares.read(store, span), policy), []
        # A share starts with the default where only its loss explains what is lost.
        own = "started_arm = 0 and started_window > 0"
        rest = "started_arm = 1 and started_window = 0 and started_rate = 0"
        counted = f"started_step = 0 and in_force and ({own} or {rest})"
        rows = beside.read(store, span, time="acked_100k_us", treated="started_arm = 0", counted=counted)
        return beside.lines(self.name, "time of 100 kB", rows), []

    def treated_step(self, found: Treated) -> Step:
        what = self.seen_name
        if not found.decided:
            return Step(what, State.NOTE, "nothing should start at a rate of its own")
        text = f"{found.same:,} of {found.decided:,} {self.units} have first flights that started as decided"
        return Step(what, State.OK if found.same else State.NOTE, text + f"; {found.unknown:,} show nothing")


START = Start()


def _seen(store: Store, policy: Policy, round_unix_s: int) -> tuple[Frame, Frame]:
    """OBSERVED rows, with their groups, of all units that the round shows or the last decisions remember, and these as
    PREVIOUS rows: what is not listed could borrow from its group."""
    shown = observe(store, round_unix_s, policy.start)
    # Some that were there are not now.
    last = STARTS.remembered(store, round_unix_s, len(shown) * 5 // 4)
    units, (at_shown, at_last) = placed(shown, last)
    unit_columns = {name: units.columns[name] for name, _ in UNIT_KEY}
    place_names, missing = [name for name, _ in PLACE], at_shown < 0
    place = taken_at(shown, place_names, at_shown)
    if missing.any():
        gone = places(store, [one.decode() for one in units["destination"][missing].tolist()])
        for name in place_names:
            place[name][missing] = gone[name]
    has_own = _flags(shown["share_connections"] > 0, at_shown) | _flags(last["share_weight"] > 0, at_last)
    group = group_names(store, units, place, has_own, regions(store), policy.start.group_units)
    columns = shown.columns
    listed = _flags(shown["listed"] > 0, at_shown)
    if units is not shown or not listed.all():
        columns = taken_at(shown, _EVIDENCE, np.where(listed, at_shown, -1), UNSEEN)
    return Frame(OBSERVED, {**columns, **unit_columns, "group": group}), last


def _flags(flags: Bits, at: NDArray[np.intp]) -> Bits:
    """Those of these rows; of row -1 none."""
    found = np.zeros(len(at), bool)
    found[at >= 0] = flags[at[at >= 0]]
    return found


def _runs(names: NDArray[np.bytes_] | Coded) -> NDArray[np.bytes_] | Coded:
    """The first of each run of equal names: tables are sorted by them."""
    return names[begins(names)]
