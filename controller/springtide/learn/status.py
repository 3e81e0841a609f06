"""Is the loop closing? Each step's facts are judged against the length of a round. No I/O.

Everything that runs once a round is late when it has missed one: `LATE_ROUNDS` after its own round, plus the time that
a round waits for its samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from springtide import instants
from springtide.bundles.render import no_room
from springtide.laws.base import LATE_ROUNDS, Clock, Newest, State, Step, Treated, age, once_a_round
from springtide.laws.effect import BenefitLine
from springtide.laws.registry import LAWS
from springtide.policy import ADVICE_ONLY
from springtide.publication.journal import Event

# Most names in one line.
SHOWN = 5
# The longest name of an edge.
LONGEST_NAME = 63


@dataclass(frozen=True)
class Published:
    """A publication, or what is current on the fleet; `back`: the publication's way back is current."""

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
    """A row of round_rogues: the `host` name as sent; empty where the row summarises `hosts` names."""

    host: str
    why: str
    times: int
    hosts: int = 1

    def __str__(self) -> str:
        who = printable(self.host) if self.host else f"{self.hosts:,} more names"
        return f"{who} ({WHY_TEXT[self.why].format(f'{self.times:,}')})"


# Meaning of each `why` of round_rogues, with its `times`.
WHY_TEXT = {
    "not_in_fleet": "not in fleet.yaml, {} samples",
    "other_pop": "sends another PoP's name in {} samples",
    "impossible_values": "impossible values in {} connections",
    "several_boots": "{} boots at once",
    "poll_numbers": "poll numbers that jump",
}


@dataclass(frozen=True)
class Facts:
    """Facts from the store and the publisher's folder. Times in seconds since the epoch; None: not yet."""

    now: int
    interval_s: int
    lateness_s: int
    sample: int | None = None
    round: int | None = None
    round_samples: int = 0
    hosts_seen: int = 0
    hosts_expected: int = 0
    # Those of the newest round.
    rogues: Sequence[Rogue] = ()
    decisions: Mapping[str, Newest] = field(default_factory=dict)
    published: Published | None = None
    holds: Published | None = None
    # Edges by bpf of whose connections none is recorded, with how many began in the newest round.
    unrecorded: Mapping[str, int] = field(default_factory=dict)
    # Edges that nothing is pushed to.
    left_alone: Sequence[str] = ()
    # The newest of each kind.
    events: Mapping[str, Event] = field(default_factory=dict)
    # Lines of the publisher's journal that cannot be read.
    damaged: int = 0
    # Why nothing is pushed, and why nothing is published, as given by whoever stopped it.
    stopped: str | None = None
    paused: str | None = None
    # Whether the policy's mode is advise: nothing is pushed, and that is as it should be.
    advises: bool = False
    # The newest round's connections that began, and those `seen` to begin with a value of their edge.
    begun: Mapping[str, float] = field(default_factory=dict)
    # Each law's number by its name, when it was measured, and by law why there can be none.
    benefit: Mapping[str, BenefitLine] = field(default_factory=dict)
    measured: int | None = None
    uncontrolled: Mapping[str, str] = field(default_factory=dict)
    # Counts of what sockets show of the decisions, by law.
    treated: Mapping[str, Treated] = field(default_factory=dict)

    @property
    def clock(self) -> Clock:
        return Clock(self.now, self.interval_s, self.lateness_s)


def lines(facts: Facts) -> list[Step]:
    """The loop's steps in their order."""
    return [
        _samples(facts),
        _hosts(facts),
        _rounds(facts),
        *(law.decided_step(facts.decisions.get(law.name), facts.clock) for law in LAWS),
        _published(facts),
        _holds(facts),
        *_left_alone(facts),
        *_records(facts),
        *(law.treated_step(facts.treated.get(law.name, Treated())) for law in LAWS if law.seen_name),
        _push(facts),
        _gate(facts),
        _drift(facts),
        *_journal(facts),
        _traffic(facts),
        *_benefits(facts),
    ]


def verdict(found: Sequence[Step], *, advises: bool = False) -> str:
    """One sentence; the loop closes when every step does. `advises`: up to the push, as the policy wants it."""
    if all(line.closes for line in found):
        return f"the loop is closing, {ADVICE_ONLY}" if advises else "the loop is closing"
    if found[0].state is State.NONE:
        return "the loop has not started: there are no samples yet"
    names = [line.what for line in found if not line.closes]
    return f"the loop is NOT closing: see {_names(names)}"


def printable(name: str) -> str:
    """An unknown host's own name, safe for a terminal."""
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:LONGEST_NAME])
    return f"{shown}..." if len(name) > LONGEST_NAME else shown


def _ago(facts: Facts, moment: int) -> str:
    return facts.clock.ago(moment)


def _samples(facts: Facts) -> Step:
    fix = "see that collectors run, and that `springtide ingest` or `springtide consume` does"
    if facts.sample is None:
        return Step("samples", State.NONE, "none yet", fix)
    if facts.clock.is_ahead(facts.sample):
        text = f"the newest is {_ago(facts, facts.sample)}"
        return Step("samples", State.BROKEN, text, "a clock is wrong: `springtide doctor` shows which", facts.sample)
    text = f"the newest {_ago(facts, facts.sample)}"
    if facts.hosts_expected:
        text += f"; {facts.hosts_seen} of {facts.hosts_expected} hosts in the newest round"
    late = facts.now - facts.sample > LATE_ROUNDS * facts.interval_s
    return Step("samples", State.STALE if late else State.OK, text, fix if late else "", facts.sample)


def _hosts(facts: Facts) -> Step:
    """Hosts that do not count never keep the loop from closing."""
    if not facts.rogues:
        return Step("hosts", State.OK, "all that sent samples are edges of fleet.yaml, with possible values")
    text = f"do not count: {_names([str(one) for one in facts.rogues])}"
    return Step("hosts", State.NOTE, text, "`springtide doctor` shows what to do")


def _rounds(facts: Facts) -> Step:
    if facts.round is None:
        return Step("rounds", State.NONE, "none yet", "run `springtide rollup` each round")
    text = f"closed {_ago(facts, facts.round)}, {facts.round_samples:,} samples"
    return once_a_round(facts.clock, "rounds", facts.round, text, "run `springtide rollup` each round")


def _published(facts: Facts) -> Step:
    fix = "run `springtide publish` each round"
    found = facts.published
    if facts.advises:
        last = facts.events.get("advise")
        what = "`springtide publish` says what would be"
        if last is not None:
            what = f"{_ago(facts, last.at_unix_s)} it would have been {last.reason}"
        return Step("published", State.NOTE, f"{ADVICE_ONLY}; {what}")
    if facts.paused is not None:
        moment = None if found is None else found.created
        return Step("published", State.STALE, facts.paused, "`springtide resume` ends it", moment)
    if found is None:
        return Step("published", State.NONE, "nothing yet", fix)
    text = f"{_ago(facts, found.created)}: {found.content} for {found.edges:,} edges ({found.name})"
    last = facts.events.get("publish")
    full = last.details.get("too_many", {}) if last is not None and last.publication == found.name else {}
    if full:
        text += f"; {len(full):,} edges have no room for {no_room(sum(full.values()))}"
    return once_a_round(facts.clock, "published", found.created, text, fix)


def _holds(facts: Facts) -> Step:
    what, found = "on the fleet", facts.holds
    if found is None and facts.advises:
        return Step(what, State.NOTE, "nothing, the kernel's default")
    if found is None:
        return Step(what, State.NONE, "nothing yet", "run rollout.yml")
    name = f"state before {found.name}" if found.back else found.name
    empty = not found.routes and not found.clients
    if found.created > facts.now + instants.EDGE_TOLERANCE_S:
        text = f"{name} was made {_ago(facts, found.created)}: edges refuse it"
        return Step(what, State.BROKEN, text, "publish, and run rollout.yml", found.created)
    if found.expires <= facts.now and not empty:
        text = f"{name} expired {_ago(facts, found.expires)}: edges are back at the kernel's default"
        if facts.advises:
            return Step(what, State.NOTE, text, "", found.expires)
        return Step(what, State.BROKEN, text, "publish, and run rollout.yml", found.expires)
    if empty:
        return Step(what, State.NOTE, f"{name}: no routes", "", found.created)
    left = age(found.expires - facts.now)
    text = f"{found.content} on {found.edges:,} edges for another {left} ({name})"
    text += "; nothing renews it" if facts.advises else ""
    return Step(what, State.OK, text, "", found.created)


def _left_alone(facts: Facts) -> Iterator[Step]:
    """Someone wants it so: not a fault of the loop."""
    if facts.left_alone:
        text = f"{_names(facts.left_alone)}: what they have expires by itself"
        yield Step("left alone", State.NOTE, text, "remove `push: false` from fleet.yaml when they are back")


def _records(facts: Facts) -> Iterator[Step]:
    """The law of starts is blind on these edges, though their samples come. Once bundles are withdrawn or have expired
    the eBPF program starts none."""
    ends = facts.now if facts.holds is None else facts.holds.expires
    pushed = [facts.events[kind] for kind in ("rollout", "withdraw") if kind in facts.events]
    withdrawn = max(pushed, key=lambda event: event.at_unix_s).event == "withdraw" if pushed else False
    if facts.unrecorded and not withdrawn and facts.stopped is None and facts.now <= ends:
        who = [f"{edge} (of {count:,} that began)" for edge, count in facts.unrecorded.items()]
        text = f"no connection is recorded that the eBPF program started: {_names(who)}"
        fix = "run collectors.yml -e collector_start_values=true (CAP_BPF), or see `springtide-edge status` there"
        yield Step("records", State.NOTE, text, fix, facts.round)


def _push(facts: Facts) -> Step:
    if facts.stopped is not None and not facts.advises:
        fix = "when it is safe: rollout.yml with -e springtide_resume=true"
        return Step("last push", State.BROKEN, f"stopped: {facts.stopped}", fix)
    events = [facts.events[kind] for kind in ("rollout", "rollback", "withdraw") if kind in facts.events]
    if not events and facts.advises:
        return Step("last push", State.NOTE, "none")
    if not events:
        return Step("last push", State.NONE, "none yet", "run rollout.yml")
    last = max(events, key=lambda event: event.at_unix_s)
    text = f"{last.event} {last.verdict} {_ago(facts, last.at_unix_s)}"
    text += f" by {last.who}" + (f": {last.reason}" if last.reason else "")
    good = {"rollout": ("begun", "done"), "rollback": ("published", "begun", "done"), "withdraw": ("done",)}
    if last.verdict in good[last.event]:
        done = last.event == "rollout" and last.verdict == "done"
        return Step("last push", State.OK if done else State.NOTE, text, "", last.at_unix_s)
    fix = "`springtide history` shows what happened; then run rollout.yml again"
    return Step("last push", State.BROKEN, text, fix, last.at_unix_s)


def _gate(facts: Facts) -> Step:
    last = facts.events.get("gate")
    if last is None:
        return Step("last gate", State.NOTE, "none yet")
    text = f"{last.verdict.replace('_', ' ')} {_ago(facts, last.at_unix_s)}: {last.reason}"
    return Step("last gate", State.OK if last.verdict == "go" else State.NOTE, text, "", last.at_unix_s)


def _drift(facts: Facts) -> Step:
    last = facts.events.get("drift")
    if last is None:
        return Step("drift", State.NOTE, "never checked: run drift.yml")
    when = _ago(facts, last.at_unix_s)
    unanswered = last.details.get("not_compared") or []
    text = {"none": "none", "repaired": f"repaired on {_names(last.edges)}"}.get(
        last.verdict, f"on {_names(last.edges)}"
    )
    if unanswered:
        text = f"{text if last.edges else 'unknown'}; no answer from {_names([str(edge) for edge in unanswered])}"
    good = last.verdict in ("none", "repaired")
    fix = "" if good else "drift.yml -e springtide_repair=true"
    return Step("drift", State.OK if good else State.BROKEN, f"{text}, {when}", fix, last.at_unix_s)


def _journal(facts: Facts) -> Iterator[Step]:
    """Damaged lines stay in the journal, so this step stays too; it is not a fault of the loop."""
    if facts.damaged:
        text = f"{facts.damaged:,} lines cannot be read: `springtide history --event damaged` shows what is left"
        yield Step("journal", State.NOTE, text)


def _traffic(facts: Facts) -> Step:
    began = facts.begun.get("began", 0)
    if not began:
        return Step("traffic", State.NOTE, "no connection began in the newest round", "", facts.round)
    share = f"{facts.begun['seen'] / began:.1%} of {began:,.0f} connections"
    text = f"{share} that began, clients' included, were seen to begin with a value of their edge"
    return Step("traffic", State.NOTE, text, "", facts.round)


def _benefits(facts: Facts) -> Iterator[Step]:
    for what, line in facts.benefit.items():
        effect = line.effect
        sides = f"{effect.treated:,} treated, {effect.held_out:,} not"
        if effect.effect is None or effect.low is None or effect.high is None:
            text, fix = f"not known yet ({sides})", facts.uncontrolled.get(line.law, "")
            yield Step(what, State.NOTE, text, fix, facts.measured)
            continue
        text = f"{effect.effect:+.1%} ({effect.low:+.1%} to {effect.high:+.1%}; {sides}), {line.method}"
        text += f", measured {_ago(facts, facts.measured)}" if facts.measured else ""
        words = {"worse": ": worse beyond chance", "not shown": ": not significant"}
        yield Step(what, State.NOTE, text + words.get(line.reading, ""), "", facts.measured)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or "no edge"
