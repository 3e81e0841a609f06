"""Replay history under another policy: what would have been decided, and what was. Nothing is written.

It starts from the state that the decisions before the span left, and then carries its own. The samples are those of
the history: how other routes would have changed them is not known.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from springtide.laws.base import Law, Replayed
from springtide.laws.registry import LAWS
from springtide.observe.rollup import rolled_up
from springtide.policy import Policy
from springtide.store import Store


def replay(store: Store, policy: Policy, since_unix_s: int, until_unix_s: int, law: Law) -> Iterator[Replayed]:
    """The rounds with since < round <= until that have their tables, oldest first."""
    first = since_unix_s + policy.round.interval_s
    moments = [line.round for line in rolled_up(store, first, until_unix_s)]
    return law.replay(store, policy, moments) if moments else iter(())


def summary(rounds: list[Replayed], interval_s: int) -> list[dict[str, object]]:
    """Per law, replayed and recorded: changes in all, median and most changed in a round, values at the end."""
    found: list[dict[str, object]] = []
    for law in LAWS:
        own = [one for one in rounds if one.law == law.name]
        if not own:
            continue
        decided = [one for one in own if one.recorded_changed is not None]
        changed = [one.changed for one in own]
        recorded = [one.recorded_changed or 0 for one in decided]
        days = len(own) * interval_s / 86_400
        found.append(
            {
                "law": law.name,
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
