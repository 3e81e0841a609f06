#!/usr/bin/python
"""Whether a rollout goes on after a wave."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_judge
short_description: Whether a rollout goes on after a wave
description:
  - Clears a wave only where each edge that was reached confirms that it has the round, in C(springtide_applied).
  - Where edges pull, most of those that were asked must have had it before.
  - Nobody may have withdrawn the fleet, the journal must have the wave, and the gate's verdict must be go.
  - It takes nothing else from an edge.
options:
  rollout:
    description: What is rolled out, and how its gate is run.
    type: dict
    required: true
    suboptions:
      publish_dir:
        description: The publisher's folder.
        type: path
        required: true
      name:
        description: The publication's name.
        type: str
        required: true
      waves:
        description: Edges of every wave.
        type: list
        elements: list
        required: true
      reached:
        description: Of every wave the edges that were reached over ssh.
        type: list
        elements: list
        required: true
      gate:
        description: The gate's command, which exits with 0 for go and 3 for wait; empty runs none.
        type: list
        elements: str
        required: true
      gate_tries:
        description: How often it may be tried again.
        type: int
        required: true
      gate_delay_s:
        description: Seconds between them.
        type: float
        required: true
  so_far:
    description: What is known after the waves before.
    type: dict
    required: true
    suboptions:
      cleared:
        description: How many waves were cleared; the next of them is judged.
        type: int
        required: true
      changed:
        description: Edges that were changed.
        type: list
        elements: str
        required: true
      failure:
        description: Why the rollout has failed; empty where it has not.
        type: str
        required: true
  offered:
    description: Where edges pull, what was offered.
    type: dict
    suboptions:
      edges:
        description: Edges that were offered another bundle.
        type: list
        elements: str
        required: true
      failure:
        description: Why not all could be offered theirs; empty where they were.
        type: str
        required: true
attributes:
  check_mode:
    description: Writes nothing and runs no gate.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Judge
  springtide.fleet.springtide_judge:
    rollout: "{{ hostvars['localhost'].springtide_rollout }}"
    so_far: "{{ hostvars['localhost'].springtide_so_far }}"
"""

RETURN = r"""
so_far:
  description: What is known after this wave.
  returned: success
  type: dict
"""
