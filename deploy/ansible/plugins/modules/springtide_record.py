#!/usr/bin/python
"""What a play did, for the audit."""

from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_record
short_description: What a play did, for the audit
description:
  - Appends a line to the publisher's journal, with who and when. C(springtide history) makes rows of the lines.
  - It needs neither store nor controller.
options:
  publish_dir:
    description: The publisher's folder.
    type: path
    required: true
  event:
    description: What it was.
    type: str
    choices: [rollout, wave, gate, rollback, withdraw, drift]
    required: true
  publication:
    description: The publication's name.
    type: str
    default: ""
  verdict:
    description: How it ended.
    type: str
    default: ""
  reason:
    description: Why.
    type: str
    default: ""
  edges:
    description: Which edges.
    type: list
    elements: str
    default: []
  details:
    description: Anything else.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Writes nothing.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Record
  springtide.fleet.springtide_record:
    publish_dir: /var/lib/springtide/publish
    event: withdraw
    reason: packet loss towards nyc
"""

RETURN = r""""""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import springtide_publisher as publisher


def main() -> None:
    events = ["rollout", "wave", "gate", "rollback", "withdraw", "drift"]
    module = AnsibleModule(
        argument_spec={
            "publish_dir": {"type": "path", "required": True},
            "event": {"type": "str", "choices": events, "required": True},
            "publication": {"type": "str", "default": ""},
            "verdict": {"type": "str", "default": ""},
            "reason": {"type": "str", "default": ""},
            "edges": {"type": "list", "elements": "str", "default": []},
            "details": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    fields = {key: value for key, value in module.params.items() if key != "publish_dir"}
    if not module.check_mode:
        try:
            publisher.record(Path(module.params["publish_dir"]), dict(fields, digest=""))
        except OSError as error:
            module.fail_json(msg=f"{module.params['publish_dir']}: {error.strerror}; let this user write there")
    # The journal is about the work and no part of it.
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
