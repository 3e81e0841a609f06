"""In which order a rollout reaches the edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils import springtide_publisher as publisher

EDGE = {"name": {"type": "str", "required": True}, "region": {"type": "str", "required": True}}
SPEC = {
    "publication": {"type": "path", "required": True},
    "edges": {"type": "list", "elements": "dict", "required": True, "options": EDGE},
    "growth": {"type": "int", "default": 3},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        folder = Path(given["publication"])
        if given["growth"] < 1:
            raise AnsibleActionFail("growth: is less than 1; waves cannot shrink")
        if not folder.is_dir():
            raise AnsibleActionFail(f"{folder}: is not there; publish a round first")
        try:
            candidates = publisher.read_publication(folder, [(edge["name"], edge["region"]) for edge in given["edges"]])
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        name = folder.resolve().parent.name
        waves = publisher.waves(candidates, given["growth"], name)
        return dict(result, changed=False, waves=waves, folder=str(folder.resolve()), name=name)
