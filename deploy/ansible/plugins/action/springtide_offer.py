"""Bundles where edges fetch them by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.errors import SpringtideError
from ..module_utils.springtide.publication.offers import offer

SPEC = {
    "origin": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["offered", "withdrawn"], "default": "offered"},
    "publish_dir": {"type": "path"},
    "part": {"type": "path"},
    "edges": {"type": "list", "elements": "str", "default": []},
}

NEEDED = [("state", "offered", ["part"]), ("state", "withdrawn", ["publish_dir"])]


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC, required_if=NEEDED)
        origin, edges = Path(given["origin"]), list[str]()
        if self._task.check_mode:
            return dict(result, changed=False, edges=edges)
        if given["state"] == "withdrawn":
            edges = self._withdraw(given["publish_dir"], given["origin"])
        elif not origin.is_dir():
            raise AnsibleActionFail(f"{origin}: is not a folder; make it, and let a web server serve it")
        else:
            try:
                edges = offer(Path(given["part"]), given["edges"], origin)
            except SpringtideError as error:
                raise AnsibleActionFail(str(error)) from error
        return dict(result, changed=bool(edges), edges=edges)

    @staticmethod
    def _withdraw(publish_dir: str, origin: str) -> list[str]:
        """In a process of its own: a disk that hangs keeps that one, and the task's timeout ends the wait for it."""
        command = [sys.executable, "-m", "springtide.publication", "offer-default"]
        running = subprocess.Popen(
            [*command, "--publish-dir", publish_dir, "--origin", origin],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "module_utils")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        try:
            edges, errors = running.communicate()
        finally:
            running.kill()
        if running.returncode != 0:
            raise AnsibleActionFail(errors.strip())
        return edges.split()
