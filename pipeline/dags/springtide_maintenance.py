"""
### Housekeeping

Every night:

- the schema is checked: it has to be the one that this version needs;
- retention is applied: tables keep their rows as long as the policy requires;
- closed rounds are summed up to hours and days;
- Kafka's topics are compared with `topics.yaml` (only looked at, with `SPRINGTIDE_KAFKA`);
- old publications are removed (`keep_publications`, never one that holds).
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from springtide import instants
from springtide.jobs.site import Site
from springtide_common import START, STORE, defaults, guarded


@dag(
    dag_id="springtide_maintenance",
    schedule=CronTriggerTimetable("40 3 * * *", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(),
    doc_md=__doc__,
    tags=["springtide"],
    params={"keep_publications": Param(576, type="integer", minimum=2, description="Two days of rounds.")},
)
def springtide_maintenance() -> None:
    @task(pool=STORE)
    @guarded
    def migrations() -> None:
        """The store has this version's schema; `springtide migrate` is for a person to run."""
        with Site.of().open():
            print("the schema is up to date")

    @task(pool=STORE, execution_timeout=timedelta(hours=1))
    @guarded
    def retention() -> None:
        """As `springtide retention apply` and `springtide downsample`."""
        from springtide.observe import downsample
        from springtide.store import retention as rules

        site = Site.of()
        policy, now = site.policy(), instants.now()
        with site.open() as store:
            print("changed:", ", ".join(rules.apply(store, policy.retention, site.cluster)) or "nothing")
            for period in downsample.pending(store, now, policy.round.lateness_s):
                downsample.downsample(store, period, now)
                print(f"{instants.show(period.start)}: {period.period_s // 3600} h")

    @task
    @guarded
    def topics() -> None:
        """As `springtide topics check`."""
        from springtide.jobs.topics import check

        if not check():
            raise AirflowSkipException("SPRINGTIDE_KAFKA is not set: this site has no Kafka")

    @task
    @guarded
    def publications() -> None:
        """Old publications go."""
        from springtide.publication.folder import PublishFolder

        keep = int(get_current_context()["params"]["keep_publications"])
        gone = PublishFolder(Site.of().publish_dir).prune(keep)
        print(f"{len(gone)} publications removed")

    migrations() >> retention()
    topics()
    publications()


springtide_maintenance()
