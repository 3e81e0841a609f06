"""Has the edge's own program do it, with nothing there but a shell, and lets pass of its answer what is known."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide_answer import reduced

SPEC = {
    "state": {"type": "str", "choices": ["applied", "withdrawn", "status"], "default": "applied"},
    "src": {"type": "path"},
    "edge": {"type": "str"},
    "state_dir": {"type": "str", "default": "/var/lib/springtide"},
    "allowed_signers": {"type": "str", "default": "/etc/springtide/allowed_signers"},
    "forget_round": {"type": "bool", "default": False},
    "program": {"type": "str", "default": "/usr/bin/springtide-edge"},
    "reason": {"type": "str", "default": "withdrawn by Ansible"},
}
# As the edge itself bounds a bundle.
MAX_BYTES = 16 * 1024 * 1024
REFUSED = 2

# On standard input: a line with the signature in Base64, which may be empty, and the bundle.
RECEIVE = """umask 077; folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" || exit
IFS= read -r signature; cat > bundle.json || exit
[ -z "$signature" ] || echo "$signature" | base64 -d > bundle.json.sig || exit
"""
# Ends without a newline, since Ansible appends ` && ...` to it.
ASK = """answered() {{ printf '{{"rc": %d, "report": %s}}\\n' "$1" "$2"; }}
if [ -e {program} ]; then report=$({program} {arguments}); answered $? "$report"
else answered {refused} {missing}; fi"""


class EdgeError(Exception):
    """The program gave no report, but these words and this exit code."""

    def __init__(self, message: str, code: object, holds: bool = False) -> None:
        super().__init__(message)
        self.code, self.holds = code, holds


def difference(before: object, after: object) -> dict[str, str]:
    def text(routes: object) -> str:
        return "".join(f"{prefix} {way}\n" for prefix, way in routes.items()) if isinstance(routes, dict) else ""

    return {"before": text(before), "after": text(after)}


def read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def sent(source: str | None) -> bytes:
    """The bundle and its signature, byte for byte, as RECEIVE takes them. Raises AnsibleActionFail."""
    if not source:
        raise AnsibleActionFail("springtide_edge: src: is missing; name the edge's bundle on the publisher")
    path = Path(source)
    signature = path.with_name(f"{path.name}.sig")
    try:
        return base64.b64encode(read(signature) if signature.exists() else b"") + b"\n" + read(path)
    except OSError as error:
        what = f"{error.filename}: cannot be read: {error.strerror}"
        raise AnsibleActionFail(f"{what}; publish a round first, or name another src") from error


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        check = bool(self._task.check_mode)
        try:
            answer = getattr(self, f"_{given['state']}")(given, check, check or self._task.diff)
        except EdgeError as error:
            answer = {"failed": True, "msg": str(error), "refusal": error.code, "holds": error.holds}
        result.update(reduced(answer, given["state"], check=check))
        return result

    def _ask(self, given: dict[str, Any], *arguments: str, given_in: bytes = b"") -> dict[str, Any]:
        """The program's report. Raises EdgeError."""
        program, common = given["program"], ["--json", "--state-dir", given["state_dir"]]
        command = ASK.format(
            program=shlex.quote(program),
            arguments=shlex.join([*arguments, *common]),
            refused=REFUSED,
            missing=shlex.quote(json.dumps({"error": f"{program}: is not installed; run edges.yml first"})),
        )
        # Without input there would be a terminal, which changes what is answered.
        said = self._low_level_execute_command((RECEIVE if given_in else "") + command, in_data=given_in or b"\n")
        try:
            answer = json.loads(said["stdout"])
            code, report = answer["rc"], answer["report"]
        except (ValueError, KeyError, TypeError, RecursionError):
            answered = " ".join((said["stderr"] or said["stdout"]).split())[:1000]
            raise EdgeError(answered or f"{program} answered nothing", said["rc"] or 1) from None
        if not isinstance(report, dict):
            raise EdgeError(f"{program} answered no report", code)
        if "error" in report:
            raise EdgeError(str(report["error"]), code, report.get("holds") is True)
        return report

    def _applied(self, given: dict[str, Any], check: bool, diff: bool) -> dict[str, Any]:
        named = ["--edge", given["edge"]] if given["edge"] else []
        arguments = ["apply", "bundle.json", *named, "--allowed-signers", given["allowed_signers"]]
        bundle = sent(given["src"])
        result: dict[str, Any] = {}
        if diff:
            report = self._ask(given, *arguments, "--dry-run", given_in=bundle)
            result["diff"] = difference(report.pop("before", None), report.pop("after", None))
        if not check:
            report = self._ask(given, *arguments, given_in=bundle)
        return dict(result, report=report, changed=report.get("changed"))

    def _withdrawn(self, given: dict[str, Any], check: bool, diff: bool) -> dict[str, Any]:
        forget = ["--forget-round"] if given["forget_round"] else []
        result: dict[str, Any] = {}
        if diff:
            try:
                looked = self._ask(given, "withdraw", "--dry-run", *forget)
                result = {"diff": difference(looked.get("before"), {}), "changed": looked.get("changed")}
            except EdgeError:
                # A failed look must not stop a withdrawal.
                if check:
                    raise
        if not check:
            report = self._ask(given, "withdraw", f"--reason={given['reason']}", *forget)
            result |= {"report": report, "changed": report.get("changed")}
        return result

    def _status(self, given: dict[str, Any], check: bool, diff: bool) -> dict[str, Any]:
        return {"report": self._ask(given, "status"), "changed": False}
