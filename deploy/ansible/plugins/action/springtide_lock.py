"""One push at a time from this publisher, and none after a withdrawal until somebody resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.publication.lock import LOCK, give_lock_back, lock_holder, playbook_process, take_lock
from ..module_utils.springtide.publication.withdrawal import end_withdrawal, withdraw, withdrawn

SPEC = {
    "publish_dir": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "resumed", "absent"], "default": "present"},
    "what": {"type": "str", "default": "a push"},
    "resume": {"type": "bool", "default": False},
    "without_disk": {"type": "bool", "default": False},
    "stop": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        folder = Path(given["publish_dir"])
        result["changed"] = False
        try:
            if self._task.check_mode:
                if given["state"] == "present" and not given["stop"]:
                    self._refuse_stopped(folder, given["resume"])
            elif given["stop"]:
                withdraw(folder, given["stop"])
            elif given["state"] == "absent":
                give_lock_back(folder, playbook_process())
            elif given["state"] == "resumed":
                end_withdrawal(folder)
            else:
                self._refuse_stopped(folder, given["resume"])
                self._take(folder, given, result)
        except OSError as error:
            raise AnsibleActionFail(f"{folder}: {error.strerror}; let this user write there") from error
        return result

    @staticmethod
    def _take(folder: Path, given: dict[str, Any], result: dict[str, Any]) -> None:
        ours = playbook_process()
        try:
            holder = take_lock(folder, ours, given["what"])
        except OSError as error:
            if not given["without_disk"]:
                raise
            result["warnings"] = [f"{folder / LOCK}: {error.strerror}: nothing keeps another push from beginning"]
            holder = lock_holder(folder, ours)
        if holder is not None:
            raise AnsibleActionFail(f"{folder / LOCK}: taken: {holder}; wait until it has ended")

    @staticmethod
    def _refuse_stopped(folder: Path, resume: bool) -> None:
        why = withdrawn(folder)
        if why is not None and not resume:
            raise AnsibleActionFail(f"{why}; to push again, use -e springtide_resume=true")
