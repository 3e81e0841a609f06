"""In which order a rollout reaches the edges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils.springtide.publication import waves as order
from ..module_utils.springtide.publication.ways import WAYS, way_back

EDGE = {"name": {"type": "str", "required": True}, "region": {"type": "str", "required": True}}
SPEC = {
    "publication": {"type": "path", "required": True},
    "edges": {"type": "list", "elements": "dict", "required": True, "options": EDGE},
    "publish_dir": {"type": "path"},
    "growth": {"type": "int", "default": 3},
    "gate_tries": {"type": "int", "default": 0},
    "gate_delay_s": {"type": "int", "default": 0},
    "asked": {"type": "int", "default": 0},
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
            candidates = order.read_publication(folder, [(edge["name"], edge["region"]) for edge in given["edges"]])
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        name = folder.resolve().parent.name
        life = order.life_s(folder, [candidate.name for candidate in candidates], time.time())
        growth = self._growth(given, candidates, life)
        waves = order.waves(candidates, growth, name)
        tries = self._tries(given, folder, life, len(waves))
        result["warnings"] = []
        if growth > given["growth"]:
            result["warnings"].append(
                f"waves grow by {growth} and not by {given['growth']}, so that their gates fit into half of the"
                " bundles' life; raise bundle.ttl_s of policy.yaml for smaller ones"
            )
        if 0 < tries < given["gate_tries"]:
            result["warnings"].append(
                f"the bundles' life leaves {tries} of {given['gate_tries']} looks at the gate for each of {len(waves)}"
                " waves; raise bundle.ttl_s of policy.yaml for more"
            )
        publication = folder.resolve().parent
        found = {"folder": str(folder.resolve()), "name": name, "back": str(publication / WAYS[0])}
        if given["publish_dir"] is not None:
            found["way"] = self._way(publication, Path(given["publish_dir"]), candidates)
        reached = [wave[: given["asked"] or None] for wave in waves]
        return dict(result, changed=False, waves=waves, reached=reached, gate_tries=tries, **found)

    @staticmethod
    def _way(publication: Path, folder: Path, candidates: list[order.Candidate]) -> str:
        try:
            edges = [candidate.name for candidate in candidates]
            return way_back(publication, folder, edges, time.time()).name
        except (OSError, ValueError, KeyError) as error:
            raise AnsibleActionFail(str(error)) from error

    @staticmethod
    def _growth(given: dict[str, Any], candidates: list[order.Candidate], life: float) -> int:
        regions = len({candidate.region for candidate in candidates})
        tries, delay = given["gate_tries"], given["gate_delay_s"]
        return order.fitting_growth(len(candidates), regions, given["growth"], life, tries, delay)

    @staticmethod
    def _tries(given: dict[str, Any], folder: Path, left: float, waves: int) -> int:
        """Raises AnsibleActionFail where bundles would expire while their rollout waits."""
        tries = order.gate_tries(left, waves, given["gate_tries"], given["gate_delay_s"])
        if given["gate_tries"] > 0 and tries == 0:
            needed = 2 * waves * given["gate_delay_s"]
            what = f"its bundles hold for {left:.0f} s, gates of {waves} waves need {needed} s and more"
            raise AnsibleActionFail(f"{folder}: {what}; publish anew, with a larger bundle.ttl_s, or fewer waves")
        return tries
