"""
### A round, from samples to a publication

Every round (five minutes), a minute after its end: what Kafka holds goes into an embedded store, are the samples there,
round tables, decisions by every law, bundles, validation, publication. What was missed is rolled up and decided in its
order; **only the newest round is published**.

* Again, after a kill, or cleared: the same rows, no second publication.
* `springtide pause --reason TEXT` skips `publish`; `springtide resume` ends that.
* Where the policy's mode is `advise`, `publish` is skipped too; its log and `springtide history` say what it would
  publish.
* A new publication starts `springtide_rollout`.

Each step is what a command does: `springtide consume --until-caught-up` (with `SPRINGTIDE_KAFKA`), `rollup`,
`decide initcwnd`, `decide congestion`, `decide start`, `decide recovery`, `bundle`, `validate`,
`publish --once`; beside these `measure`, once an hour. Steps that open the store share the pool `springtide_store`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from springtide import instants
from springtide.jobs.site import Site
from springtide.laws.base import Law
from springtide.laws.registry import LAWS
from springtide_common import DECISIONS, PUBLICATION, ROUND_TABLES, START, STORE, defaults, guarded, round_schedule


@dag(
    dag_id="springtide_round",
    schedule=round_schedule(),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=defaults(),
    doc_md=__doc__,
    tags=["springtide"],
    params={
        "until": Param(
            None,
            type=["null", "string"],
            description="The newest round to look at, like 2026-01-02T03:05:00Z; the newest closed one by default.",
        )
    },
)
def springtide_round() -> None:
    """Long: tasks are defined where they are wired."""

    @task(pool=STORE)
    @guarded
    def consume() -> int:
        """Reads Kafka into the embedded store; does nothing without Kafka, or on a server, which does it by itself."""
        from springtide.jobs.consume import consume as run

        return run(Site.of())

    @task(pool=STORE)
    @guarded
    def completeness() -> dict[str, Any]:
        """Finds the rounds that lack their tables or decisions, and how many hosts sent samples in the newest one."""
        from springtide.jobs import due as due_rounds

        site = Site.of()
        policy = site.policy()
        requested = get_current_context()["params"].get("until")
        newest = policy.round.due(instants.now())
        if requested:
            newest = min(newest, instants.parse_round(requested, policy.round.interval_s, "until"))
        with site.open() as store:
            due_rounds.prepare(store, site.fleet(), site.publish_dir, print)
            due = due_rounds.due(store, policy, newest)
            waiting = due_rounds.undecided(store, policy, newest)
        print(f"round {instants.show(newest)}: {due.hosts_seen} of {due.hosts_expected} hosts sent samples")
        if not due.to_roll_up and not waiting and not requested:
            raise AirflowSkipException(
                "no closed round lacks its tables or decisions; the published bundles stay in force"
            )
        return {"newest": newest, "to_roll_up": due.to_roll_up}

    @task(pool=STORE, outlets=[ROUND_TABLES])
    @guarded
    def rollup(due: dict[str, Any]) -> list[int]:
        """Round tables of every round that lacks them, in their order. Gives on the rounds that await decisions."""
        from springtide.jobs.due import undecided
        from springtide.observe.rollup import count_late
        from springtide.observe.rollup import rollup as run

        site = Site.of()
        policy = site.policy()
        with site.open() as store:
            for moment in due["to_roll_up"]:
                acting = policy.congestion.min_object_bytes
                paced = policy.paces(moment)
                line = run(store, moment, policy.round.interval_s, instants.now(), acting, paced=paced)
                print(f"round {instants.show(moment)}: {line.samples} samples of {line.sockets} sockets")
            late = count_late(store, due["newest"], policy.round.interval_s, instants.now())
            print(f"{late} samples came too late for their rounds' tables")
            return undecided(store, policy, due["newest"], anew=due["to_roll_up"])

    def decide(law: Law) -> Any:
        @task(task_id=law.name, doc_md=f"{law.title}, round by round.", pool=STORE, outlets=[DECISIONS])
        @guarded
        def decisions(rounds: list[int]) -> int:
            from springtide.jobs.decide import decide as run
            from springtide.jobs.decide import report, too_thin

            site = Site.of()
            policy = site.policy()
            with site.open() as store:
                for moment in rounds:
                    made = run(law, store, policy, moment, instants.now())
                    print(f"round {instants.show(moment)}: {len(made.decided)} {law.units}")
                    print(too_thin(moment, made.inputs, made.thin) or "every PoP's input was complete")
                    if moment == rounds[-1]:
                        report(law, made, site.fleet(), policy)
            return len(rounds)

        return decisions

    @task(pool=STORE)
    @guarded
    def bundle(due: dict[str, Any]) -> dict[str, Any]:
        """A bundle for every edge of the newest decided round, laid beside the publications; the round, and of each
        edge how many starts its bundle has no room for."""
        from springtide.jobs.publish import newest_decided, render, stage

        site = Site.of()
        with site.open() as store:
            newest = newest_decided(store, site.policy(), due["newest"])
            rendered, moment = render(store, site.fleet(), site.policy(), newest, instants.now())
        for what in rendered.notes():
            print(f"left out: {what}")
        stage(site.publish_dir, rendered.documents)
        return {"round": instants.show(moment), "too_many": rendered.too_many}

    @task
    @guarded
    def validate(bundled: dict[str, Any]) -> dict[str, Any]:
        """The bundles by themselves, and against what is current on the fleet by the policy's caps."""
        from springtide.jobs.publish import validate_staged

        site = Site.of()
        validate_staged(site.publish_dir, site.fleet(), site.policy(), instants.now())
        return bundled

    @task(outlets=[PUBLICATION])
    @guarded
    def publish(bundled: dict[str, Any]) -> str:
        """Sign the bundles with their way back and make them the newest publication, once; skipped while paused."""
        from springtide.jobs.publish import publish as run
        from springtide.jobs.publish import staged
        from springtide.publication.folder import PublishFolder

        site = Site.of()
        folder = PublishFolder(site.publish_dir)
        documents = staged(site.publish_dir)
        fleet = site.fleet_path.read_bytes()
        policy, full = site.policy(), bundled["too_many"]
        path, _ = run(folder, documents, site.sign_key, policy, instants.now(), once=True, fleet=fleet, too_many=full)
        print(f"published {path.name}, round {bundled['round']}")
        return path.name

    @task(pool=STORE)
    @guarded
    def benefit(due: dict[str, Any]) -> int:
        """Measures what decisions are good for, over the day up to the newest full hour: once for each."""
        from springtide.learn.benefits import due as unmeasured
        from springtide.learn.benefits import keep

        site = Site.of()
        with site.open() as store:
            until = unmeasured(store, due["newest"])
            if until is None:
                raise AirflowSkipException("the newest full hour is measured already")
            measured = keep(store, site.fleet(), site.policy(), until)
        print(f"day up to {instants.show(until)}: {len(measured.lines)} differences")
        return len(measured.lines)

    taken: Any = consume()
    due: Any = completeness()
    taken >> due
    rounds: Any = rollup(due)
    bundles: Any = bundle(due)
    # Nothing waits for it.
    measured: Any = benefit(due)
    # The laws wait for each other anyway where the store takes one at a time.
    for law in LAWS:
        rounds >> decide(law)(rounds) >> [bundles, measured]
    valid: Any = validate(bundles)
    publish(valid)


springtide_round()
