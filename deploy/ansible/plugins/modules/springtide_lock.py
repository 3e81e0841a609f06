#!/usr/bin/python
"""One push at a time from this publisher."""

from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_lock
short_description: One push at a time
description:
  - Takes the publisher's lock for as long as this ansible-playbook lives, or gives it back.
  - A run that was killed holds nothing.
options:
  publish_dir:
    description: The publisher's folder.
    type: path
    required: true
  state:
    description: Take it or give it back.
    type: str
    choices: [present, absent]
    default: present
  what:
    description: What is being done, for whoever is refused meanwhile.
    type: str
    default: a push
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

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import springtide_publisher as publisher


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "publish_dir": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "what": {"type": "str", "default": "a push"},
        },
        supports_check_mode=True,
    )
    folder = Path(module.params["publish_dir"])
    if module.check_mode:
        module.exit_json(changed=False)
    pid = publisher.playbook_process()
    try:
        if module.params["state"] == "absent":
            publisher.give_lock_back(folder, pid)
            module.exit_json(changed=False)
        holder = publisher.take_lock(folder, pid, module.params["what"])
    except OSError as error:
        module.fail_json(msg=f"{folder}: {error.strerror}; let this user write there")
    if holder is not None:
        module.fail_json(msg=f"{folder / publisher.LOCK}: taken: {holder}; wait until it has ended")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
