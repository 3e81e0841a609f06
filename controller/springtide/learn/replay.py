"""History through another policy: what would have been decided, beside what was. Nothing is written.

It begins with what the decisions before the span left, and then remembers its own. What the samples would have been had
other routes been in force nobody knows: they are those of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from springtide.decide import congestion_rows, decisions, pairs
from springtide.decide.columns import Table, align, union
from springtide.decide.congestion import Action
from springtide.decide.congestion import carry as carry_prefixes
from springtide.decide.congestion import decide as decide_congestion
from springtide.decide.initcwnd import carry, lasting
from springtide.decide.initcwnd import decide as decide_initcwnd
from springtide.decide.prefixes import keys
from springtide.observe.completeness import inputs, lacking
from springtide.observe.rollup import rolled_up
from springtide.observe.rounds import pair_observations
from springtide.policy import Policy
from springtide.store import Store

LAWS = ("initcwnd", "congestion")


@dataclass(frozen=True)
class Round:
    """One round of one law. Values: windows that are set, or prefixes that use BBR.

    What is recorded is None in a round that was never decided.
    """

    law: str
    round: int
    values: int
    changed: int
    recorded_values: int | None
    recorded_changed: int | None
    # Pairs or prefixes for which the replayed value is another than the recorded one.
    different: int | None


def replay(store: Store, policy: Policy, since_unix_s: int, until_unix_s: int, law: str) -> Iterator[Round]:
    """The rounds with since < round <= until that have their tables, oldest first."""
    first = since_unix_s + policy.round.interval_s
    moments = [line.round for line in rolled_up(store, first, until_unix_s)]
    if not moments:
        return iter(())
    step = _initcwnd if law == "initcwnd" else _congestion
    return step(store, policy, moments)


def summary(rounds: list[Round], interval_s: int) -> list[dict[str, object]]:
    """Per law, replayed beside recorded: changes in all, median and most changed in a round, values at the end."""
    found: list[dict[str, object]] = []
    for law in LAWS:
        own = [one for one in rounds if one.law == law]
        if not own:
            continue
        decided = [one for one in own if one.recorded_changed is not None]
        changed = [one.changed for one in own]
        recorded = [one.recorded_changed or 0 for one in decided]
        days = len(own) * interval_s / 86_400
        found.append(
            {
                "law": law,
                "rounds": len(own),
                "decided_rounds": len(decided),
                "changes": sum(changed),
                "changes_recorded": sum(recorded),
                "changes_per_day": round(sum(changed) / days, 2),
                "changed_per_round_median": float(np.median(changed)),
                "changed_per_round_median_recorded": float(np.median(recorded)) if recorded else None,
                "changed_per_round_most": max(changed),
                "changed_per_round_most_recorded": max(recorded, default=None),
                "values_at_the_end": own[-1].values,
                "values_at_the_end_recorded": own[-1].recorded_values,
                "different_per_round_median": float(np.median([one.different or 0 for one in decided]))
                if decided
                else None,
            }
        )
    return found


def _initcwnd(store: Store, policy: Policy, moments: list[int]) -> Iterator[Round]:
    window_s = (policy.initcwnd.duty_window_rounds - 1) * policy.round.interval_s
    last = decisions.previous(store, moments[0], policy)
    memory = decisions.duty_memory(store, moments[0] - window_s, moments[0])
    for at, moment in enumerate(moments):
        frozen = _frozen(store, policy, moment, {name.decode() for name in set(last["src_pop"].tolist())})
        decided = decide_initcwnd(moment, policy, pair_observations(store, moment), last, frozen)
        memory.remember(moment, pairs.keys(decided[decided["last_evidence"] == moment]))
        following = moments[at + 1] if at + 1 < len(moments) else moment
        left = lasting(decided)
        last = carry(left, moment, memory.count(left, following - window_s))
        recorded = decisions.read_table(store, moment)
        known = bool(len(recorded))
        yield Round(
            "initcwnd",
            moment,
            int((decided["initcwnd"] > 0).sum()),
            int((decided["initcwnd"] != decided["previous_initcwnd"]).sum()),
            int((recorded["initcwnd"] > 0).sum()) if known else None,
            int((recorded["initcwnd"] != recorded["previous_initcwnd"]).sum()) if known else None,
            _different(decided, recorded) if known else None,
        )


def _different(decided: Table, recorded: Table) -> int:
    own, theirs = pairs.keys(decided), pairs.keys(recorded)
    wanted = union(own, theirs)
    return int((align(decided, own, wanted)[0]["initcwnd"] != align(recorded, theirs, wanted)[0]["initcwnd"]).sum())


def _frozen(store: Store, policy: Policy, moment: int, pops: set[str]) -> dict[str, str]:
    heard = inputs(store, moment, policy.round.interval_s, policy.completeness.memory_rounds)
    return lacking(heard, policy.completeness, pops)


def _congestion(store: Store, policy: Policy, moments: list[int]) -> Iterator[Round]:
    last = congestion_rows.previous(store, congestion_rows.last_round(store, moments[0]))
    for moment in moments:
        # Every prefix: which ones a replay remembers the store does not know.
        evidence = congestion_rows.evidence(store, moment, policy, 0, least_low=0)
        pops = {name.decode() for table in (evidence, last) for name in set(table["pop"].tolist())}
        decided = decide_congestion(moment, policy, evidence, last, _frozen(store, policy, moment, pops))
        last = carry_prefixes(decided, moment)
        recorded = congestion_rows.read_round(store, moment)
        ours, theirs = _on_bbr(decided), _on_bbr(recorded)
        known = bool(len(recorded))
        yield Round(
            "congestion",
            moment,
            len(ours),
            _changed(decided),
            len(theirs) if known else None,
            _changed(recorded) if known else None,
            len(np.setxor1d(ours, theirs)) if known else None,
        )


def _on_bbr(decided: Table) -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    return keys(decided[decided["algorithm"] > 0])


def _changed(decided: Table) -> int:
    """Those that began or ceased to use BBR: held-out ones change no route."""
    began = (decided["action"] == Action.ENTER) & (decided["algorithm"] > 0)
    # A row that leaves no longer says that it was held out; of those the share is small.
    return int((began | (decided["action"] == Action.LEAVE)).sum())
