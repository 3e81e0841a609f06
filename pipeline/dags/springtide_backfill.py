"""
### Rounds computed and decided anew

Triggered by hand with `from` and `to`: round tables, then decisions by every law, of every round of the span in order.
The same rows come again where samples, policy and the decisions before are the same. **Nothing is published**: the next
round of `springtide_round` is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from springtide import instants
from springtide.errors import InputError, Problem
from springtide.jobs.site import Site
from springtide_common import DECISIONS, ROUND_TABLES, START, STORE, defaults, guarded

INSTANT = "like 2026-01-02T03:05:00Z"


@dag(
    dag_id="springtide_backfill",
    schedule=None,
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(execution_timeout=timedelta(hours=6)),
    doc_md=__doc__,
    tags=["springtide"],
    params={
        "from": Param("", type="string", description=f"The first round, {INSTANT}."),
        "to": Param("", type="string", description=f"The last round, {INSTANT}."),
    },
)
def springtide_backfill() -> None:
    @task(pool=STORE, outlets=[ROUND_TABLES, DECISIONS])
    @guarded
    def backfill_rounds() -> int:
        """Each round in its turn: tables, then the decisions of every law."""
        from springtide.jobs.decide import decide
        from springtide.jobs.due import prepare, span
        from springtide.laws.registry import LAWS
        from springtide.observe.rollup import rollup, with_samples

        site = Site.of()
        policy = site.policy()
        params: dict[str, Any] = dict(get_current_context()["params"])
        first, last = (instants.parse_round(params[name], policy.round.interval_s, name) for name in ("from", "to"))
        if not first <= last <= policy.round.due(instants.now()):
            what = f"{params['from']} to {params['to']} is not a span of closed rounds"
            raise InputError([Problem("params", "from, to", what, "give the earlier one first, both closed")])
        with site.open() as store:
            rounds = with_samples(store, span(first, last, policy.round.interval_s))
        for moment in rounds:
            # A span can take hours: other steps get the store in between.
            with site.open() as store:
                prepare(store, site.fleet(), site.publish_dir, print)
                acting, paced = policy.congestion.min_object_bytes, policy.paces(moment)
                now = instants.now()
                rollup(store, moment, policy.round.interval_s, now, acting, paced=paced)
                made = [(law, decide(law, store, policy, moment, now)) for law in LAWS]
            counts = ", ".join(f"{len(outcome.decided)} {law.units}" for law, outcome in made)
            print(f"round {instants.show(moment)}: {counts}")
        return len(rounds)

    backfill_rounds()


springtide_backfill()
