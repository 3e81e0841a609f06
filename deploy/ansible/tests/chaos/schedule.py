"""Draws from a seed which faults meet which push: the same seed, runs and edges give the same schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

# Moves of an operator in a run, before withdraw.yml.
MOVES = (
    "rollout",
    "refused by the gate",
    "rollback",
    "rollback of what was not rolled out",
    "withdrawn in between",
    "near expiry",
)
# On an edge, while a play works.
EDGE_KINDS = (
    "edge command killed",
    "edge command hangs",
    "watcher killed",
    "ssh killed",
    "disk full",
    "disk read-only",
    "lock held by a stopped process",
    "sshd hangs",
    "login shell hangs",
    "clock two hours ahead",
    "clock two hours behind",
    "unreachable",
    "link lost",
    "no ip program",
)
# On the publisher.
PUBLISHER_KINDS = ("play killed", "publisher's disk full", "publisher's disk read-only")
# Under withdraw.yml: what can obstruct it.
BUTTON_KINDS = (
    # Here withdraw.yml does not reach the edge, which has to expire by itself.
    "sshd hangs",
    "login shell hangs",
    "unreachable",
    # Here it is, and something is in its way.
    "disk full",
    "disk read-only",
    "lock held by a stopped process",
    "clock two hours ahead",
    "clock two hours behind",
    "no ip program",
    "watcher killed",
)


@dataclass(frozen=True)
class Fault:
    """Begins once the play has printed `after` answers; ends `lasts_s` later, or after the play where that is None."""

    kind: str
    edge: str | None
    after: int
    lasts_s: float | None = None

    def __str__(self) -> str:
        lasts = "" if self.lasts_s is None else f" for {self.lasts_s:.0f} s"
        return f"{self.kind}{f' on {self.edge}' if self.edge else ''} after {self.after} answers{lasts}"


@dataclass(frozen=True)
class Run:
    """`refused_wave` is the wave that the gate refuses, where it does; faults meet the move and withdraw.yml."""

    number: int
    move: str
    refused_wave: int
    during: tuple[Fault, ...]
    button: tuple[Fault, ...]


def schedule(seed: int, number: int, edges: Sequence[str]) -> Run:
    """The run of this number, the same whichever others are run."""
    draw = random.Random(f"{seed}/{number}")
    # Each move comes equally often, in an order of the seed's.
    order = random.Random(f"{seed}/moves/{number // len(MOVES)}").sample(MOVES, len(MOVES))
    # Two edges or a third of them are hit at most: what the others do is then known exactly.
    most = max(2, len(edges) // 3)
    during = _on_edges(draw, EDGE_KINDS, edges, draw.randint(1, min(4, most)))
    if draw.random() < 0.4:
        during.append(Fault(draw.choice(PUBLISHER_KINDS), None, draw.randint(3, 6 + len(edges))))
    button = _on_edges(draw, BUTTON_KINDS, edges, draw.randint(1, min(4, most)), at_once=True)
    if draw.random() < 0.3:
        # A person presses a button again that was killed under the hand.
        kind = draw.choice(PUBLISHER_KINDS)
        button.append(Fault(kind, None, draw.randint(2, len(edges)) if kind == "play killed" else 0))
    return Run(number, order[number % len(MOVES)], draw.randint(1, 2), tuple(during), tuple(button))


def _on_edges(
    draw: random.Random, kinds: Sequence[str], edges: Sequence[str], count: int, *, at_once: bool = False
) -> list[Fault]:
    found = []
    for edge in draw.sample(list(edges), count):
        kind = draw.choice(kinds)
        after = 0 if at_once else draw.randint(0, 4 + len(edges))
        brief = not at_once and draw.random() < 0.3
        found.append(Fault(kind, edge, after, draw.uniform(2, 6) if brief else None))
    return found
