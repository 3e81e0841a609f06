"""When a pair of PoPs is on, when it is off, and which share of its connections is treated: by hashes, so that the
benefit is a measured difference also where too few edges can be held out.

A pair is on or off for a whole period of rounds. Periods come in blocks, each of which has as many on as off, in an
order that a hash of the policy's seed, the pair and the block draws: every order is as likely as every other, and so as
the same one with on and off exchanged (learn from it by sign flips, laws/paired.py). The way back of a pair is on
when the pair is off: at every moment exactly half of a fleet's ordered pairs is off, whatever the hashes say.

A decision acts on what begins after it, and a switch on whatever it shares a queue with: the first `washout_rounds`
rounds of a period do not count. The disable test is on a clock, for all pairs at once.

No state: the same policy, pair and round give the same answer, on any host and in a replay (Bojinov, Simchi-Levi and
Zhao, Design and Analysis of Switchback Experiments, 2023; shares: Hudgens and Halloran, Toward Causal Inference with
Interference, 2008).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from springtide.document import Document, fault
from springtide.errors import Problem
from springtide.section import Section

if TYPE_CHECKING:
    from springtide.policy import Policy

HOUR_S, DAY_S = 3600, 86_400
Kind = Literal["holdout", "switchback", "share"]


def _checked_shares(shares: list[float]) -> list[float]:
    if not 1 <= len(shares) <= 9 or sorted(set(shares)) != shares or not all(0.05 <= one <= 0.95 for one in shares):
        raise fault(f"{shares} are no shares to compare", "write one to nine of 0.05 to 0.95, the smallest first")
    return shares


class ExperimentPolicy(Section):
    """By what the benefit is measured, and when all is switched off to see that it is still there."""

    kind: Kind = "holdout"
    """holdout: edges that are held out (section holdout). switchback: pairs of PoPs are on and off for whole periods.
    share: an edge that paces draws the treated connections, as many as `shares` says.
    Source: held-out edges need nothing to be switched; a fleet with fewer than five edges a PoP has none."""
    shares: Annotated[list[float], AfterValidator(_checked_shares)] = Field(default=[0.1, 0.5, 0.9])
    """With kind share, the shares of a pair's connections that are treated, one after the other.
    Range: one to nine different shares of 0.05 to 0.95, rising.
    Source: an effect that is the same at a tenth and at nine tenths is one that does not come from sharing a queue."""
    period_rounds: int = Field(default=12, ge=4, le=288)
    """Rounds for which a pair stays on or off, or at one share.
    Source: an hour: long against the wash-out, short against the day's tide."""
    washout_rounds: int = Field(default=3, ge=2, le=96)
    """Rounds at the beginning of each period that do not count.
    Source: one until the decision is pushed, one in which it reaches edges in waves, one for what began before."""
    block_periods: int = Field(default=4, ge=2, le=24)
    """Periods of a block, half of them on and half off; an even number.
    Source: six orders; a block of hours compares like with like better than one of days."""
    seed: str = Field(default="", max_length=64)
    """Text that the hashes begin with: another text draws other orders.
    Range: a text of at most 64 characters.
    Source: the orders are to be known before the experiment, and not chosen after it."""
    disable_every_days: int = Field(default=0, ge=0, le=90)
    """Days from one disable test to the next, in which no pair has a window of its own; 0 makes none.
    Source: none, as it costs all of the gain while it lasts; weekly shows that the way back works."""
    disable_for_s: int = Field(default=3600, ge=600, le=21_600)
    """Seconds that a disable test lasts.
    Source: an hour: as a period."""
    disable_at_hour: int = Field(default=3, ge=0, le=23)
    """Hour of the day, UTC, at which a disable test begins.
    Source: when people are few; choose one when somebody watches."""

    @property
    def switches(self) -> bool:
        """Whether anything is ever off."""
        return self.kind == "switchback" or self.disable_every_days > 0


Why = Literal["", "switchback", "disable_test"]


@dataclass(frozen=True)
class Turn:
    """A pair's turn in one round. `why` it is off, empty where it is on; `share` of its connections that is treated, 1
    except with kind share."""

    why: Why
    share: float

    @property
    def on(self) -> bool:
        return not self.why


def turn(law: ExperimentPolicy, interval_s: int, src: str, dst: str, round_unix_s: int) -> Turn:
    """The turn that a round's decision gives the connections from `src` to `dst` that begin after it."""
    if disable_test(law, round_unix_s) is not None:
        return Turn("disable_test", 0.0)
    period = round_unix_s // interval_s // law.period_rounds
    first, second = sorted((src, dst))
    if law.kind == "switchback":
        order = _order(law.seed, first, second, period // law.block_periods, law.block_periods)
        early = order[period % law.block_periods] < law.block_periods // 2
        return Turn("" if early == (src == first) else "switchback", 1.0)
    if law.kind == "share":
        order = _order(law.seed, src, dst, period // len(law.shares), len(law.shares))
        return Turn("", law.shares[order[period % len(law.shares)]])
    return Turn("", 1.0)


def counts(law: ExperimentPolicy, interval_s: int, round_unix_s: int) -> bool:
    """Whether what was seen in a round (of the interval before its instant) shows its period's turns and nothing else.
    The first `washout_rounds` rounds of every period do not, whether a pair was switched or not: what is compared is of
    the same minutes of a period. Nor do disable tests, and as many rounds after them."""
    place = round_unix_s // interval_s % law.period_rounds
    shown = range(round_unix_s - law.washout_rounds * interval_s, round_unix_s + 1, interval_s)
    return place >= law.washout_rounds and all(disable_test(law, moment) is None for moment in shown)


def next_on(law: ExperimentPolicy, interval_s: int, src: str, dst: str, round_unix_s: int) -> int:
    """The first round from this one on in which the pair is on."""
    # Two blocks hold no longer run of periods that are off than this; a test may follow one of them.
    rounds = law.block_periods * law.period_rounds + 2 * law.disable_for_s // interval_s + 2
    moments = (round_unix_s + ahead * interval_s for ahead in range(rounds))
    return next((one for one in moments if turn(law, interval_s, src, dst, one).on), round_unix_s)


def last_rounds(law: ExperimentPolicy, interval_s: int, round_unix_s: int) -> Iterator[int]:
    """The last round before each switch, the latest first, as far back as any pair that is off now was on."""
    period_s = interval_s * law.period_rounds
    # Two blocks hold no longer run of periods that are off; a test may go before it.
    since = round_unix_s - (law.block_periods + 1) * period_s - 2 * law.disable_for_s
    switches = {*range(since // period_s * period_s, round_unix_s + 1, period_s)}
    for began, ended in disable_tests(law, since - law.disable_for_s, round_unix_s):
        switches |= {began, ended}
    before = {(moment - 1) // interval_s * interval_s for moment in switches if moment <= round_unix_s}
    yield from sorted(before, reverse=True)


def off_pairs(
    law: ExperimentPolicy, interval_s: int, pops: Iterable[str], round_unix_s: int
) -> frozenset[tuple[str, str]]:
    """The ordered pairs of these PoPs that are off by design: none where a switchback would have more than half of them
    off, so that what nobody designed does not pass for it."""
    pairs = list(permutations(sorted(pops), 2))
    found = {pair: turn(law, interval_s, *pair, round_unix_s).why for pair in pairs}
    off = frozenset(pair for pair, why in found.items() if why)
    if "switchback" in found.values() and 2 * len(off) > len(pairs):
        return frozenset()
    return off


def block(law: ExperimentPolicy, interval_s: int, round_unix_s: int) -> int:
    """The number of the block that a round belongs to: what is compared with each other."""
    periods = len(law.shares) if law.kind == "share" else law.block_periods
    return round_unix_s // interval_s // law.period_rounds // periods


def disable_test(law: ExperimentPolicy, at_unix_s: int) -> tuple[int, int] | None:
    """When the disable test that is on at this moment began and will end; None without one."""
    return next(disable_tests(law, at_unix_s - law.disable_for_s, at_unix_s), None)


def disable_tests(law: ExperimentPolicy, since_unix_s: int, until_unix_s: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of the tests that began since < began <= until, the oldest first."""
    if not law.disable_every_days:
        return
    every_s = law.disable_every_days * DAY_S
    began = since_unix_s // every_s * every_s + law.disable_at_hour * HOUR_S
    while began <= until_unix_s:
        if began > since_unix_s:
            yield began, began + law.disable_for_s
        began += every_s


def contradictions(document: Document, policy: Policy) -> Iterator[Problem]:
    """Rules between keys."""
    law, most = policy.experiment, policy.enforce.max_trial_permille
    if law.block_periods % 2:
        message = f"is {law.block_periods}, of which no half is on"
        yield document.problem(("experiment", "block_periods"), message, "write an even number")
    if 2 * law.washout_rounds > law.period_rounds:
        message = f"is {law.washout_rounds}, more than half of experiment.period_rounds = {law.period_rounds}"
        yield document.problem(
            ("experiment", "washout_rounds"), message, "make periods longer: what is left is compared"
        )
    if law.kind != "share":
        return
    if not policy.paces(0):
        message = "is share, which edges draw that pace, and no edge enforces by bpf"
        yield document.problem(("experiment", "kind"), message, "write switchback, or enforce: {by: bpf}")
    rest = untreated_permille(law.shares[0])
    if rest > most:
        message = f"begin with {law.shares[0]:g}: {rest} of 1000 connections start with the kernel's default, "
        message += f"above enforce.max_trial_permille = {most}"
        yield document.problem(("experiment", "shares"), message, "raise it, or leave out the smallest share")


def untreated_permille(share: float) -> int:
    """Connections, per thousand, that an edge starts with the kernel's default."""
    return round(1000 * (1.0 - share))


@lru_cache(maxsize=100_000)
def _order(seed: str, one: str, other: str, block: int, count: int) -> tuple[int, ...]:
    """A permutation of 0 to count - 1, each as likely as every other: the ranks of hashes."""
    key = "\0".join(("springtide experiment", seed, one, other, str(block)))
    drawn = [hashlib.sha256(f"{key}\0{place}".encode()).digest() for place in range(count)]
    ranks = {digest: rank for rank, digest in enumerate(sorted(drawn))}
    return tuple(ranks[digest] for digest in drawn)
