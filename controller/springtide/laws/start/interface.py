"""The law of starts as the rest of Springtide meets it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws import base, beside
from springtide.laws.columns import Bits, taken_at
from springtide.laws.effect import BenefitLine
from springtide.laws.standing import standing
from springtide.laws.start import bundle, shares
from springtide.laws.start.evidence import OBSERVED, SHOWN, Parts, edge_parts, observe
from springtide.laws.start.explain import became, labelled
from springtide.laws.start.groups import PLACE, places, regions
from springtide.laws.start.groups import named as group_names
from springtide.laws.start.law import PREVIOUS, STARTS, UNSEEN, decide
from springtide.laws.units import UNIT_KEY, placed
from springtide.metrics import Gauges, Metric
from springtide.policy import Policy
from springtide.store import Row, Store

# Rounds in which a connection between two places that talk is expected.
_SEEN_ROUNDS = 3
# An edge's part of a unit's starts is that of the last hour.
_PARTS_ROUNDS = 12
# With values, beside the default: of an entry and its trial one has values, and which of the two tells draws apart. To
# what sent its handshake again nothing is given on either side.
_BESIDE = beside.Compared(
    "start",
    "time of 100 kB",
    "acked_100k_us",
    treated="started_window > 0",
    counted="handshake_resent = 0 and started_step = 0 and (started_window > 0 or started_rate = 0 and "
    "(started_arm = 1 or started_prefix_length > 0))",
    drawn="(started_arm = 0) = (started_window > 0)",
)
# Columns that a round shows, without those that say of whom.
_EVIDENCE = [name for name in OBSERVED.names or () if name in (SHOWN.names or ()) and OBSERVED[name].kind != "S"]


class Start(base.Law):
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
    does = " start at a rate"
    idle = "no edge enforces by bpf, or nothing was decided yet"
    acts = "window > 0 or trial_permille > 0"
    expires = f"({acts}) and not overridden"
    values = ("window", "connection_rate")
    changes = "window != previous_window or coalesce(connection_rate, 0) != coalesce(previous_connection_rate, 0)"
    damped = True
    metrics: Mapping[str, Metric] = MappingProxyType(
        {"springtide_start_units": Metric("Pairs and client prefixes with a start of their own.", ("state",))}
    )
    history = (
        *("round", "ip_version", "action", "reason", "window", "connection_rate", "path_rate", "trial_window"),
        *(("trial_rate", "trial_connection_rate"), "flights_0", "lossy_0", "flights_1", "lossy_1", "policy_version"),
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

    def decide(self, now: int, policy: Policy, seen: Frame, before: Frame, frozen: Collection[str]) -> Frame:
        found = decide(now, policy, seen, before, seen, frozen)
        return found if policy.paces(now) else found[:0]

    def summed(self, rows: Sequence[Row]) -> tuple[str, Gauges]:
        states = {
            "set": sum(row["window"] > 0 for row in rows),
            "trial": sum(bool(row["trial_window"]) for row in rows),
        }
        gauges: Gauges = {"springtide_start_units": {(("state", name),): count for name, count in states.items()}}
        return f"{states['set']} start at a rate of their own, {states['trial']} have values on trial", gauges

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> base.Explained:
        recent = self.recent(store, policy, src_pop, destination, round_unix_s)
        decided = recent[recent["round"] == round_unix_s]
        held = became(policy, src_pop, standing(store, fleet, policy, src_pop))
        parts, ends = _parts(store, policy, round_unix_s, decided), round_unix_s + policy.bundle.ttl_s
        lines = []
        for row in STARTS.rows(decided):
            entries, _ = bundle.entries(fleet, policy, round_unix_s, [row], parts, ends)
            edges = {edge: entries[edge] for edge in fleet.pops[src_pop].edges}
            lines.append((row["ip_version"], labelled(row, policy, held, edges)))
        because = "no connection between the two was seen, and nothing is remembered"
        change = "connections between the two, polled by a collector and ingested"
        nothing = self.undecided(store, round_unix_s, "the kernel's default", held, because, change)
        return self.explained(recent, round_unix_s, lines, nothing)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> base.Contribution:
        decided = STARTS.newest(store, round_unix_s, policy.bundle.ttl_s)
        parts = _parts(store, policy, round_unix_s, decided)
        listed = STARTS.rows(bundle.by_gain(decided))
        entries, left_out = bundle.entries(fleet, policy, round_unix_s, listed, parts, expires_unix_s)
        return base.Contribution(entries, "bpf", left_out)

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> base.Treated:
        """By the records of first flights, which name the round that they started by: what starts with values of its
        own since the newest round, and has records of it in any of the last rounds: few connect in every one."""
        newest = STARTS.last_round(store, newest_round_unix_s + 1)
        if not newest:
            return base.Treated()
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
        return base.Treated(**counts)

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> list[BenefitLine]:
        lines = _BESIDE.lines(store, span)
        if policy.experiment.kind == "share":
            lines += shares.lines(store.query(shares.FLIGHTS, span), policy)
        return lines

    def treated_step(self, found: base.Treated) -> base.Step:
        what = self.seen_name
        if not found.decided:
            return base.Step(what, base.State.NOTE, "nothing should start at a rate of its own")
        text = f"{found.same:,} of {found.decided:,} {self.units} have first flights that started as decided"
        state = base.State.OK if found.same else base.State.NOTE
        return base.Step(what, state, f"{text}; {found.unknown:,} show nothing")


START = Start()


def _parts(store: Store, policy: Policy, round_unix_s: int, decided: Frame) -> Parts:
    since = round_unix_s - _PARTS_ROUNDS * policy.round.interval_s
    return edge_parts(store, round_unix_s, since, decided)


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
