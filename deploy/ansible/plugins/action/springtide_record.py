"""A line in the publisher's journal, and what holds on the fleet from then on."""

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
    "holds": {"type": "path"},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        folder, holds = Path(given.pop("publish_dir")), given.pop("holds")
        if not self._task.check_mode:
            self._note(folder, dict(given, digest=""), None if holds is None else Path(holds))
        # The journal is about the work and no part of it.
        result["changed"] = False
        return result

    @staticmethod
    def _note(folder: Path, event: dict[str, Any], part: Path | None) -> None:
        """What is rolled out holds once its line is on the disk; a way back does even where it cannot be written."""
        goes_back = event["event"] == "rollback"
        try:
            try:
                if part is not None and goes_back:
                    publisher.hold(folder, part)
            finally:
                publisher.record(folder, event)
            if part is not None and not goes_back:
                publisher.hold(folder, part)
        except OSError as error:
            what = f"{error.filename or folder}: {error.strerror}"
            raise AnsibleActionFail(f"{what}; let this user write there") from error
