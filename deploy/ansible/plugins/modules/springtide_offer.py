#!/usr/bin/python
"""Bundles where edges fetch them by themselves."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_offer
short_description: Bundles for edges that pull
description:
  - Replaces objects EDGE.bundle in a folder that a web server serves; C(springtide-edge pull) fetches and judges them.
options:
  origin:
    description: The folder.
    type: path
    required: true
  state:
    description:
      - V(withdrawn) offers every edge the kernel's default, and nothing else; without a folder, nothing.
      - It does so in a process of its own, so that a task's C(timeout) ends the wait for a disk that hangs.
    type: str
    choices: [offered, withdrawn]
    default: offered
  publish_dir:
    description: The publisher's folder, whose newest publication has the bundles for V(withdrawn).
    type: path
  part:
    description: The part of a publication, a folder of EDGE.json and EDGE.json.sig.
    type: path
  edges:
    description: The edges to which it is offered.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: It changes nothing.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Offer
  springtide.fleet.springtide_offer:
    origin: /srv/springtide
    part: /var/lib/springtide/publish/candidate/edges
    edges: [ams-1, nyc-1]
"""

RETURN = r"""
edges:
  description: Edges whose object is another one now.
  returned: success
  type: list
  elements: str
"""
