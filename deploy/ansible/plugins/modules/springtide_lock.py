#!/usr/bin/python
"""One push at a time from this publisher."""

# It runs on the publisher within Ansible itself: plugins/action has the code.
from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_lock
short_description: One push at a time
description:
  - Takes the publisher's lock for as long as this ansible-playbook lives, or gives it back.
  - A run that was killed holds nothing.
  - After a withdrawal nothing is pushed until somebody resumes.
options:
  publish_dir:
    description: The publisher's folder.
    type: path
    required: true
  state:
    description:
      - Take it or give it back.
      - V(resumed) ends a withdrawal, for whoever has taken it with O(resume) and is about to push.
    type: str
    choices: [present, resumed, absent]
    default: present
  what:
    description: What is being done, for whoever is refused meanwhile.
    type: str
    default: a push
  resume:
    description: Take it also after a withdrawal.
    type: bool
    default: false
  without_disk:
    description: Go on, with a warning, where the lock is free and nothing can be written. Taking back needs no disk.
    type: bool
    default: false
  stop:
    description: Instead of taking the lock, let nothing be pushed until somebody resumes; the text is the reason.
    type: str
    default: ""
attributes:
  check_mode:
    description: Takes no lock.
    support: full
author:
  - The Springtide authors
"""

EXAMPLES = r"""
- name: Lock
  springtide.fleet.springtide_lock:
    publish_dir: /var/lib/springtide/publish
    what: a rollout
"""

RETURN = r""""""
