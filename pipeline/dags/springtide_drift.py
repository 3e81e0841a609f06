"""
### Wanted against actual

Every hour, by drift.yml: does each edge's kernel have what is current at the publisher? Fails where one does not, or
gives no answer; with the parameter `repair` it is repaired.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from springtide.jobs.site import Site
from springtide_common import FLEET, START, defaults, guarded


@dag(
    dag_id="springtide_drift",
    schedule=CronTriggerTimetable("17 * * * *", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(),
    doc_md=__doc__,
    tags=["springtide"],
    params={"repair": Param(False, type="boolean", description="Mend what differs.")},
)
def springtide_drift() -> None:
    @task(pool=FLEET, retries=1, execution_timeout=timedelta(minutes=30))
    @guarded
    def compare() -> None:
        """drift.yml over the whole fleet."""
        from springtide.jobs.ansible import play
        from springtide.publication.folder import PublishFolder

        site = Site.of()
        if PublishFolder(site.publish_dir).resolved("current") is None:
            raise AirflowSkipException("nothing was rolled out yet")
        repair = bool(get_current_context()["params"].get("repair"))
        play(site, "drift.yml", {"springtide_repair": str(repair).lower()})

    compare()


springtide_drift()
