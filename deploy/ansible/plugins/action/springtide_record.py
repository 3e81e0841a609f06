"""A line in the publisher's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils import springtide_publisher as publisher

SPEC = {
    "publish_dir": {"type": "path", "required": True},
    "event": {
        "type": "str",
        "choices": ["rollout", "wave", "gate", "rollback", "withdraw", "drift"],
        "required": True,
    },
    "publication": {"type": "str", "default": ""},
    "verdict": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "edges": {"type": "list", "elements": "str", "default": []},
    "details": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        folder = Path(given.pop("publish_dir"))
        if not self._task.check_mode:
            try:
                publisher.record(folder, dict(given, digest=""))
            except OSError as error:
                raise AnsibleActionFail(f"{folder}: {error.strerror}; let this user write there") from error
        # The journal is about the work and no part of it.
        result["changed"] = False
        return result
