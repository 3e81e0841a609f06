"""Common parts of the DAGs: pools, assets, how errors and failures are reported. It decides nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from airflow.sdk import Asset, CronTriggerTimetable, DeltaTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from springtide.errors import InputError, PausedError, SpringtideError
from springtide.jobs import notice
from springtide.jobs.site import Site
from springtide.policy import Policy

P = ParamSpec("P")
R = TypeVar("R")

STORE = "springtide_store"
FLEET = "springtide_fleet"
START = datetime(2026, 1, 1, tzinfo=UTC)

ROUND_TABLES = Asset(name="springtide_round_tables", uri="springtide://store/round_tables")
DECISIONS = Asset(name="springtide_decisions", uri="springtide://store/decisions")
PUBLICATION = Asset(name="springtide_publication", uri="springtide://publisher/candidate")
ON_THE_FLEET = Asset(name="springtide_on_the_fleet", uri="springtide://publisher/current")

PAGE = "docs/how-to/run-in-airflow.md"
# Advice for when the step has failed for good; PAGE has more about each.
FIXES = {
    "consume": "see whether the broker answers; offsets stay where they were, and the next run goes on there",
    "completeness": "see `springtide doctor`; the next run catches up",
    "rollup": "see `springtide doctor`; the next run catches up",
    "initcwnd": "see `springtide doctor`; the next run catches up",
    "congestion": "see `springtide doctor`; the next run catches up",
    "start": "see `springtide doctor`; the next run catches up",
    "recovery": "see `springtide doctor`; the next run catches up",
    "bundle": "fix what it reports; the last bundles stay in force until they expire",
    "validate": "check it; if it is intended: `springtide publish --force --reason TEXT`",
    "publish": "fix what it reports; the last bundles stay in force until they expire",
    "plan": "see `springtide status`",
    "roll_out": "every edge that answers is back; see `springtide history`, and drift.yml for those that do not",
    "compare": "repair it with drift.yml -e springtide_repair=true, or trigger springtide_drift with repair",
    "benefit": "see `springtide doctor`; the next hour is measured anew",
    "report": "trigger it again; nothing depends on it",
    "migrations": "run `springtide migrate`",
    "retention": "see `springtide retention status`",
    "topics": "see `springtide topics check`, then `springtide topics apply`",
    "publications": "see who may write in the publisher's folder",
    "backfill_rounds": "correct from and to, and trigger it again",
}


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """Our errors in Airflow's words: bad input is not tried again, as it stays bad; a pause or mode advise skips."""

    @functools.wraps(function)
    def run(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except PausedError as error:
            raise AirflowSkipException(str(error)) from error
        except InputError as error:
            raise AirflowFailException(str(error)) from error

    return run


def report_failure(context: Any) -> None:
    """One line with what failed and what to do: in the log, in the audit, and as a time for Prometheus."""
    task = context["ti"]
    fix = f"{FIXES.get(task.task_id, 'see its log')} ({PAGE})"
    print(notice.failed(Site.of(), task.dag_id, task.task_id, str(context.get("exception") or ""), fix))


def report_success(context: Any) -> None:
    task = context["ti"]
    notice.measure(task.dag_id, task.task_id, "succeeded")


def defaults(**more: Any) -> dict[str, Any]:
    """Arguments of every task; the delay between tries is Airflow's own setting, core.default_task_retry_delay."""
    common = {
        "owner": "springtide",
        "retries": 2,
        "execution_timeout": timedelta(minutes=10),
        "on_failure_callback": report_failure,
        "on_success_callback": report_success,
    }
    return common | more


def round_schedule() -> CronTriggerTimetable | DeltaTriggerTimetable:
    """Once a round (policy section round), as soon as its samples have had their time to arrive."""
    try:
        rounds = Site.of().policy().round
    except SpringtideError:
        rounds = Policy().round  # each run then fails with the policy's own message
    minutes, rest = divmod(rounds.interval_s, 60)
    if rest or 60 % minutes:
        return DeltaTriggerTimetable(timedelta(seconds=rounds.interval_s))
    after = -(-rounds.lateness_s // 60) % minutes
    return CronTriggerTimetable(f"{after}-59/{minutes} * * * *", timezone="UTC")
