"""A line in the publisher's journal, and what holds on the fleet from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.errors import SpringtideError
from ..module_utils.springtide.publication.folder import PublishFolder
from ..module_utils.springtide.publication.journal import Event
from ..module_utils.springtide.publication.record import EVENTS, PARTS, record

SPEC = {
    "publish_dir": {"type": "path", "required": True},
    "event": {"type": "str", "choices": list(EVENTS), "required": True},
    "publication": {"type": "str", "default": ""},
    "verdict": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "edges": {"type": "list", "elements": "str", "default": []},
    "details": {"type": "dict", "default": {}},
    "holds": {"type": "str", "choices": list(PARTS)},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        folder, holds = PublishFolder(Path(given.pop("publish_dir"))), given.pop("holds")
        if not self._task.check_mode:
            try:
                record(folder, Event(**given), holds)
            except SpringtideError as error:
                raise AnsibleActionFail(str(error)) from error
        # The journal is about the work and no part of it.
        result["changed"] = False
        return result
