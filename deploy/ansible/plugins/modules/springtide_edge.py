#!/usr/bin/python
"""Springtide on one edge: thin over the edge's own program, springtide-edge, which decides and does everything."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_edge
short_description: Springtide on an edge
description:
  - Makes new connections start as a signed bundle says, or as the kernel does.
  - The bundle is read on the publisher. The edge checks signature, name, round, expiry and bounds itself.
  - One command over ssh, which takes a shell and coreutils on the edge, and no Python.
  - A failure leaves the previous routes, or none; the message has which.
options:
  state:
    description:
      - V(applied) makes the kernel hold the bundle's values.
      - V(withdrawn) removes everything of Springtide from the kernel; it needs no bundle.
      - V(status) only looks.
    type: str
    choices: [applied, withdrawn, status]
    default: applied
  src:
    description: The bundle on the publisher; its signature is the file of that name with C(.sig).
    type: path
  edge:
    description: The edge's name in fleet.yaml; by default the content of /etc/springtide/edge.
    type: str
  state_dir:
    description: Where the edge keeps what is applied.
    type: str
    default: /var/lib/springtide
  allowed_signers:
    description: Keys whose signatures count, as in ssh-keygen(1).
    type: str
    default: /etc/springtide/allowed_signers
  forget_round:
    description:
      - With O(state=withdrawn), any round is taken again, of bundles created from now on; older ones stay refused.
      - For an edge that took a round under a wrong clock and refuses every later one. Set its clock right first.
    type: bool
    default: false
  program:
    description: The edge's program, as the Debian package springtide-edge installs it.
    type: str
    default: /usr/bin/springtide-edge
  reason:
    description: Why everything is withdrawn; the edge remembers it.
    type: str
    default: withdrawn by Ansible
attributes:
  check_mode:
    description: Reads all that the change would need, and reports what it would be.
    support: full
  diff_mode:
    description: One line a route, before and after.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Apply
  springtide.fleet.springtide_edge:
    src: /var/lib/springtide/publish/candidate/{{ inventory_hostname }}.json
    edge: "{{ inventory_hostname }}"

- name: Withdraw
  springtide.fleet.springtide_edge:
    state: withdrawn
    reason: packet loss towards nyc

- name: Take rounds again, after one that was applied under a clock far ahead
  springtide.fleet.springtide_edge:
    state: withdrawn
    forget_round: true
"""

RETURN = r"""
report:
  description: What the edge's own command prints with C(--json).
  returned: success
  type: dict
holds:
  description: The kernel holds what the bundle wants all the same; only the record of it could not be written.
  returned: failure
  type: bool
refusal:
  description: The edge's exit code for the failure, 2 or 10 to 15 when it refused and nothing was changed.
  returned: failure
  type: int
"""
