"""Hands bundle and signature, byte for byte, to the module on the edge, and lets pass of its answer what is known."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide_answer import reduced

# As the edge itself bounds a bundle.
MAX_BYTES = 16 * 1024 * 1024


def read(path: Path) -> str:
    with path.open("rb") as file:
        return base64.b64encode(file.read(MAX_BYTES + 1)).decode("ascii")


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("state", "applied") == "applied" and "content" not in arguments:
            source = arguments.pop("src", None)
            if not source:
                raise AnsibleActionFail("springtide_edge: src: is missing; name the edge's bundle on the publisher")
            path = Path(source)
            signature = path.with_name(f"{path.name}.sig")
            try:
                arguments["content"] = read(path)
                if signature.exists():
                    arguments["signature"] = read(signature)
            except OSError as error:
                what = f"{error.filename}: cannot be read: {error.strerror}"
                raise AnsibleActionFail(f"{what}; publish a round first, or name another src") from error
        result.update(self._ask(arguments, task_vars))
        return result

    def _ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer = self._execute_module(
            module_name="springtide.fleet.springtide_edge", module_args=arguments, task_vars=task_vars
        )
        result = reduced(answer, arguments.get("state", "applied"), check=bool(self._task.check_mode))
        found = getattr(self, "_discovered_interpreter", None)
        if self._discovered_interpreter_key and re.fullmatch(r"/[\w./+-]{1,200}", found or ""):
            result["ansible_facts"] = {self._discovered_interpreter_key: found}
        return result
