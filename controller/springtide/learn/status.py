"""Is the loop closing? What is known of each step, judged against the length of a round. No I/O.

Everything that runs once a round is late when it has missed one: `LATE_ROUNDS` after its own round, plus the time for
which a round's samples are waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from springtide.decide.benefit import Effect
from springtide.learn.treatments import Treated
from springtide.publication.journal import Event

# A job that runs once a round has left one out.
LATE_ROUNDS = 2
# Clocks that NTP holds agree within a second; samples that lie further ahead come from one that does not.
AHEAD_S = 60
# Of names in one line.
SHOWN = 5
# As long as an edge's.
LONGEST_NAME = 63


class State(StrEnum):
    """`OK` and `NOTE` let the loop close; with `NONE` it has not begun; `STALE` is late, `BROKEN` needs somebody."""

    OK = "ok"
    NOTE = "note"
    NONE = "none"
    STALE = "stale"
    BROKEN = "broken"


@dataclass(frozen=True)
class Line:
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
class Decided:
    """The newest round of a law: its rows, how many of them act, and how many stand because input was incomplete.

    `left_out`: of those that act, how many no bundle carries, because they would expire before it.
    """

    round: int
    rows: int
    acting: int
    held_incomplete: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Published:
    """A publication, or what holds on the fleet; `back`: the way back of it is what holds."""

    name: str
    created: int
    expires: int
    edges: int
    routes: int
    # Client prefixes with a congestion control of their own.
    clients: int = 0
    back: bool = False

    @property
    def content(self) -> str:
        routes = f"{self.routes:,} routes"
        return f"{routes} and {self.clients:,} client prefixes" if self.clients else routes


@dataclass(frozen=True)
class Rogue:
    """A row of round_rogues: `host` as it called itself, empty where it stands for `hosts` of them."""

    host: str
    why: str
    times: int
    hosts: int = 1

    def __str__(self) -> str:
        who = printable(self.host) if self.host else f"{self.hosts:,} more names"
        return f"{who} ({SAID[self.why].format(f'{self.times:,}')})"


# What each `why` of round_rogues means, with its `times`.
SAID = {
    "not_in_fleet": "not in fleet.yaml, {} samples",
    "other_pop": "names another PoP in {} samples",
    "impossible_values": "impossible values in {} connections",
    "several_boots": "{} boots at once",
    "poll_numbers": "numbers of polls that jump",
}


@dataclass(frozen=True)
class Facts:
    """What store and publisher's folder say. Times in seconds since the epoch; None: not yet."""

    now: int
    interval_s: int
    lateness_s: int
    sample: int | None = None
    round: int | None = None
    round_samples: int = 0
    hosts_heard: int = 0
    hosts_expected: int = 0
    # Of the newest round.
    rogues: Sequence[Rogue] = ()
    decisions: Mapping[str, Decided] = field(default_factory=dict)
    published: Published | None = None
    holds: Published | None = None
    # The newest of each kind.
    events: Mapping[str, Event] = field(default_factory=dict)
    # Lines of the publisher's journal that cannot be read.
    damaged: int = 0
    # Why nothing is pushed, and why nothing is published, in the words of who stopped it.
    stopped: str | None = None
    paused: str | None = None
    benefit: Mapping[str, Effect] = field(default_factory=dict)
    # What sockets show of what was decided, by law.
    treated: Mapping[str, Treated] = field(default_factory=dict)


def lines(facts: Facts) -> list[Line]:
    """The loop's steps in their order."""
    return [
        _samples(facts),
        _hosts(facts),
        _rounds(facts),
        _windows(facts),
        _prefixes(facts),
        _published(facts),
        _holds(facts),
        _seen(facts),
        _seen_bbr(facts),
        _push(facts),
        _gate(facts),
        _drift(facts),
        *_journal(facts),
        *_benefits(facts.benefit),
    ]


def verdict(found: Sequence[Line]) -> str:
    """One sentence; the loop closes when every line lets it."""
    if all(line.closes for line in found):
        return "the loop is closing"
    if found[0].state is State.NONE:
        return "the loop has not begun: there are no samples yet"
    names = [line.what for line in found if not line.closes]
    return f"the loop is NOT closing: see {_names(names)}"


def age(seconds: int) -> str:
    """12 s, 5 min, 3 h, 4 days."""
    for unit, length, above in (("days", 86_400, 2 * 86_400), ("h", 3600, 2 * 3600), ("min", 60, 120)):
        if seconds >= above:
            return f"{seconds // length} {unit}"
    return f"{max(0, seconds)} s"


def printable(name: str) -> str:
    """What a stranger calls itself, fit for a terminal."""
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:LONGEST_NAME])
    return f"{shown}..." if len(name) > LONGEST_NAME else shown


def _ago(facts: Facts, moment: int) -> str:
    return f"{age(facts.now - moment)} ago"


def _limit(facts: Facts) -> int:
    return LATE_ROUNDS * facts.interval_s + facts.lateness_s


def _samples(facts: Facts) -> Line:
    fix = "see that collectors run, and that `springtide ingest` or `springtide consume` does"
    if facts.sample is None:
        return Line("samples", State.NONE, "none yet", fix)
    if facts.sample > facts.now + AHEAD_S:
        text = f"the newest lies {age(facts.sample - facts.now)} ahead"
        return Line("samples", State.BROKEN, text, "a clock is wrong: `springtide doctor` says whose", facts.sample)
    text = f"the newest {_ago(facts, facts.sample)}"
    if facts.hosts_expected:
        text += f"; {facts.hosts_heard} of {facts.hosts_expected} hosts in the newest round"
    late = facts.now - facts.sample > LATE_ROUNDS * facts.interval_s
    return Line("samples", State.STALE if late else State.OK, text, fix if late else "", facts.sample)


def _hosts(facts: Facts) -> Line:
    """What does not count cannot keep the loop from closing."""
    if not facts.rogues:
        return Line("hosts", State.OK, "all that were heard are edges of fleet.yaml, with values that can be")
    text = f"do not count: {_names([str(one) for one in facts.rogues])}"
    return Line("hosts", State.NOTE, text, "`springtide doctor` says what to do")


def _rounds(facts: Facts) -> Line:
    if facts.round is None:
        return Line("rounds", State.NONE, "none yet", "run `springtide rollup` each round")
    text = f"closed {_ago(facts, facts.round)}, {facts.round_samples:,} samples"
    return _once_a_round(facts, "rounds", facts.round, text, "run `springtide rollup` each round")


def _windows(facts: Facts) -> Line:
    fix = "run `springtide decide initcwnd` each round"
    found = facts.decisions.get("initcwnd")
    if found is None:
        return Line("initcwnd", State.NONE, "nothing decided yet", fix)
    text = f"decided {_ago(facts, found.round)}: {found.acting:,} of {found.rows:,} pairs have a window"
    if found.left_out:
        text += f"; {found.left_out:,} left out of bundles: their evidence is too old"
    if found.held_incomplete:
        text += f"; {found.held_incomplete:,} stand, input incomplete"
    if found.held_incomplete and found.held_incomplete == found.rows:
        fix = "`springtide sql incomplete-hosts` says who is silent"
        return Line("initcwnd", State.STALE, text, fix, found.round)
    return _once_a_round(facts, "initcwnd", found.round, text, fix)


def _prefixes(facts: Facts) -> Line:
    """Of prefixes only those with something to say have rows: their absence is no fault."""
    found = facts.decisions.get("congestion")
    if found is None:
        return Line("congestion", State.NOTE, "no prefix chosen yet")
    text = f"decided {_ago(facts, found.round)}: {found.acting:,} prefixes decided for BBR"
    if found.held_incomplete:
        text += f"; {found.held_incomplete:,} stand, input incomplete"
    late = facts.now - found.round > _limit(facts)
    return Line("congestion", State.NOTE if late else State.OK, text, "", found.round)


def _published(facts: Facts) -> Line:
    fix = "run `springtide publish` each round"
    found = facts.published
    if facts.paused is not None:
        moment = None if found is None else found.created
        return Line("published", State.STALE, facts.paused, "`springtide resume` ends it", moment)
    if found is None:
        return Line("published", State.NONE, "nothing yet", fix)
    text = f"{_ago(facts, found.created)}: {found.content} for {found.edges:,} edges ({found.name})"
    return _once_a_round(facts, "published", found.created, text, fix)


def _once_a_round(facts: Facts, what: str, moment: int, text: str, fix: str) -> Line:
    late = facts.now - moment > _limit(facts)
    return Line(what, State.STALE if late else State.OK, text, fix if late else "", moment)


def _holds(facts: Facts) -> Line:
    what, found = "on the fleet", facts.holds
    if found is None:
        return Line(what, State.NONE, "nothing yet", "run rollout.yml")
    name = f"what held before {found.name}" if found.back else found.name
    empty = not found.routes and not found.clients
    if found.expires <= facts.now and not empty:
        text = f"{name} expired {_ago(facts, found.expires)}: edges are back at the kernel's default"
        return Line(what, State.BROKEN, text, "publish, and run rollout.yml", found.expires)
    if empty:
        return Line(what, State.NOTE, f"{name}: no routes", "", found.created)
    left = age(found.expires - facts.now)
    text = f"{found.content} on {found.edges:,} edges for another {left} ({name})"
    return Line(what, State.OK, text, "", found.created)


def _seen(facts: Facts) -> Line:
    """Whether new connections begin with what was decided for their edge."""
    what, found = "seen windows", facts.treated.get("initcwnd", Treated())
    more = f"; {found.controls:,} begin with one that was not decided" if found.controls else ""
    if not found.decided:
        return Line(what, State.NOTE, f"no connection between PoPs should begin with a window of its own{more}")
    if not found.same + found.differs:
        text = (
            f"no evidence: of {found.decided:,} pairs of an edge and a PoP none shows what its connections began with"
        )
        return Line(what, State.NOTE, text + more)
    text = f"{found.same:,} of {found.decided:,} pairs of an edge and a PoP begin with what was decided"
    text += f"; {found.unknown:,} show nothing" if found.unknown else ""
    if not found.differs:
        return Line(what, State.OK, text + more)
    left = found.differs - len(found.examples)
    text += f"; {found.differs:,} differ: {', '.join(found.examples)}" + (f" and {left:,} more" if left else "")
    fix = "see that these edges applied it: drift.yml, and `springtide_routes.py status` there"
    return Line(what, State.BROKEN, text + more, fix)


def _seen_bbr(facts: Facts) -> Line:
    """Only said: bundles bring the choice to the edges, and what applies it there is not Springtide's."""
    what, found = "seen BBR", facts.treated.get("congestion", Treated())
    more = f"; {found.controls:,} of those held out use it" if found.controls else ""
    if not found.decided:
        return Line(what, State.NOTE, f"no prefix that had time to use it was decided for BBR{more}")
    text = f"{found.same:,} of {found.decided:,} prefixes decided for BBR use it for most of their bytes"
    text += f"; {found.unknown:,} show nothing" if found.unknown else ""
    text += f"; {found.differs:,} do not: stored on edges, not applied" if found.differs else ""
    return Line(what, State.NOTE if found.differs or not found.same else State.OK, text + more)


def _push(facts: Facts) -> Line:
    if facts.stopped is not None:
        fix = "when it is safe: rollout.yml with -e springtide_resume=true"
        return Line("last push", State.BROKEN, f"stopped: {facts.stopped}", fix)
    events = [facts.events[kind] for kind in ("rollout", "rollback", "withdraw") if kind in facts.events]
    if not events:
        return Line("last push", State.NONE, "none yet", "run rollout.yml")
    last = max(events, key=lambda event: event.at_unix_s)
    text = f"{last.event} {last.verdict} {_ago(facts, last.at_unix_s)}"
    text += f" by {last.who}" + (f": {last.reason}" if last.reason else "")
    good = {"rollout": ("begun", "done"), "rollback": ("published", "begun", "done"), "withdraw": ("done",)}
    if last.verdict in good[last.event]:
        done = last.event == "rollout" and last.verdict == "done"
        return Line("last push", State.OK if done else State.NOTE, text, "", last.at_unix_s)
    fix = "`springtide history` says what happened; then run rollout.yml again"
    return Line("last push", State.BROKEN, text, fix, last.at_unix_s)


def _gate(facts: Facts) -> Line:
    last = facts.events.get("gate")
    if last is None:
        return Line("last gate", State.NOTE, "none yet")
    text = f"{last.verdict.replace('_', ' ')} {_ago(facts, last.at_unix_s)}: {last.reason}"
    return Line("last gate", State.OK if last.verdict == "go" else State.NOTE, text, "", last.at_unix_s)


def _drift(facts: Facts) -> Line:
    last = facts.events.get("drift")
    if last is None:
        return Line("drift", State.NOTE, "never looked for: drift.yml does")
    when = _ago(facts, last.at_unix_s)
    silent = last.details.get("not_compared") or []
    text = {"none": "none", "repaired": f"mended on {_names(last.edges)}"}.get(last.verdict, f"on {_names(last.edges)}")
    if silent:
        text = f"{text if last.edges else 'unknown'}; no answer from {_names([str(edge) for edge in silent])}"
    good = last.verdict in ("none", "repaired")
    fix = "" if good else "drift.yml -e springtide_repair=true"
    return Line("drift", State.OK if good else State.BROKEN, f"{text}, {when}", fix, last.at_unix_s)


def _journal(facts: Facts) -> Iterator[Line]:
    """They stay where they are, so that the line stays too: no fault of the loop."""
    if facts.damaged:
        text = f"{facts.damaged:,} lines cannot be read: `springtide history --event damaged` shows what is left"
        yield Line("journal", State.NOTE, text)


def _benefits(effects: Mapping[str, Effect]) -> Iterator[Line]:
    for what, effect in effects.items():
        sides = f"{effect.treated:,} treated, {effect.held_out:,} held out"
        if effect.effect is None or effect.low is None or effect.high is None:
            text = f"cannot be told yet ({sides})"
        else:
            text = f"{effect.effect:+.1%} ({effect.low:+.1%} to {effect.high:+.1%}; {sides})"
            text += "" if effect.shown else ": not shown"
        yield Line(what, State.NOTE, text)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or "no edge"
