"""Whether a rollout goes on after a wave: only where each edge of it holds the round and the gate's verdict is go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.errors import SpringtideError
from ..module_utils.springtide.publication import gate, journal
from ..module_utils.springtide.publication.withdrawal import withdrawn

ROLLOUT = {
    "publish_dir": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "waves": {"type": "list", "elements": "list", "required": True},
    "reached": {"type": "list", "elements": "list", "required": True},
    "gate": {"type": "list", "elements": "str", "required": True},
    "gate_tries": {"type": "int", "required": True},
    "gate_delay_s": {"type": "float", "required": True},
}
SO_FAR = {
    "cleared": {"type": "int", "required": True},
    "changed": {"type": "list", "elements": "str", "required": True},
    "failure": {"type": "str", "required": True},
}
OFFERED = {
    "edges": {"type": "list", "elements": "str", "required": True},
    "failure": {"type": "str", "required": True},
}
SPEC = {
    "rollout": {"type": "dict", "required": True, "options": ROLLOUT},
    "so_far": {"type": "dict", "required": True, "options": SO_FAR},
    "offered": {"type": "dict", "options": OFFERED},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible brings no types
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(SPEC)
        rollout, so_far = given["rollout"], given["so_far"]
        reached = rollout["reached"][so_far["cleared"]]
        # Only this is used of what edges answered, and only true and false of it.
        hosts = (task_vars or {})["hostvars"]
        answers = {edge: hosts[edge].get("springtide_applied") for edge in reached}
        try:
            so_far = self._judge(rollout, so_far, answers, given["offered"])
        except OSError as error:
            what = f"{error.filename or rollout['publish_dir']}: {error.strerror}"
            raise AnsibleActionFail(f"{what}; let this user write there") from error
        except SpringtideError as error:
            raise AnsibleActionFail(str(error)) from error
        return dict(result, changed=False, so_far=so_far)

    def _judge(
        self, rollout: dict[str, Any], so_far: dict[str, Any], answers: dict[str, Any], offered: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Judges this wave and returns what is known after it; it is cleared where nothing is against it.

        Raises OSError, SpringtideError.
        """
        folder, number = Path(rollout["publish_dir"]), so_far["cleared"] + 1
        wave = rollout["waves"][so_far["cleared"]]
        bad = [edge for edge, answer in answers.items() if not gate.applied(answer)]
        now_changed = [edge for edge in answers if edge not in bad and answers[edge]["changed"]]
        failure = f"not applied on {', '.join(bad)}" if bad else ""
        if offered is not None and not self._task.check_mode:
            failure, now_changed = offered["failure"] or gate.not_pulled(answers), offered["edges"]
        changed = so_far["changed"] + now_changed
        failure = self._stopped(folder) or failure
        if not self._task.check_mode:
            event = journal.Event(
                "wave",
                publication=rollout["name"],
                verdict="failed" if failure else "applied",
                reason=failure,
                edges=wave,
                details={"changed": now_changed},
            )
            journal.append(folder, event)
            failure = failure or self._gate(rollout, number, now_changed)
            if not failure:
                journal.append(folder, journal.Event("cleared", publication=rollout["name"], edges=wave))
        return {"cleared": number - bool(failure), "changed": changed, "failure": failure}

    def _gate(self, rollout: dict[str, Any], number: int, now_changed: list[str]) -> str:
        """Why the gate does not clear this wave. It is asked where something changed, now or in a run that was killed.

        Raises OSError, SpringtideError.
        """
        if not rollout["gate"]:
            return ""
        folder, name, wave = Path(rollout["publish_dir"]), rollout["name"], rollout["waves"][number - 1]
        events, _, _ = journal.read(folder)
        begun = now_changed if gate.cleared(events, name).issuperset(wave) else wave
        if not begun:
            return ""
        have = gate.cleared(gate.last_rollout(events, name), name).union(begun)
        every = [edge for each in rollout["waves"] for edge in each]
        command = [*rollout["gate"], "--publication", name, "--wave", str(number)]
        command += ["--changed", ",".join(edge for edge in every if edge in have)]
        command += ["--unchanged", ",".join(edge for edge in every if edge not in have)]
        refusal = gate.run_gate(command, rollout["gate_tries"], rollout["gate_delay_s"])
        return self._stopped(folder) or (f"the gate after wave {number} answered {refusal}" if refusal else "")

    @staticmethod
    def _stopped(folder: Path) -> str:
        return "withdraw.yml came in between" if withdrawn(folder) is not None else ""
