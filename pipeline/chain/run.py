"""The steps of the chain, in their order: traffic, kills, and what must have come of it at the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from lab import processes
from lab.collector import CollectorError, wait_until
from lab.errors import LabError
from lab.lab import Lab
from pipeline.api import Api
from pipeline.chain.books import Books
from pipeline.chain.senders import AWAY_S, DOWN_S, Claims, Senders
from pipeline.chain.site import Site
from pipeline.local import USER, LocalAirflow

HOPS = ("collector", "broker", "scheduler", "playbook")
ROUND, ROLLOUT = "springtide_round", "springtide_rollout"
LOAD_S = 3600.0  # at most: the load stops with the lab
# Airflow starts a process for each step: seconds on an idle machine, minutes on a busy one.
PATIENCE_S = 420.0


class ChainError(LabError):
    """Something did not come to pass; the message has what, and where the logs are."""


@dataclass(frozen=True)
class Outcome:
    """`kills` by hop; `in_force` by edge and destination the windows that kernels have at the end; `publications` how
    many there were; `wrong` has in words what does not hold."""

    books: Books
    kills: dict[str, int]
    in_force: dict[str, dict[str, int]]
    publications: int
    seconds: int
    wrong: list[str]


class Chain:
    """One run that kills each of `hops` once. Progress goes to `screen`, files to `out`. `ending` is called before
    what was started is ended."""

    def __init__(
        self,
        out: Path,
        lab: Lab,
        hops: Collection[str],
        screen: Console,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        self.out, self.lab, self.hops, self.screen, self.ending = out, lab, hops, screen, ending
        self.site = Site(out, lab)
        self.senders = Senders(out, lab)
        self.airflow: LocalAirflow = self.site.airflow(self.senders.broker.bootstrap)
        self.api = Api(self.airflow.url)
        self.kills: dict[str, int] = {}
        self.claims: Claims = {}
        self.begin = time.monotonic()

    def run(self) -> Outcome:
        """From nothing to the books. Raises LabError, and what its parts raise."""
        self.site.prepare()
        with ExitStack() as stack:
            stack.enter_context(self.senders.running())
            stack.callback(self.end_plays)
            stack.callback(self.airflow.stop)
            stack.callback(self.ending)
            load = self.lab.start_load(LOAD_S)
            self.print_step(f"lab {self.lab.name}: traffic, collectors, broker; Airflow starts")
            self.start_airflow()
            self.kill_senders()
            self.api.unpause(ROUND)
            self.kill_scheduler()
            self.api.unpause(ROLLOUT)
            self.kill_playbook()
            load.stop()
            self.senders.stop()
            self.print_step("the collectors have ended, and nothing waits in their queues")
            self.drain()
            self.airflow.stop()
            in_force, published = self.site.in_force(), self.site.published()
            books, claims = self.senders.settle(f"chdb://{self.site.product.store}")
        claims |= self.claims | {
            f"kernels have {in_force}, and {published} is published": in_force == published,
            f"an edge has no window: {in_force}": all(in_force.values()),
            f"not every hop was killed once: {self.kills}": self.kills == dict.fromkeys(self.hops, 1),
        }
        return Outcome(
            books,
            self.kills,
            in_force,
            len({each.publication for each in self.site.events() if each.event == "publish"}),
            round(time.monotonic() - self.begin),
            [what for what, holds in claims.items() if not holds],
        )

    def print_step(self, text: str) -> None:
        """With the seconds since the start."""
        seconds = time.monotonic() - self.begin
        self.screen.print(f"[bold cyan]{seconds:5.0f} s[/]  {text}", highlight=False, soft_wrap=True)

    def killed(self, hop: str, what: str) -> None:
        self.kills[hop] = self.kills.get(hop, 0) + 1
        self.print_step(f"killed: {what}")

    def until(self, what: str, condition: Callable[[], bool], every_s: float = 1.0) -> None:
        """Raises ChainError with what did not come, or with what ended a process of Airflow."""

        def look() -> bool:
            self.airflow.check()
            time.sleep(every_s)
            try:
                return condition()
            except OSError:  # Airflow's API, busy with others
                return False

        try:
            wait_until(what, look, PATIENCE_S)
        except (CollectorError, RuntimeError) as error:
            raise ChainError(f"{error}; logs are below {self.out}") from error

    def start_airflow(self) -> None:
        self.airflow.prepare()
        self.airflow.start(("api-server", "scheduler", "dag-processor"))
        self.api.log_in(USER, self.airflow.password)
        wanted = {ROUND, ROLLOUT}
        self.until("list of Airflow's DAGs", lambda: wanted <= {dag["dag_id"] for dag in self.api.get("dags")["dags"]})

    def kill_senders(self) -> None:
        """A collector and the broker, while fresh connections open and close."""
        with self.senders.probing():
            if "collector" in self.hops:
                edge = self.site.edges[0]
                self.senders.kill_collector(edge)
                self.killed("collector", f"the collector of {edge}, away for {AWAY_S:g} s")
            if "broker" in self.hops:
                self.senders.kill_broker()
                self.killed("broker", f"the broker, down for {DOWN_S:g} s")

    def kill_scheduler(self) -> None:
        """With the step that takes from Kafka, as it does: what it has not committed is taken again."""
        if "scheduler" not in self.hops:
            return
        steps: list[dict[str, Any]] = []

        def consuming() -> bool:
            # An answer of Airflow's API takes a tenth of a second of a core.
            if not self.site.store_is_held():
                return False
            for run in self.api.runs(ROUND):
                step = self.api.tasks(run).get("consume")
                if step and step["state"] == "running" and self.site.store_is_held():
                    steps.append(run)
                    return True
            return False

        self.until("step that takes from Kafka", consuming, 0.1)
        scheduler = self.airflow.processes["scheduler"]
        # Its steps are in its group, as they would be in its unit's cgroup.
        os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.wait()
        self.claims["the killed step had taken all that Kafka held"] = self.senders.untaken() > 0
        self.airflow.start(("scheduler",))
        self.killed("scheduler", "the scheduler with its step consume")

        def again() -> bool:
            step = self.api.tasks(steps[-1])["consume"]
            return bool(step["state"] == "success" and step["try_number"] > 1)

        self.until("second try of the killed step", again)
        self.print_step("the killed step was tried again and has ended well")

    def kill_playbook(self) -> None:
        """As some edges have taken the round, and others have not: it is taken back."""
        if "playbook" not in self.hops:
            return
        windows, bundles = self.site.in_force(), self.site.bundles()
        # The next round begins once all samples are there: no other publication comes between.
        self.until("step that publishes", self.publishing, 0.5)
        self.api.pause(ROUND, paused=True)
        self.until("rollout that has begun", lambda: bool(self.site.rollouts("begun")), 0.05)
        victim = self.site.rollouts("begun")[-1]
        self.until("edge that has taken it", lambda: bool(self.site.bundles() - bundles), 0.02)
        plays = self.site.plays()
        killed = bool(plays) and processes.send_signal(plays[0], signal.SIGKILL)
        taken = len(self.site.bundles() - bundles)
        if not killed or taken == len(self.site.edges) or self.site.rollouts("done"):
            raise ChainError(f"the rollout of {victim} had ended before it could be killed: run it again")
        self.killed("playbook", f"ansible-playbook, as {taken} of {len(self.site.edges)} edges had taken {victim}")
        self.until("way back of the killed rollout", lambda: victim in self.site.taken_back(), 0.3)
        back = self.site.in_force()
        self.claims[f"kernels have {back} after the way back, and had {windows}"] = back == windows
        self.print_step("what it had changed was taken back")

    def publishing(self) -> bool:
        """Whether a round's last step has begun."""
        steps = (self.api.tasks(run).get("publish", {}) for run in self.api.runs(ROUND))
        return any(step.get("state") in ("running", "success") for step in steps)

    def drain(self) -> None:
        """A round that began after the last sample was sent, and a rollout; then no step of either is under way."""
        known = {run["dag_run_id"] for run in self.api.runs(ROUND)}
        self.api.unpause(ROUND)

        def drained() -> bool:
            return any(run["dag_run_id"] not in known and run["state"] == "success" for run in self.api.runs(ROUND))

        self.until("round after the last sample", drained)
        self.print_step("a round has taken what was left")
        self.until("pause between two steps of a round", partial(self.api.paused_between_steps, ROUND))
        self.until("rollout that is done", lambda: bool(self.site.rollouts("done")), 0.3)
        self.print_step(f"rolled out: {self.site.rollouts('done')[-1]}")
        self.until("pause between two steps of a rollout", partial(self.api.paused_between_steps, ROLLOUT))

    def end_plays(self) -> None:
        """Plays are sessions of their own: one that runs as the chain ends early is not Airflow's to end."""
        processes.end(self.site.plays(), 5)
