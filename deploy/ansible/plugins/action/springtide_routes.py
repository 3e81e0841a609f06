"""Reads the bundle and its signature on the publisher, byte for byte, and hands them to the module."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

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
                raise AnsibleActionFail("springtide_routes: src: is missing; name the edge's bundle on the publisher")
            path = Path(source)
            signature = path.with_name(f"{path.name}.sig")
            try:
                arguments["content"] = read(path)
                if signature.exists():
                    arguments["signature"] = read(signature)
            except OSError as error:
                what = f"{error.filename}: cannot be read: {error.strerror}"
                raise AnsibleActionFail(f"{what}; publish a round first, or name another src") from error
        result.update(
            self._execute_module(
                module_name="springtide.fleet.springtide_routes", module_args=arguments, task_vars=task_vars
            )
        )
        # The bundle would stand in every log.
        result.pop("invocation", None)
        return result
