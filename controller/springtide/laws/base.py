"""A law as the rest of Springtide sees it: decide, replay, explain, status and report meet every law through `Law`.

Long: one protocol, with what its methods give and take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np

from springtide import instants
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.laws.columns import Rows, begins
from springtide.laws.effect import BenefitLine
from springtide.laws.entry import Part
from springtide.laws.rows import Decisions
from springtide.laws.units import keys
from springtide.metrics import Gauges, Metric
from springtide.observe.completeness import Input, inputs, lacking
from springtide.policy import Policy
from springtide.store import Row, Store

# Values by the key of their unit.
Values = dict[bytes, tuple[float, ...]]
# Lines of an explanation, each with its label.
Lines = list[tuple[str, str]]
# Rounds that `explain` shows.
HISTORY_ROUNDS = 12
# A job that runs once a round has left one out.
LATE_ROUNDS = 2


@dataclass(frozen=True)
class Outcome:
    """A law's round: `decided` are its DECIDED rows, `thin` the PoPs that kept their last decisions, each with the
    reason; `written`: rows in the store had to change."""

    round: int
    inputs: Sequence[Input]
    thin: Mapping[str, str]
    decided: Rows
    written: bool


@dataclass(frozen=True)
class View:
    """A round's decisions as `springtide decide` shows them.

    `decisions` and `more` are for JSON, `columns` and `rows` the table for people, `summary` goes on
    after how many decisions were written, `notes` are lines of their own.
    """

    decisions: Sequence[Mapping[str, object]]
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    summary: str
    gauges: Gauges
    more: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Explained:
    """Why new connections start as they do, as `springtide explain` shows it: of each IP version (None: of both) lines,
    each with its label. `decisions` are the round's rows, `history` those of the last rounds, the newest first, and
    `table` what people see of them; `notes` are for people, `more` is for JSON."""

    lines: Sequence[tuple[int | None, Lines]]
    decisions: Sequence[Mapping[str, object]]
    history: Sequence[Mapping[str, object]]
    table: Sequence[Mapping[str, object]]
    notes: Sequence[str] = ()
    more: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """One round of one law under another policy. Values: windows or starts that are set, or prefixes that use BBR.

    What is recorded is None in a round that was never decided.
    """

    law: str
    round: int
    values: int
    changed: int
    recorded_values: int | None = None
    recorded_changed: int | None = None
    # Pairs or prefixes for which the replayed value is another than the recorded one.
    different: int | None = None


@dataclass(frozen=True)
class Newest:
    """The newest round of a law: its rows, how many of them act, and how many stand because input was incomplete.

    `left_out`: of those that act, how many no bundle carries, because they would expire before it.
    """

    round: int
    rows: int
    acting: int
    held_incomplete: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Treated:
    """Counts of units that should have a treatment: those that show that they have it, or have it not, or show nothing.

    Units are an edge with a destination PoP and IP version, or client prefixes of a PoP. `controls`: units that
    should have the kernel's default, and show that they have the treatment. `examples` of `differs`.
    """

    same: int = 0
    differs: int = 0
    unknown: int = 0
    controls: int = 0
    examples: Sequence[str] = ()

    @property
    def decided(self) -> int:
        return self.same + self.differs + self.unknown


@dataclass(frozen=True)
class Figure:
    """A plot of the report: rows with `round_s` and the columns of `scales`, each with the factor to its unit."""

    name: str
    title: str
    note: str
    scales: Mapping[str, float]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Contribution:
    """Part of a round's bundles that a law gives: each edge's entries, of which the first gain most.
    `by`: only edges that enforce so get them; without, all. `left_out` names units whose evidence is too old for a
    bundle's lifetime."""

    entries: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    by: Literal["", "routes", "bpf"] = ""
    left_out: Sequence[str] = ()


class State(StrEnum):
    """`OK` and `NOTE` let the loop close; with `NONE` it has not begun; `STALE` is late, `BROKEN` needs somebody."""

    OK = "ok"
    NOTE = "note"
    NONE = "none"
    STALE = "stale"
    BROKEN = "broken"


@dataclass(frozen=True)
class Step:
    """One step of the loop. `at_unix_s` is when it last happened; `fix` is empty where nothing needs doing."""

    what: str
    state: State
    text: str
    fix: str = ""
    at_unix_s: int | None = None

    @property
    def closes(self) -> bool:
        return self.state in (State.OK, State.NOTE)


@dataclass(frozen=True)
class Clock:
    """Now, and how rounds follow each other; seconds."""

    now: int
    interval_s: int
    lateness_s: int

    @property
    def limit_s(self) -> int:
        """The age from which something that happens once a round is late."""
        return LATE_ROUNDS * self.interval_s + self.lateness_s

    def is_ahead(self, moment: int) -> bool:
        """Whether it comes from a clock that was ahead."""
        return moment > self.now + instants.CLOCK_TOLERANCE_S

    def ago(self, moment: int) -> str:
        return f"{age(moment - self.now)} in the future" if self.is_ahead(moment) else f"{age(self.now - moment)} ago"


class Law(Protocol):
    """One control law: inherit from it, and override what differs from the defaults here, which are those of a law that
    remembers nothing and sets nothing. What reads or writes the store raises StoreError.

    `name` is its word in commands, tasks, metrics and the policy, `decisions` its rows in the store. `title` and `help`
    are for people, `units` what it decides on.
    """

    name: str
    decisions: Decisions
    title: str
    help: str
    units: str
    # Whether a round without decisions is one that was left out: else the law had nothing to decide.
    every_round: bool = True
    # SQL conditions over its rows, for counts in `status` and panels: that a row sets a value; that it sets one by
    # evidence, so that bundles leave it out where it expires before them; and that it sets another one than the round
    # before (empty: rows do not tell). `damped`: its rows have the column `suppressed`.
    acts: str = "true"
    expires: str = "false"
    changes: str = ""
    damped: bool = False
    # Columns of the values that it sets, which are above 0 where it does.
    values: Collection[str] = ()
    # Columns by whose values `decide` counts rows for people, and those that `explain` shows of the last rounds; with
    # the name that people read, where it is another.
    counted: Sequence[str | tuple[str, str]] = (("from", "src_pop"), "action", "reason")
    history: Sequence[str | tuple[str, str]] = ()
    # Its line in `status`: what units do that act, what is said where nothing was decided, and what it is where the
    # newest round is late.
    does: str = ""
    idle: str = "nothing decided yet"
    late: State = State.STALE
    # Gauges of its own, which `view` fills.
    metrics: Mapping[str, Metric] = MappingProxyType({})
    # Its line in `status` on what sockets show of its treatment; empty: it treats nothing.
    seen_name: str = ""
    # The treatment's benefit: its line in `status`, and its heading and note in the report.
    benefit_name: str = ""
    benefit_title: str = ""
    benefit_note: str = ""
    # Kinds of destinations that it explains: "pop", another PoP, or "prefix", a client prefix.
    explains: Collection[str] = ()
    # Caveats of its part of the report.
    caveats: Sequence[str] = ()

    def observe(self, store: Store, policy: Policy, round_unix_s: int) -> tuple[Rows, Rows]:
        """The round's evidence and what earlier decisions left, as `decide` takes them."""
        ...

    def pops(self, seen: Rows, before: Rows) -> set[str]:
        """The PoPs whose hosts the round's decisions rest on: those of all rows."""
        return pops_of(seen) | pops_of(before)

    def decide(self, now: int, policy: Policy, seen: Rows, before: Rows, frozen: Collection[str]) -> Rows:
        """The round's decisions. Pure. `frozen`: PoPs from which too little of the round arrived to be trusted."""
        ...

    def read(self, store: Store, round_unix_s: int) -> Rows:
        """A round's decisions as they are in the store."""
        return self.decisions.read_round(store, round_unix_s)

    def write(self, store: Store, policy: Policy, round_unix_s: int, decided: Rows) -> bool:
        """Make the round's rows these. Gives back whether anything had to be written."""
        return self.decisions.write_round(store, round_unix_s, decided, policy.version)

    def acting(self, decided: Rows) -> Values:
        """The values that a round's decisions set, by the unit's key."""
        values = [np.nan_to_num(decided[name]) for name in self.values]
        acts = np.logical_or.reduce([one > 0 for one in values])
        found = zip(*(one[acts].tolist() for one in values), strict=True)
        return dict(zip(keys(decided[acts]).tolist(), found, strict=True))

    def latest(self, store: Store, until_unix_s: int) -> int | None:
        """The newest round up to `until` that has decisions."""
        return self.decisions.last_round(store, until_unix_s + 1, within_s=until_unix_s + 1) or None

    def view(self, outcome: Outcome, fleet: Fleet, policy: Policy) -> View:
        """The round's rows, for people only how many are alike."""
        rows = list(self.decisions.rows(outcome.decided))
        counted = _named(self.counted)
        counts = Counter(tuple(row[name] for name in counted.values()) for row in rows)
        summary, gauges = self.summed(rows)
        return View(
            decisions=[{"round": outcome.round, **self.decisions.as_dict(row)} for row in rows],
            columns=[*counted, self.units],
            rows=[(*key, count) for key, count in sorted(counts.items())],
            summary=summary,
            gauges=gauges,
        )

    def summed(self, rows: Sequence[Row]) -> tuple[str, Gauges]:
        """Tell how many of a round's rows set what, in words and in its `metrics`."""
        raise TypeError(f"the law {self.name} has the view of all laws, and no summary of it")

    def decides(self, policy: Policy, round_unix_s: int) -> bool:
        """Tell whether the law decides in a round under this policy."""
        return True

    def shown(self, store: Store, policy: Policy, round_unix_s: int) -> Rows:
        """A round's evidence, whatever the store remembers of earlier rounds."""
        return self.observe(store, policy, round_unix_s)[0]

    def carried(self, store: Store, policy: Policy, since_unix_s: int) -> Callable[[Rows, int, int], Rows]:
        """The way in which a replay since a round carries its own decisions: those of a round, its instant and the next
        one's give what `decide` takes as `before`."""
        return lambda decided, moment, _: self.decisions.carry(decided, moment)

    def replay(self, store: Store, policy: Policy, moments: Sequence[int]) -> Iterator[Replayed]:
        """These rounds under a policy, each after the one before it."""
        before = self.observe(store, policy, moments[0])[1]
        carry = self.carried(store, policy, moments[0])
        last_recorded = self.acting(self.read(store, self.decisions.last_round(store, moments[0])))
        last = last_recorded
        for moment, following in zip(moments, (*moments[1:], moments[-1]), strict=True):
            seen = self.shown(store, policy, moment)
            pops = self.pops(seen, before)
            # A law that has no path, and decides none, asks nothing of what arrived.
            thin = frozen(store, policy, moment, pops)[1] if pops or self.decides(policy, moment) else {}
            decided = self.decide(moment, policy, seen, before, thin)
            recorded = self.read(store, moment)
            before = carry(decided, moment, following)
            if not (self.decides(policy, moment) or len(recorded)):
                continue
            ours = self.acting(decided)
            replayed = self.name, moment, len(ours), differing(ours, last)
            last = ours
            if len(recorded):
                theirs = self.acting(recorded)
                others = differing(theirs, last_recorded), differing(ours, theirs)
                yield Replayed(*replayed, len(theirs), *others)
                last_recorded = theirs
            else:
                yield Replayed(*replayed)

    def explain(
        self, store: Store, fleet: Fleet, policy: Policy, src_pop: str, destination: str, round_unix_s: int
    ) -> Explained | None:
        """Explain a destination of one of the kinds that it `explains`, for a round in which it decides; None where no
        edge of the PoP does what the law says."""
        return None

    def recent(self, store: Store, policy: Policy, src_pop: str, destination: str, round_unix_s: int) -> Frame:
        """Read the last rounds' rows that `explain` shows, the newest first."""
        since = round_unix_s - HISTORY_ROUNDS * policy.round.interval_s
        return self.decisions.read(store, since, round_unix_s, (src_pop, destination))

    def explained(
        self, recent: Frame, round_unix_s: int, lines: Sequence[tuple[int, Lines]], nothing: Lines
    ) -> Explained:
        """The lines of the round's decisions, or what is said where there is none; with the last rounds."""
        rows, columns = list(self.decisions.rows(recent)), _named(self.history)
        shown = [self.decisions.as_dict(row) for row in rows]
        return Explained(
            lines=lines or [(None, nothing)],
            decisions=[one for one, row in zip(shown, rows, strict=True) if row["round"] == round_unix_s],
            history=shown,
            table=[{name: _rounded(one[column]) for name, column in columns.items()} for one in shown],
        )

    def undecided(self, store: Store, round_unix_s: int, default: str, held: Lines, because: str, change: str) -> Lines:
        """Explain a path without a decision: what edges hold, why, and what would change it. A round that was not
        decided is the reason by itself."""
        if self.latest(store, round_unix_s) != round_unix_s:
            text = instants.show(round_unix_s)
            because, change = f"round {text} has not been decided", f"`springtide decide {self.name} --round {text}`"
        return [("decided", f"no decision: {default}"), *held, ("because", because), ("would change", change)]

    def newest(self, store: Store, policy: Policy, until_unix_s: int) -> Newest | None:
        """The newest round up to `until`: a clock that was ahead may have left later ones."""
        if not self.decides(policy, until_unix_s):
            return None
        [row] = store.query(
            f"""
            select
                toUnixTimestamp(max(decided.round)) as at,
                count() as row_count,
                countIf({self.acts}) as acting,
                countIf(reason = 'held_incomplete_input') as held,
                countIf(({self.expires}) and coalesce(expires_at < round + {{ttl_s:UInt32}}, true)) as left_out
            from {decided_by(self.name, "as decided final")}
            and round = (
                select newest.round from {decided_by(self.name, "as newest")}
                and newest.round <= fromUnixTimestamp({{until:UInt32}})
                order by newest.round desc limit 1
            )
            """,
            {"ttl_s": policy.bundle.ttl_s, "until": until_unix_s},
        )
        return Newest(row["at"], row["row_count"], row["acting"], row["held"], row["left_out"]) if row["at"] else None

    def decided_step(self, newest: Newest | None, clock: Clock) -> Step:
        """Pure."""
        fix = f"run `springtide decide {self.name}` each round"
        if newest is None:
            return Step(self.name, *((State.NONE, self.idle, fix) if self.every_round else (State.NOTE, self.idle)))
        text = f"decided {clock.ago(newest.round)}: {newest.acting:,} of {newest.rows:,} {self.units}{self.does}"
        text += f"; {newest.left_out:,} left out of bundles: their evidence is too old" if newest.left_out else ""
        text += f"; {newest.held_incomplete:,} stand, input incomplete" if newest.held_incomplete else ""
        if self.every_round and 0 < newest.held_incomplete == newest.rows:
            fix = "`springtide sql incomplete-hosts` lists the missing hosts"
            return Step(self.name, State.STALE, text, fix, newest.round)
        return once_a_round(clock, self.name, newest.round, text, fix, self.late)

    def contribute(
        self, store: Store, fleet: Fleet, policy: Policy, round_unix_s: int, expires_unix_s: int
    ) -> Contribution:
        """Give the entries that bundles carry of a round in which it decides; they are withdrawn at `expires`."""
        return Contribution()

    def treated(self, store: Store, newest_round_unix_s: int, interval_s: int) -> Treated:
        """Counts what sockets of the last rounds show of what was decided."""
        return Treated()

    def treated_step(self, found: Treated) -> Step:
        """Pure. Only of a law with a `seen_name`."""
        raise TypeError(f"the law {self.name} has a seen_name, and no treated_step that says what was seen")

    def benefit(
        self, store: Store, fleet: Fleet, policy: Policy, span: Mapping[str, int], quantile: float
    ) -> list[BenefitLine]:
        """Treated against held-out over the rounds since < round <= until: over what was decided, and over what sockets
        show."""
        return []

    def figures(self, store: Store, policy: Policy, span: Mapping[str, int]) -> list[Figure]:
        """Figures that the report draws over these rounds."""
        return []


def differing(one: Values, other: Values) -> int:
    """For how many units two rounds set another value."""
    return sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())


def once_a_round(clock: Clock, what: str, moment: int, text: str, fix: str, late: State = State.STALE) -> Step:
    """A step that happens once a round: `late` when it has left one out, and unknown where its time is yet to come."""
    if clock.is_ahead(moment):
        return Step(what, State.BROKEN, text, f"a clock was ahead: set it right, then {fix}", moment)
    state = late if clock.now - moment > clock.limit_s else State.OK
    return Step(what, state, text, fix if state is State.STALE else "", moment)


def frozen(store: Store, policy: Policy, round_unix_s: int, pops: set[str]) -> tuple[Sequence[Input], dict[str, str]]:
    """Returns what arrived in a round, and those of these PoPs of which too little arrived, with the reason. A PoP that
    left the fleet need not send anything: what is remembered of it expires."""
    rows = store.query("select distinct pop from fleet_edges")
    pops = pops & {row["pop"] for row in rows} if rows else pops
    found = inputs(store, round_unix_s, policy.round.interval_s, policy.completeness.memory_rounds)
    return found, lacking(found, policy.completeness, pops)


def decided_by(law: str, how: str = "") -> str:
    """Name a law's rows in SQL: the table, `how` (an alias, final), and a condition that others follow by `and`."""
    return f"path_decisions {how} where part = '{law}'"


def pops_of(rows: Rows) -> set[str]:
    """The PoPs that the rows' paths begin at."""
    names = (rows.columns if isinstance(rows, Frame) else rows)["src_pop"]
    return {name.decode() for name in names[begins(names)].tolist()}


def _named(columns: Sequence[str | tuple[str, str]]) -> dict[str, str]:
    """Each column by the name that people read."""
    return dict((one, one) if isinstance(one, str) else one for one in columns)


def _rounded(value: object) -> object:
    """For people: two digits are enough, and none of a whole number."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else round(value, 2)


def age(seconds: int) -> str:
    """12 s, 5 min, 3 h, 4 days."""
    for unit, length, above in (("days", 86_400, 2 * 86_400), ("h", 3600, 2 * 3600), ("min", 60, 120)):
        if seconds >= above:
            return f"{seconds // length} {unit}"
    return f"{max(0, seconds)} s"
