#!/usr/bin/python
"""In which order a rollout reaches the edges."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
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
  publish_dir:
    description: The publisher's folder, to find the publication's way back to what holds; it fails where there is none.
    type: path
  growth:
    description:
      - How many times larger each wave is than the one before. It is raised, to 30 at most, where a gate for each wave
        could not be tried again twice within half of what is left of the bundles' life.
    type: int
    default: 3
  gate_tries:
    description:
      - How often each wave's gate may be tried again. Fewer are returned where waiting for all waves would take more
        than half of what is left of the bundles' life, and it fails where that leaves none; V(0) runs no gate.
    type: int
    default: 0
  gate_delay_s:
    description: Seconds between them.
    type: int
    default: 0
  asked:
    description: How many edges of each wave are reached over ssh, the first ones; V(0) reaches all.
    type: int
    default: 0
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
reached:
  description: Of each wave the edges that are reached over ssh.
  returned: success
  type: list
  elements: list
gate_tries:
  description: How often each wave's gate may be tried again.
  returned: success
  type: int
folder:
  description: Where the bundles are, links resolved.
  returned: success
  type: path
name:
  description: The publication's name.
  returned: success
  type: str
way:
  description: The part of the publication, back or back-if-done, that brings the edges back to what they have now.
  returned: when publish_dir is given
  type: str
back:
  description: Where those are once the rollout has begun.
  returned: success
  type: path
"""
