#!/usr/bin/python
"""In which order a rollout reaches the edges."""

from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_waves
short_description: Order of a rollout
description:
  - Reads a publication on the publisher and makes waves, one canary for each region first.
options:
  publication:
    description: Folder of EDGE.json files.
    type: path
    required: true
  edges:
    description: Name and region of every edge.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The edge.
        type: str
        required: true
      region:
        description: Its region.
        type: str
        required: true
  growth:
    description: How many times larger each wave is than the one before.
    type: int
    default: 3
attributes:
  check_mode:
    description: It only reads.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Plan
  springtide.fleet.springtide_waves:
    publication: /var/lib/springtide/publish/candidate/edges
    edges: [{name: ams-1, region: europe}, {name: nyc-1, region: america}]
  register: plan
"""

RETURN = r"""
waves:
  description: Lists of edges.
  returned: success
  type: list
  elements: list
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import springtide_publisher as publisher


def main() -> None:
    suboptions = {"name": {"type": "str", "required": True}, "region": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "publication": {"type": "path", "required": True},
            "edges": {"type": "list", "elements": "dict", "required": True, "options": suboptions},
            "growth": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    folder = Path(module.params["publication"])
    if module.params["growth"] < 1:
        module.fail_json(msg="growth: is less than 1; waves cannot shrink")
    if not folder.is_dir():
        module.fail_json(msg=f"{folder}: is not there; publish a round first")
    try:
        edges = [(edge["name"], edge["region"]) for edge in module.params["edges"]]
        candidates = publisher.read_publication(folder, edges)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    salt = folder.resolve().parent.name
    waves = publisher.waves(candidates, module.params["growth"], salt)
    module.exit_json(changed=False, waves=waves, folder=str(folder.resolve()), name=salt)


if __name__ == "__main__":
    main()
