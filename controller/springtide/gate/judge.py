"""After a wave: do new connections of the changed edges fare worse than new ones before? Go, wait or roll back.

A window or an algorithm acts on connections that begin after it was set: old ones show nothing of it. So new is
compared with new, by connections and not by bytes: those that changed edges opened after the wave with those that they
opened before the rollout, and this rise with that of unchanged edges, over the same minutes. What affected the whole
fleet is not the wave's fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from springtide._core import KERNEL_DEFAULT
from springtide.bundles.model import Bundle
from springtide.gate.proportions import NOTHING, Interval, Share, effective, pooled, rise, spread
from springtide.policy import GatePolicy

# A full segment on Ethernet.
_SEGMENT_BYTES = 1460
# The last record counts for a client's connection, which uses another algorithm only after its first bytes.
_NEVER = 2**62


class Verdict(StrEnum):
    GO = "go"
    WAIT = "wait"
    ROLL_BACK = "roll back"


class Kind(StrEnum):
    """A way in which the publication changes a destination."""

    # Routes whose window differs, and those that keep theirs.
    WINDOWS = "windows"
    KEPT = "kept"
    # Client prefixes whose congestion control differs.
    CLIENTS = "clients"


@dataclass(frozen=True)
class Tally:
    """New connections of one edge in one window, and their outcomes: each counts once."""

    connections: int = 0
    # Two first flights at most were acknowledged when they were judged; and that lost any of it.
    young: int = 0
    young_lost: int = 0
    # More was; and that sent more than gate.lossy_share again.
    grown: int = 0
    grown_lossy: int = 0
    # Connections whose kernel counts retransmission timeouts; those that had one.
    timed: int = 0
    timed_out: int = 0
    # Connections that were tried; those that got no answer.
    tried: int = 0
    failed: int = 0
    # Connections whose RTT is known, and the usual RTT to there; those beyond gate.max_rtt_ratio of the usual one.
    measured: int = 0
    slow: int = 0


@dataclass(frozen=True)
class Signal:
    """A share of new connections that must not rise."""

    name: str
    hits: str
    of: str
    most: str
    # The signal's part of a question's error budget.
    weight: float
    words: str

    def share(self, tally: Tally) -> Share:
        return Share(getattr(tally, self.hits), getattr(tally, self.of))


LOST = Signal("lost", "young_lost", "young", "max_lost_rise", 1 / 2, "lost of their first flight")
LOSSY = Signal("lossy", "grown_lossy", "grown", "max_lossy_rise", 1 / 8, "sent much again")
OTHERS = (
    Signal("timeouts", "timed_out", "timed", "max_timeout_rise", 1 / 8, "had a retransmission timeout"),
    Signal("failed", "failed", "tried", "max_failed_rise", 1 / 8, "got no answer"),
    Signal("slow", "slow", "measured", "max_slow_rise", 1 / 8, "had an RTT above what is usual"),
)


@dataclass(frozen=True)
class Question:
    """Destinations that are looked at together, and their part of the error budget; the parts' sum is 1."""

    name: str
    kinds: frozenset[Kind]
    signals: tuple[Signal, ...]
    weight: float
    words: str


QUESTIONS = (
    # Undiluted by destinations that keep their window; and all of them, where few connections go to those that do not.
    Question("windows", frozenset({Kind.WINDOWS}), (LOST, LOSSY, *OTHERS), 1 / 2, "new connections"),
    Question("routes", frozenset({Kind.WINDOWS, Kind.KEPT}), (LOST, LOSSY, *OTHERS), 1 / 4, "new connections"),
    Question("clients", frozenset({Kind.CLIENTS}), (LOSSY, *OTHERS), 1 / 4, "new connections of clients"),
)
# A test needs so many connections, as a part of min_connections: with fewer, intervals miss too often.
_TESTED_SHARE = 5
# Unchanged edges that show a spread of their own; and what connections of one edge and minute have in common at most
# where fewer do.
_FEWEST_PAIRS, _USUAL_SPREAD = 3, 0.02

Windows = Mapping[str, Tally]
# Groups of shares: whether of changed edges, and in which window.
GROUPS = {
    "changed_before": (True, "before"),
    "changed_after": (True, "after"),
    "unchanged_before": (False, "before"),
    "unchanged_after": (False, "after"),
}
# Group -> edge -> share.
Groups = Mapping[str, Mapping[str, Share]]


@dataclass(frozen=True)
class Inputs:
    """Tallies `before` and `after`, by kind, group of edges and edge; without connections there is none."""

    # (kind, whether the edge has new values for it) -> edge -> window -> tally.
    tallies: Mapping[tuple[Kind, bool], Mapping[str, Windows]] = field(default_factory=dict)
    # Seconds from each changed edge's last sample to the end of the window; None: no sample.
    silence_s: Mapping[str, float | None] = field(default_factory=dict)
    # The wave, and the number that this look at enough connections would have within it.
    wave: int = 1
    look: int = 1


@dataclass(frozen=True)
class Test:
    """One share in each of GROUPS; how much it rose on changed edges beyond unchanged ones."""

    question: Question
    signal: Signal
    shares: Mapping[str, Share]
    compared: bool
    chance: float
    bound: float
    rise: Interval
    # The edge with the most hits after, and its share.
    worst: tuple[str, Share]

    def is_harm(self) -> bool:
        return self.rise.low > self.bound

    def words(self) -> str:
        before, after, others_before, others_after = (self.shares[name] for name in GROUPS)
        seen = f"{after} {self.question.words} {self.signal.words}, {before} before; "
        other = f"unchanged edges {others_after} and {others_before}"
        return seen + (other if self.compared else "no unchanged edges to compare with")

    def details(self) -> dict[str, Any]:
        def pair(share: Share) -> dict[str, float]:
            return {"hits": round(share.hits, 3), "of": round(share.of, 3)}

        edge, share = self.worst
        return {
            **{name: pair(one) for name, one in self.shares.items()},
            **{"compared": self.compared, "rise": self.rise.estimate, "at_least": self.rise.low},
            **{"most": self.bound, "chance": self.chance, "harm": self.is_harm()},
            "worst": {"edge": edge, **pair(share)},
        }


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    reason: str
    # Whether harm was looked for: each time spends of the error budget.
    judged: bool
    # New ones of the changed edges since the wave, of each edge as many as count.
    connections: float
    tests: tuple[Test, ...] = ()

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = {"judged": self.judged, "connections": round(self.connections, 3)}
        for test in self.tests:
            found.setdefault(test.question.name, {})[test.signal.name] = test.details()
        return found


def chance_of_look(wave: int, look: int, policy: GatePolicy) -> float:
    """The part of the error budget that a look may spend: the canaries half of it, each wave half of the one before,
    and within a wave each look half of the one before. The sum stays below the budget however many there are (alpha
    spending: K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983, with a geometric function of waves and looks)."""
    return float(policy.max_false_roll_backs * 0.5**wave * 0.5**look)


def decide(inputs: Inputs, policy: GatePolicy) -> Judgement:
    """The verdict and its reason. Harm counts at once, its absence only with enough new connections."""
    seen = _shares(inputs, Kind, "changed_after", lambda tally: Share(0, tally.young + tally.grown))
    counted = pooled(seen.values(), policy.max_host_ratio, policy.min_connections).of
    enough = counted >= policy.min_connections
    tests = tuple(_tests(inputs, policy)) if enough else ()
    harm = [test for test in tests if test.is_harm()]
    if harm:
        clearest = max(harm, key=lambda test: test.rise.low - test.bound)
        reason = f"{clearest.words()}: a rise of {clearest.rise.low:.1%} at least, more than {clearest.bound:.1%}"
        if len(inputs.silence_s) > 1:
            reason += f"; most on {clearest.worst[0]}: {clearest.worst[1]}"
        return Judgement(Verdict.ROLL_BACK, reason, enough, counted, tests)
    silent = sorted(
        edge for edge, silence in inputs.silence_s.items() if silence is None or silence > policy.max_silence_s
    )
    if silent:
        reason = f"no samples within {policy.max_silence_s} s from {', '.join(silent)}"
        return Judgement(Verdict.WAIT, reason, enough, counted, tests)
    if not enough:
        reason = f"{counted:.0f} of {policy.min_connections} new connections on changed edges"
        total = sum(share.of for share in seen.values())
        if total >= policy.min_connections:
            reason += f": {total:.0f} were seen, and no edge counts for much more than the others"
        return Judgement(Verdict.WAIT, reason, enough, counted, tests)
    shown = next((test for test in tests if test.shares["changed_after"].of > 0), None)
    what = shown.words() if shown is not None else f"{counted:.0f} new connections"
    return Judgement(Verdict.GO, f"no worse: {what}", enough, counted, tests)


def _tests(inputs: Inputs, policy: GatePolicy) -> Iterator[Test]:
    for question in QUESTIONS:
        for signal in question.signals:
            groups = {name: _shares(inputs, question.kinds, name, signal.share) for name in GROUPS}
            sums = _pooled(groups, policy)
            if sums["changed_after"].of * _TESTED_SHARE < policy.min_connections:
                continue
            chance = chance_of_look(inputs.wave, inputs.look, policy) * question.weight * signal.weight
            compared = min(sums["unchanged_before"].of, sums["unchanged_after"].of) >= policy.min_connections
            shown = _pooled(groups, policy, _spread(groups, compared=compared))
            control = rise(shown["unchanged_before"], shown["unchanged_after"], chance) if compared else NOTHING
            beyond = rise(shown["changed_before"], shown["changed_after"], chance).minus(control)
            worst = max(groups["changed_after"].items(), key=lambda item: (item[1].hits, item[0]))
            yield Test(question, signal, sums, compared, chance, getattr(policy, signal.most), beyond, worst)


def _pooled(groups: Groups, policy: GatePolicy, common: float = 0.0) -> dict[str, Share]:
    return {
        name: pooled((effective(one, common) for one in own.values()), policy.max_host_ratio, policy.min_connections)
        for name, own in groups.items()
    }


def _spread(groups: Groups, *, compared: bool) -> float:
    """The spread of unchanged edges, from before to after.

    Either of two edges could excuse what it wants. So with fewer than three, edges are also compared beside each other,
    as they were before. These may differ for good: no more than the usual spread counts then."""
    old, new = (groups["unchanged_before"], groups["unchanged_after"]) if compared else ({}, {})
    pairs = [(share, new[edge]) for edge, share in old.items() if edge in new]
    if len(pairs) >= _FEWEST_PAIRS:
        return spread(pairs)
    before = [*groups["changed_before"].values(), *old.values()]
    return min(spread([*pairs, *zip(before[::2], before[1::2], strict=False)]), _USUAL_SPREAD)


def _shares(inputs: Inputs, kinds: Iterable[Kind], group: str, of: Callable[[Tally], Share]) -> dict[str, Share]:
    """Each edge's share, over these kinds of destinations."""
    changed, window = GROUPS[group]
    found: dict[str, Share] = {}
    for kind in kinds:
        for edge, windows in inputs.tallies.get((kind, changed), {}).items():
            known, more = found.get(edge, Share()), of(windows.get(window, Tally()))
            found[edge] = Share(known.hits + more.hits, known.of + more.of)
    return {edge: share for edge, share in found.items() if share.of > 0}


@dataclass(frozen=True)
class Destination:
    """A prefix to which an edge's new connections are looked at."""

    network: str
    kind: Kind
    # Acknowledged bytes that show that the first flight is over, and up to which a connection is young.
    flight: int
    young: int


def destinations(before: Mapping[str, Bundle], after: Mapping[str, Bundle]) -> dict[str, tuple[Destination, ...]]:
    """Destinations that each edge's bundles name, before (`back`) and after, by edge.

    The first flight is that of the larger window: the same bytes count before and after.
    """
    found = {}
    for edge in before.keys() | after.keys():
        sides = before.get(edge), after.get(edge)
        windows = [_starts(side) if side else {} for side in sides]
        choices = [_congestion_controls(side) if side else {} for side in sides]
        of_edge = []
        for prefix in sorted(windows[0].keys() | windows[1].keys()):
            pair = windows[0].get(prefix), windows[1].get(prefix)
            flight = max(KERNEL_DEFAULT, *(window for window, _ in (one for one in pair if one))) * _SEGMENT_BYTES
            kind = Kind.KEPT if pair[0] == pair[1] else Kind.WINDOWS
            of_edge.append(Destination(prefix, kind, flight, 2 * flight))
        for prefix in sorted(choices[0].keys() | choices[1].keys()):
            choice = choices[0].get(prefix), choices[1].get(prefix)
            if choice[0] != choice[1] and prefix not in windows[0].keys() | windows[1].keys():
                least = min(bytes_ for _, bytes_, _ in (one for one in choice if one is not None))
                of_edge.append(Destination(prefix, Kind.CLIENTS, _NEVER, max(0, least - 1)))
        found[edge] = tuple(of_edge)
    return found


def _starts(bundle: Bundle) -> dict[str, tuple[int, object]]:
    """Prefix -> window (0 where there is none), and what else a connection to it starts with; None by routes."""
    if bundle.by == "routes":
        return {prefix: (window, None) for prefix, window in bundle.windows.items()}
    return {
        one.prefix: (one.largest_window, (one.start_rate, one.connection_rate, one.trial))
        for one in bundle.entries
        if (one.initcwnd, one.start_rate, one.trial) != (None, None, None)
    }


def _congestion_controls(bundle: Bundle) -> dict[str, tuple[str, int, bool]]:
    """Prefix -> algorithm, from how many bytes on it acts, and whether it acts at all."""
    found = {}
    for prefix, one in bundle.congestion.items():
        # By routes from the first byte on, or never.
        least = 0 if bundle.by == "routes" and one.always else one.from_bytes
        found[prefix] = one.algorithm, least, bundle.by == "bpf" or least == 0
    return found


def looked_at(
    of_edges: Mapping[str, Sequence[Destination]], pops: Mapping[str, str], changed: Iterable[str]
) -> dict[str, tuple[tuple[Destination, bool], ...]]:
    """The destinations whose new connections are read, by edge, and whether they have new values there.

    An unchanged edge is one to compare with, towards what any edge of its PoP has; so is a changed one as for the kinds
    of which it has nothing itself, since it holds out.
    """
    of_pops: dict[str, dict[str, Destination]] = defaultdict(dict)
    for edge, found in sorted(of_edges.items()):
        for one in found:
            known = of_pops[pops.get(edge, "")].get(one.network)
            if known is None or known.kind is Kind.KEPT:
                of_pops[pops.get(edge, "")][one.network] = one
    now_changed = set(changed)
    result = {}
    for edge in of_edges:
        own = of_edges[edge] if edge in now_changed else ()
        kinds = {one.kind for one in own}
        if Kind.WINDOWS in kinds or Kind.KEPT in kinds:
            kinds |= {Kind.WINDOWS, Kind.KEPT}
        others = (one for one in of_pops[pops.get(edge, "")].values() if one.kind not in kinds)
        result[edge] = (*((one, True) for one in own), *((one, False) for one in others))
    return result
