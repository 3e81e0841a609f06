"""Airflow's own API, as a person's browser uses it."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

UNDER_WAY = ("running", "queued")
STEP_UNDER_WAY = ("queued", "running", "restarting")


# Beside a load on all cores an answer has taken more than a minute: the bound is for a server that stands still.
ANSWER_S = 300
# SQLite refuses a write at once whose reads began before another write ended; Airflow then answers 500. A request that
# may be repeated is.
TRIES = 10


@dataclass
class Api:
    """The API of the Airflow at `url`, after `log_in`. Raises OSError when it does not answer or refuses."""

    url: str
    token: str = ""

    def log_in(self, user: str, password: str) -> None:
        self.token = self.call("POST", "/auth/token", {"username": user, "password": password})["access_token"]

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310 (ours)
        for left in reversed(range(1 if method == "POST" else TRIES)):
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
                    return json.loads(answer.read() or "null")
            except HTTPError as error:
                if error.code != 500 or not left:
                    raise OSError(f"{method} {path}: {error}") from error
                time.sleep(1)
        raise AssertionError("an answer or an error")

    def get(self, path: str) -> Any:
        return self.call("GET", f"/api/v2/{path}")

    def pause(self, dag: str, *, paused: bool) -> None:
        self.call("PATCH", f"/api/v2/dags/{dag}", {"is_paused": paused})

    def unpause(self, *dags: str) -> None:
        for dag in dags:
            self.pause(dag, paused=False)

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """Oldest first."""
        return list(self.get(f"dags/{dag}/dagRuns?order_by=run_after&limit=100")["dag_runs"])

    def tasks(self, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
        path = f"dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances"
        return {one["task_id"]: one for one in self.get(path)["task_instances"]}

    def log(self, run: dict[str, Any], task: str) -> str:
        return json.dumps(self.get(f"dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/{task}/logs/1"))

    def paused_between_steps(self, dag: str) -> bool:
        """Paused, with no step under way. Airflow begins no step of a paused DAG and lets the one that runs end.

        Its run stays where it is, between two steps: where runs last longer than their interval, the next one begins as
        one ends, and there is no pause between them to wait for.
        """
        if not self.get(f"dags/{dag}")["is_paused"]:
            # A step that the scheduler was about to begin is there at the next look.
            self.pause(dag, paused=True)
            return False
        runs = [run for run in self.runs(dag) if run["state"] in UNDER_WAY]
        return not any(task["state"] in STEP_UNDER_WAY for run in runs for task in self.tasks(run).values())
