"""
### What it is good for

Every day, shortly after midnight UTC: `springtide report` over the day before, as a page and as JSON, into
`SPRINGTIDE_REPORT_DIR` (/var/lib/springtide/reports).
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, dag, task
from springtide.jobs.site import Site
from springtide_common import START, STORE, defaults, guarded


@dag(
    dag_id="springtide_report",
    schedule=CronTriggerTimetable("20 0 * * *", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(),
    doc_md=__doc__,
    tags=["springtide"],
)
def springtide_report() -> None:
    @task(pool=STORE, execution_timeout=timedelta(hours=1))
    @guarded
    def report() -> str:
        """The newest whole day's report; again, it replaces its files."""
        from springtide import instants
        from springtide.jobs.report import daily

        return str(daily(Site.of(), instants.now()))

    report()


springtide_report()
