"""The fate of decisions, by the audit: which publication is in force on each edge, and which was the last one.

The rules are those of sql/rollup/1_starts.sql: a publication is in force on an edge from the record of the wave that
applied it until it is rolled back there, withdrawn, or expires; the latest counts, where there are several. `explain`
uses it to keep apart what was decided, pushed and in force. An edge may differ from the audit (drift), and sockets from
both (seen windows).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from springtide import instants
from springtide.fleet import Fleet
from springtide.policy import ADVICE_ONLY, Policy
from springtide.publication.journal import Event
from springtide.store import Store

# An edge keeps a bundle for two days at most.
LOOK_BACK_S = 2 * 86_400
# Most edges that one sentence names.
SHOWN = 5


@dataclass(frozen=True)
class Publication:
    """The round that was published, when, and until when its bundles are valid; `held_out` edges have no windows."""

    name: str
    round: int
    at: int
    expires: int
    held_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Held:
    """A publication on an edge: since when, until when it is in force there, and why it ends."""

    publication: Publication
    since: int
    until: int
    ends_by: str

    def __str__(self) -> str:
        """Describes it for a law that knows no better."""
        return f"what round {instants.show(self.publication.round)} decided, until {instants.show(self.until)}"


@dataclass(frozen=True)
class Standing:
    """The state of one PoP's edges at one time. `last`: what each held last, in force or no more; an edge that held
    nothing has no entry.

    `rollout` is the last word on the newest publication: begun, done, failed, taken back, or empty.
    """

    now: int
    edges: Sequence[str]
    last: Mapping[str, Held]
    newest: Publication | None = None
    rollout: str = ""
    advises: bool = False

    def in_force(self, edge: str) -> Held | None:
        held = self.last.get(edge)
        return held if held is not None and self.now < held.until else None

    @property
    def pushed(self) -> str:
        """Whether the newest publication reached edges."""
        if self.newest is None:
            return ADVICE_ONLY if self.advises else "nothing: no round was published in the last two days"
        text = f"round {instants.show(self.newest.round)}, published at {instants.show(self.newest.at)}; "
        words = {
            "": "not rolled out yet",
            "begun": "its rollout has begun",
            "done": "rolled out",
            "failed": "its rollout failed",
            "taken back": "rolled out, and taken back",
        }
        text += words[self.rollout]
        return f"{text}; now {ADVICE_ONLY}" if self.advises else text

    def lines(self, describe: Callable[[str, Held], str], nothing: str) -> list[tuple[str, str]]:
        """Whether the newest publication went out, and `value`, each with its label."""
        return [("pushed", self.pushed), ("in force", self.value(describe, nothing))]

    def value(self, describe: Callable[[str, Held], str], nothing: str) -> str:
        """Says what new connections of the PoP's edges start with: `describe` gives it for an edge and what it holds,
        `nothing` is what holds without a publication."""
        groups: dict[str, list[str]] = {}
        for edge in self.edges:
            held = self.in_force(edge)
            text = nothing if held is None else describe(edge, held)
            groups.setdefault(text, []).append(edge)
        if not any(self.in_force(edge) for edge in self.edges):
            return f"{nothing}: {self._why_nothing()}"
        if len(groups) == 1:
            return next(iter(groups))
        return "; ".join(f"{text} on {named(edges)}" for text, edges in groups.items())

    def _why_nothing(self) -> str:
        if not self.last:
            return "no publication has reached its edges in the last two days"
        held = max(self.last.values(), key=lambda one: one.until)
        return f"round {instants.show(held.publication.round)} {held.ends_by} at {instants.show(held.until)}"


def standing(store: Store, fleet: Fleet, policy: Policy, src_pop: str) -> Standing:
    """Reads what the PoP's edges hold now, from the audit in the store. Raises StoreError."""
    now = instants.now()
    return of_events(read(store, now), list(fleet.pops[src_pop].edges), now, advises=policy.advises)


def read(store: Store, now_unix_s: int) -> list[Event]:
    """Reads what was published, applied and taken back, oldest first."""
    rows = store.query(
        "select toUnixTimestamp(at) as at_unix_s, id, who, event, publication, verdict, reason, edges, details "
        "from audit final where audit.at >= fromUnixTimestamp({since:UInt32}) "
        "and event in ('publish', 'rollout', 'wave', 'rollback', 'withdraw') order by at_unix_s, id",
        {"since": max(0, now_unix_s - LOOK_BACK_S)},
    )
    return [Event(**{**row, "details": json.loads(row["details"] or "{}")}) for row in rows]


def of_events(events: Iterable[Event], edges: Sequence[str], now_unix_s: int, *, advises: bool = False) -> Standing:
    """Pure; the events in any order."""
    listed = [event for event in events if event.at_unix_s <= now_unix_s]
    published = {one.name: one for one in map(_publication, listed) if one is not None}
    last: dict[str, Held] = {}
    for edge in edges:
        found = [
            Held(published[name], since, *min(_ends(listed, edge, published[name], since)))
            for name, since in _applied(listed, edge).items()
            if name in published
        ]
        if found:
            # The latest of those in force; else the one that was applied last.
            last[edge] = max(found, key=lambda one: (now_unix_s < one.until, one.since, one.publication.name))
    newest = max(published.values(), key=lambda one: (one.at, one.name), default=None)
    rollout = "" if newest is None else _rollout(listed, newest.name)
    return Standing(now_unix_s, edges, last, newest, rollout, advises)


def _publication(event: Event) -> Publication | None:
    windows = event.details.get("windows")
    if event.verdict != "published" or not isinstance(windows, dict):
        return None
    try:
        moment, expires = (instants.parse(str(windows[name])) for name in ("round", "expires_at"))
    except (ValueError, KeyError):
        return None
    held_out = frozenset(map(str, windows.get("held_out") or ()))
    return Publication(event.publication, moment, event.at_unix_s, expires, held_out)


def _applied(events: Iterable[Event], edge: str) -> dict[str, int]:
    """Since when each publication is on an edge: since it was applied last, as one can be pushed again. A wave that
    failed may have changed some of its edges."""
    found: dict[str, int] = {}
    for event in events:
        if event.event == "wave":
            whole = event.edges if event.verdict == "applied" else ()
            if edge in whole or edge in event.details.get("changed", ()):
                found[event.publication] = max(event.at_unix_s, found.get(event.publication, 0))
    return found


def _ends(events: Iterable[Event], edge: str, publication: Publication, since: int) -> list[tuple[int, str]]:
    """When and how a publication that an edge has since then ends there."""
    found = [(publication.expires, "expired")]
    for event in events:
        if event.at_unix_s < since:
            continue
        went_back = event.event == "rollback" and event.verdict in ("done", "partial")
        is_of_it = event.publication == publication.name and edge in event.edges
        if went_back and is_of_it and edge not in event.details.get("away", ()):
            found.append((event.at_unix_s, "was taken back"))
        withdrawn = event.edges if event.event == "withdraw" else event.details.get("withdrawn", ()) * went_back
        if edge in withdrawn:
            found.append((event.at_unix_s, "was withdrawn"))
    return found


def _rollout(events: Iterable[Event], publication: str) -> str:
    last = ""
    # Within one second it has begun before it ends.
    for event in sorted(events, key=lambda one: (one.at_unix_s, one.verdict != "begun")):
        if event.publication == publication and event.event == "rollout":
            last = event.verdict
        elif event.publication == publication and event.event == "rollback" and event.verdict != "published":
            last = "failed" if last in ("begun", "failed") else "taken back"
    return last


def named(edges: Sequence[str]) -> str:
    more = len(edges) - SHOWN
    return ", ".join(edges[:SHOWN]) + (f" and {more} more" if more > 0 else "")
