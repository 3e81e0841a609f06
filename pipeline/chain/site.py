"""One installation on a lab: its files, its keys, its Airflow; and what its edges hold."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from springtide.publication import journal
from springtide.publication.folder import PublishFolder

from lab import processes
from lab.demo.product import Springtide, make_publisher
from lab.demo.push import Push
from lab.fleet import fleet
from lab.lab import Lab
from lab.processes import Process
from pipeline.local import BIN, LocalAirflow, free_port

POLICY = Path(__file__).with_name("policy.yaml")
# A scheduler that was killed is missed, and its steps are tried again, within seconds and not within minutes.
QUICK = {
    "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "4",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "3",
}


@dataclass
class Site:
    """Below `out`, with the edges of `lab`."""

    out: Path
    lab: Lab

    def __post_init__(self) -> None:
        self.edges = sorted(self.lab.topology.edges())
        self.product = Springtide(
            self.out / "store", self.out / "fleet.yaml", self.out / "policy.yaml", self.out / "publish"
        )
        self.push = Push(self.out, self.product, self.edges, self.lab.command, self.lab.enforcing)

    @property
    def settings(self) -> Path:
        """The plays' variables. Its name is on the command line of every play of this site, and of no other."""
        return self.out / "settings.json"

    def prepare(self) -> None:
        """fleet.yaml and policy.yaml, checked; an empty store; keys, and what Ansible must know."""
        self.product.fleet.write_text(yaml.safe_dump(fleet(self.lab.topology), sort_keys=False))
        shutil.copy(POLICY, self.product.policy)
        self.product.text("check")
        self.product.text("migrate")
        make_publisher(self.out / "publisher", self.out / "allowed_signers")
        self.push.prepare()
        # The gate compares minutes of connections under both windows, more than this whole run has.
        variables = {**self.push.variables(), "springtide_gate": False}
        del variables["springtide_publish_dir"]  # the job names it
        self.settings.write_text(json.dumps(variables))

    def airflow(self, kafka: str) -> LocalAirflow:
        """Not yet started; its steps take from `kafka` and push by Ansible."""
        ansible = [str(BIN / "ansible-playbook"), "-e", f"@{self.settings}"]
        own = {
            "SPRINGTIDE_PUBLISH_DIR": str(self.product.publish_dir),
            "SPRINGTIDE_SIGN_KEY": str(self.out / "publisher"),
            "SPRINGTIDE_STORE_WAIT": "200",
            "SPRINGTIDE_KAFKA": kafka,
            "SPRINGTIDE_ANSIBLE": shlex.join(ansible),
        }
        return LocalAirflow(self.out / "airflow", free_port(), {**self.push.environment(), **own, **QUICK})

    def events(self) -> list[journal.Event]:
        """The journal so far."""
        return journal.read(self.product.publish_dir)[0]

    def rollouts(self, verdict: str) -> list[str]:
        """The publications whose rollout has come to this, in their order."""
        return [each.publication for each in self.events() if (each.event, each.verdict) == ("rollout", verdict)]

    def taken_back(self) -> list[str]:
        """The publications that a rollback has undone."""
        return [each.publication for each in self.events() if (each.event, each.verdict) == ("rollback", "done")]

    def store_is_held(self) -> bool:
        """Whether a process has the store open."""
        with Path(f"{self.product.store}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def plays(self) -> list[Process]:
        """This site's plays that run: of each its own process first, then those that it has forked."""
        return sorted(processes.naming([f"@{self.settings}"]), key=lambda each: (each.start, each.pid))

    def bundles(self) -> set[Path]:
        """Bundles that edges have taken."""
        return set((self.out / "edges").glob("*/bundle-*.json"))

    def published(self) -> dict[str, dict[str, int]]:
        """By edge and destination the windows of what is current on the fleet."""
        held = PublishFolder(self.product.publish_dir).resolved("current")
        return {edge: _windows(held / f"{edge}.json") for edge in self.edges} if held else {}

    def in_force(self) -> dict[str, dict[str, int]]:
        """By edge and destination the windows that the kernels have: what `ip` shows, none of the product's code."""
        return {edge: dict(self._kernel(edge)) for edge in self.edges}

    def _kernel(self, edge: str) -> Iterator[tuple[str, int]]:
        done = self.lab.exec(edge, ["ip", "-j", "route", "show", "table", "201"], check=False)
        routes: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
        for route in routes:
            yield route["dst"], next(each["initcwnd"] for each in route["metrics"] if "initcwnd" in each)


def _windows(bundle: Path) -> dict[str, int]:
    return {route["prefix"]: int(route["initcwnd"]) for route in json.loads(bundle.read_text())["entries"]}
