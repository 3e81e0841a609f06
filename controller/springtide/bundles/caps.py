"""Limits of what one publication may change at once, compared with what is current on the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from springtide import instants
from springtide._core import BESIDE
from springtide.bundles.model import Documents
from springtide.errors import Problem
from springtide.fleet import Fleet
from springtide.laws.entry import Part
from springtide.laws.start.policy import StartPolicy
from springtide.laws.switchback import disable_test, last_rounds, off_pairs
from springtide.policy import BundlePolicy, Policy

# An edge and a prefix.
Value = tuple[str, str]
What = TypeVar("What")
FIX = "look at `springtide diff`; if it is intended, use --force --reason TEXT"


@dataclass(frozen=True)
class Changes(Generic[What]):
    """Differences between two publications in values of one kind."""

    added: Mapping[Value, What]
    changed: Mapping[Value, tuple[What, What]]
    withdrawn: Mapping[Value, What]


def changes(old: Mapping[Value, What], new: Mapping[Value, What]) -> Changes[What]:
    return Changes(
        added={key: new[key] for key in new.keys() - old.keys()},
        changed={key: (old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]},
        withdrawn={key: old[key] for key in old.keys() - new.keys()},
    )


@dataclass(frozen=True)
class Values:
    """The values that connections start with: all of an entry, or those that are on trial."""

    window: int = 0
    start_rate: int | None = None
    connection_rate: int | None = None

    def is_near(self, other: Values, factor: float) -> bool:
        """True where no value is more than `factor` times the other, and none is there in one of them only."""
        ours, theirs = ((one.window or None, one.start_rate, one.connection_rate) for one in (self, other))
        pairs = zip(ours, theirs, strict=True)
        return all(a == b or (a is not None and b is not None and max(a, b) <= factor * min(a, b)) for a, b in pairs)


NO_VALUES = Values()
# Fields of an entry that are compared by a rule of their own; `prefix` is a start's key. How long a handshake waits and
# what is sent twice is no start: a tenth recovers as the kernel does, by which harm is seen.
_NAMED = frozenset(
    (
        *("prefix", "initcwnd", "start_rate", "connection_rate", "trial", "default_resent", "receive_window"),
        *("congestion", "handshake_timeout_ms", "copied_bytes", "parity_every"),
    )
)


@dataclass(frozen=True)
class Start(Values):
    """With what is on trial, for how many of a thousand connections (a trial without a window is the default's), and
    what else an entry has of connections' starts; `others`: fields that no rule here names, sorted."""

    permille: int = 0
    trial: Values = NO_VALUES
    default_resent: int = 0
    receive_window: int | None = None
    others: tuple[tuple[str, Any], ...] = ()

    @property
    def is_carried(self) -> bool:
        """True where a connection starts by it."""
        return bool(self.window or self.trial.window)


Starts = Mapping[Value, Start]


@dataclass(frozen=True)
class Difference(Changes[Start]):
    """Differences in starts: one whose window goes is withdrawn, though a trial may remain. `before` and `after` count
    those with a window, `carried` with what is on trial, `received` those that had a receive window."""

    before: int
    after: int
    carried: tuple[int, int]
    received: int


def starts(documents: Documents) -> dict[Value, Start]:
    """Starts by edge and prefix, where there is any window."""
    return {
        (edge, entry.prefix): start
        for edge, document in documents.items()
        for entry in document.bundle.entries
        if (start := _start(entry)).is_carried or start.receive_window
    }


def _start(entry: Part) -> Start:
    trial = entry.trial
    return Start(
        **_values(entry),
        permille=0 if trial is None else trial.permille,
        trial=NO_VALUES if trial is None else Values(**_values(trial)),
        default_resent=entry.default_resent or 0,
        receive_window=entry.receive_window,
        others=tuple((name, getattr(entry, name)) for name in sorted(vars(entry).keys() - _NAMED)),
    )


def _values(part: Part) -> dict[str, Any]:
    rates = {name: getattr(part, name) for name in ("start_rate", "connection_rate")}
    return {"window": part.initcwnd or 0, **rates}


def difference(before: Documents, after: Documents) -> Difference:
    old, new = starts(before), starts(after)
    gone = {key for key, start in old.items() if start.window and (key not in new or not new[key].window)}
    # By a receive window alone no connection starts here.
    added = {key for key, start in new.items() if key not in old or (start.is_carried and not old[key].is_carried)}
    both = (old.keys() & new.keys()) - gone - added
    return Difference(
        added={key: new[key] for key in added},
        changed={key: (old[key], new[key]) for key in both if old[key] != new[key]},
        withdrawn={key: old[key] for key in gone},
        before=sum(bool(start.window) for start in old.values()),
        after=sum(bool(start.window) for start in new.values()),
        carried=(sum(start.is_carried for start in old.values()), sum(start.is_carried for start in new.values())),
        received=sum(start.receive_window is not None for start in old.values()),
    )


@dataclass(frozen=True)
class Usual:
    """Bounds within which a start may move without being a change: the law of starts moves it so from round to round. A
    window in use counts whenever it moves, unless it was on trial, and so does what no rule names. A value on trial may
    be a step away from what was there."""

    rates: float
    step: float
    # Connections of a thousand that keep the default: those of the law, or all, where the experiment says so.
    untreated: int = BESIDE

    @classmethod
    def of(cls, law: StartPolicy, *, untreated: bool = False) -> Usual:
        return cls(1 + law.hysteresis, law.step, 1000 if untreated else BESIDE)

    def is_own_new(self, old: Start, new: Start) -> bool:
        is_same = old.window == new.window and old.is_near(new, self.rates)
        is_usual = is_same or new.is_near(old.trial, self.rates)
        return bool(new.window) and (old.others != new.others or not is_usual)

    def is_returned_new(self, old: Start, new: Start) -> bool:
        """True where what comes back is far from what rested. The law went on to learn meanwhile."""
        return bool(new.window) and not any(new.is_near(known, self.step) for known in (old, old.trial))

    def is_trial_new(self, old: Start, new: Start) -> bool:
        if not new.permille:
            return False
        if not new.trial.window:
            more = new.permille > self.rates * (0 if old.trial.window else old.permille)
            return more and new.permille > self.untreated
        if new.trial.is_near(old.trial, self.rates):
            return new.permille > self.rates * old.permille
        return not any(new.trial.is_near(known, self.step) for known in (old, old.trial))

    def is_brake_new(self, old: Start, new: Start) -> bool:
        """The more the default is said to lose, the later edges brake."""
        return new.default_resent > self.step * old.default_resent

    def is_receive_new(self, old: Start, new: Start) -> bool:
        """One that comes or goes does so with the window of another PoP."""
        mine, theirs = old.receive_window, new.receive_window
        return bool(mine and theirs) and not Values(mine or 0).is_near(Values(theirs or 0), self.step)


@dataclass(frozen=True)
class ByDesign:
    """The policy's experiment in a difference: how many routes it withdraws, and what it had switched off before. `due`
    is the part of `resting` that is to be back now; `returned` is back, as (what rested, what came back)."""

    withdrawn: int = 0
    resting: Starts = field(default_factory=dict)
    due: Starts = field(default_factory=dict)
    returned: Mapping[Value, tuple[Start, Start]] = field(default_factory=dict)

    @property
    def due_routes(self) -> int:
        return sum(bool(start.window) for start in self.due.values())

    @property
    def missing(self) -> int:
        """Routes that are due with a window and did not come back with one."""
        return self.due_routes - sum(bool(old.window and new.window) for old, new in self.returned.values())


class Turns:
    """Routes that the policy's experiment switches off. They are known by it alone, and not by what was decided. A
    route counts by its source PoP, and the PoP that owns its prefix. A client's prefix, which no PoP owns, is off in
    disable tests only."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._law, self._interval_s = policy.experiment, policy.round.interval_s
        self._pops, self._edges = fleet.pops, fleet.edges()
        self._owners = {str(prefix): pop for prefix, pop in fleet.prefixes()}
        self._off: dict[int, frozenset[tuple[str, str]]] = {}

    def off(self, round_unix_s: int) -> frozenset[tuple[str, str]]:
        """(source PoP, owner or nothing) that are off."""
        if round_unix_s not in self._off:
            found = off_pairs(self._law, self._interval_s, self._pops, round_unix_s)
            if disable_test(self._law, round_unix_s) is not None:
                found |= {(pop, "") for pop in self._pops}
            self._off[round_unix_s] = found
        return self._off[round_unix_s]

    def pair(self, value: Value) -> tuple[str, str]:
        edge, prefix = value
        return self._edges.get(edge, ""), self._owners.get(prefix, "")

    def last_on(self, round_unix_s: int) -> dict[int, set[tuple[str, str]]]:
        """When those that are off in a round were on last: the last round before each of its own turns."""
        found: dict[int, set[tuple[str, str]]] = {}
        waiting = set(self.off(round_unix_s))
        for moment in last_rounds(self._law, self._interval_s, round_unix_s):
            if on := waiting - self.off(moment):
                found[moment] = on
                waiting -= on
        return found


def by_design(found: Difference, before: Documents, after: Documents, turns: Turns, resting: Starts) -> ByDesign:
    """By the turns of each bundle's own round: whatever else is gone counts as ever. `resting` was switched off in
    `before`: that whose turn is over is to be there again, about as it was."""

    def is_off(value: Value, documents: Documents) -> bool:
        document = documents.get(value[0])
        return document is not None and turns.pair(value) in turns.off(instants.parse(document.bundle.round))

    due = {value: start for value, start in resting.items() if value[0] in after and not is_off(value, after)}
    return ByDesign(
        withdrawn=sum(is_off(value, after) for value in found.withdrawn),
        resting=resting,
        due=due,
        returned={value: (due[value], found.added[value]) for value in due.keys() & found.added.keys()},
    )


def choices(documents: Documents) -> dict[Value, Part]:
    """Congestion controls that clients get, by edge and prefix."""
    return {
        (edge, prefix): choice
        for edge, document in documents.items()
        for prefix, choice in document.bundle.congestion.items()
    }


def congestion_problems(where: str, before: Documents, after: Documents, policy: BundlePolicy) -> Iterator[Problem]:
    """As `problems`. What is added needs no cap: the law itself lets in congestion.max_new a round and PoP."""
    old, limit = choices(before), policy.max_congestion_withdrawn_share
    found = changes(old, choices(after))
    moved = len(found.withdrawn) + len(found.changed)
    clients = {(before[edge].bundle.pop, prefix) for edge, prefix in old}
    if len(clients) >= policy.caps_from_routes and moved > limit * len(old):
        message = f"{moved} of {len(old)} edges' client prefixes leave BBR or have it otherwise, over "
        message += f"bundle.max_congestion_withdrawn_share = {limit}"
        yield Problem(where, "cap max_congestion_withdrawn_share", message, FIX)


NOTHING = ByDesign()
USUAL = Usual.of(StartPolicy())


def problems(
    where: str, found: Difference, policy: BundlePolicy, designed: ByDesign = NOTHING, usual: Usual = USUAL
) -> Iterator[Problem]:
    """Changes above a cap. A fleet with fewer than `caps_from_routes` routes is learning, and has none. Caps hold for
    the routes with which the experiment does nothing, or that it gives back; what is on trial is judged beside them,
    so that neither hides the other. A fleet's growth is that of all its routes, those that rest included."""
    withdrawn = len(found.withdrawn) - designed.withdrawn + designed.missing
    besides = f" besides {designed.withdrawn} that the experiment switches off" if designed.withdrawn else ""
    moved = [(usual.is_own_new, *pair) for pair in found.changed.values()]
    moved += [(usual.is_returned_new, *pair) for pair in designed.returned.values()]
    in_use = sum(bool(old.window) and is_new(old, new) for is_new, old, new in moved)
    of_all = sum(
        is_new(old, new) or usual.is_trial_new(old, new) or usual.is_brake_new(old, new) for is_new, old, new in moved
    )
    routes = found.before - designed.withdrawn + designed.due_routes
    carried = found.carried[0] - designed.withdrawn + len(designed.due)
    shares = (
        ("max_changed_share", "routes are changed or withdrawn", in_use + withdrawn, routes),
        ("max_withdrawn_share", "routes are withdrawn", withdrawn, routes),
        ("max_changed_share", "routes and trials are changed or withdrawn", of_all + withdrawn, carried),
    )
    held_back = set()
    for key, what, count, before in shares:
        limit = getattr(policy, key)
        least = before + designed.withdrawn >= policy.caps_from_routes
        if least and key not in held_back and count > limit * before:
            held_back.add(key)
            message = f"{count} of {before} {what}{besides}, over bundle.{key} = {limit}"
            yield Problem(where, f"cap {key}", message, FIX)
    receive, limit = sum(usual.is_receive_new(*pair) for pair in found.changed.values()), policy.max_changed_share
    if found.received >= policy.caps_from_routes and receive > limit * found.received:
        message = f"{receive} of {found.received} receive windows are changed, over bundle.max_changed_share = {limit}"
        yield Problem(where, "cap max_changed_share", message, FIX)
    before, after = (count + len(designed.resting) for count in found.carried)
    after += designed.withdrawn - len(designed.due)
    if before >= policy.caps_from_routes and after > policy.max_growth * before:
        message = f"{before} routes become {after}, over bundle.max_growth = {policy.max_growth}"
        yield Problem(where, "cap max_growth", message, FIX)
