#!/usr/bin/python
"""What a play did, for the audit."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
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
    choices: [rollout, wave, rollback, withdraw, drift]
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
  holds:
    description:
      - The part of the publication that holds on the fleet from then on; the link C(current) leads there.
      - It does so once the line is on the disk; for a rollback even where the line cannot be written. A rollout that
        begins again after it had come to its end moves nothing.
    type: str
    choices: [edges, back, back-if-done]
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
