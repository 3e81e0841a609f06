"""
### A publication reaches the fleet

Started by a new publication (asset `springtide_publication`), never two at once: `rollout.yml` with one canary for each
region, the gate, and growing waves with the gate after each. A failure takes the round back on every edge that answers.

* Nothing happens while paused, where the policy's mode is `advise`, after withdraw.yml, or where the publication is
  current already; the step shows which.
* A rollout that failed **is not tried again**: a gate, an edge or a person refused it. The next publication is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from springtide.jobs.site import Site
from springtide_common import FLEET, ON_THE_FLEET, PUBLICATION, START, defaults, guarded


@dag(
    dag_id="springtide_rollout",
    schedule=[PUBLICATION],
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(),
    doc_md=__doc__,
    tags=["springtide"],
    params={"reason": Param("", type="string", description="Kept in the audit.")},
)
def springtide_rollout() -> None:
    @task
    @guarded
    def plan() -> str:
        """The newest publication, and whether anything keeps it back."""
        from springtide.jobs.rollout import wanted
        from springtide.publication.folder import PublishFolder

        site = Site.of()
        name, why_not = wanted(PublishFolder(site.publish_dir), site.policy())
        if why_not:
            raise AirflowSkipException(why_not)
        return name

    # No retries: what a gate or an edge refused is not pushed again. The way back has been walked already.
    @task(pool=FLEET, retries=0, execution_timeout=timedelta(hours=2), outlets=[ON_THE_FLEET])
    @guarded
    def roll_out(name: str) -> str:
        """Canaries, gates and waves, by rollout.yml; its output is the log."""
        from springtide.jobs.rollout import roll_out as run

        reason = get_current_context()["params"].get("reason") or f"Airflow: {name}"
        run(Site.of(), reason)
        return name

    name: Any = plan()
    roll_out(name)


springtide_rollout()
