"""Bundles where edges fetch them by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.errors import SpringtideError
from ..module_utils.springtide.publication.offers import offer, withdraw

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
        origin, edges = Path(given["origin"]), []
        if not origin.is_dir():
            raise AnsibleActionFail(f"{origin}: is not a folder; make it, and let a web server serve it")
        try:
            if given["state"] == "withdrawn" and not self._task.check_mode:
                edges = withdraw(Path(given["publish_dir"]), origin)
            elif not self._task.check_mode:
                edges = offer(Path(given["part"]), given["edges"], origin)
        except SpringtideError as error:
            raise AnsibleActionFail(str(error)) from error
        return dict(result, changed=bool(edges), edges=edges)
