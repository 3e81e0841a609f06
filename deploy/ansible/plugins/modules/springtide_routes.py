#!/usr/bin/python
"""Springtide's routes on one edge: thin over module_utils/springtide_routes.py, which decides and does everything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_routes
short_description: Springtide's routes on an edge
description:
  - Makes table 201 match a signed bundle, or empty.
  - The bundle is read on the publisher. The edge checks signature, name, round, expiry and bounds itself.
  - A failure leaves the previous routes, or none; the message has which.
options:
  state:
    description:
      - V(applied) makes the kernel hold the bundle's routes.
      - V(withdrawn) removes every route and rule of Springtide; it needs no bundle.
      - V(status) only looks.
    type: str
    choices: [applied, withdrawn, status]
    default: applied
  src:
    description: The bundle on the publisher; its signature is the file of that name with C(.sig).
    type: path
  content:
    description: The bundle in Base64. Filled in from O(src).
    type: str
  signature:
    description: The signature in Base64; empty when there is none. Filled in from O(src).
    type: str
    default: ""
  edge:
    description: The edge's name in fleet.yaml; by default the content of /etc/springtide/edge.
    type: str
  state_dir:
    description: Where the edge keeps what is applied.
    type: path
    default: /var/lib/springtide
  allowed_signers:
    description: Whose signatures count, as in ssh-keygen(1).
    type: path
    default: /etc/springtide/allowed_signers
  forget_round:
    description:
      - With O(state=withdrawn), any round is taken again, of bundles created from now on; older ones stay refused.
      - For an edge that took a round under a wrong clock and refuses every later one. Set its clock right first.
    type: bool
    default: false
  reason:
    description: Why the routes are withdrawn; the edge remembers it.
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
  springtide.fleet.springtide_routes:
    src: /var/lib/springtide/publish/candidate/{{ inventory_hostname }}.json
    edge: "{{ inventory_hostname }}"

- name: Withdraw
  springtide.fleet.springtide_routes:
    state: withdrawn
    reason: packet loss towards nyc

- name: Take rounds again, after one that was applied under a clock far ahead
  springtide.fleet.springtide_routes:
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

import base64
import binascii
import contextlib
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import springtide_routes as core


def as_text(routes: dict[str, str]) -> str:
    return "".join(f"{prefix} {arguments}\n" for prefix, arguments in routes.items())


def difference(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    headers = {"before_header": "table 201", "after_header": "table 201"}
    return dict(headers, before=as_text(before), after=as_text(after))


def in_kernel(state_dir: str) -> core.Snapshot:
    """What is ours now; the state directory is not made where there is none."""
    store = core.Store(state_dir)
    if not store.directory.is_dir():
        return core.Kernel(None).snapshot()
    with store.locked() as lock:
        return core.Kernel(lock).snapshot()


def applied(module: AnsibleModule) -> dict[str, Any]:
    folder = Path(module.tmpdir)
    edge = core.edge_name(module.params["edge"])
    path = folder / f"{edge}.json"
    try:
        path.write_bytes(base64.b64decode(module.params["content"], validate=True))
        if module.params["signature"]:
            Path(f"{path}.sig").write_bytes(base64.b64decode(module.params["signature"], validate=True))
    except binascii.Error as error:
        raise core.RefusedError(f"content: is not Base64 ({error}); give src instead") from error
    arguments = (str(path), edge, module.params["state_dir"], module.params["allowed_signers"])
    result: dict[str, Any] = {}
    if module.check_mode or module._diff:
        report = core.preview(*arguments)
        result["diff"] = difference(report.pop("before"), report.pop("after"))
    if not module.check_mode:
        report = core.apply(*arguments)
    return dict(result, report=report, changed=report["changed"])


def withdrawn(module: AnsibleModule) -> dict[str, Any]:
    state_dir = module.params["state_dir"]
    result: dict[str, Any] = {}
    if module._diff and not module.check_mode:
        # What keeps us from looking must not keep the routes in.
        with contextlib.suppress(core.RefusedError, core.FailedError):
            result["diff"] = difference(core.Kernel().snapshot().routes, {})
    if not module.check_mode:
        report = core.withdraw(state_dir, module.params["reason"], forget_round=module.params["forget_round"])
        return dict(result, report=report, changed=report["changed"])
    before = in_kernel(state_dir)
    result["diff"] = difference(before.routes, {})
    store = core.Store(state_dir)
    try:
        state = store.load("state.json")
    except core.DamagedError:
        state = None
    stands = state is not None and (state["withdrawn"] is None or module.params["forget_round"])
    return dict(result, changed=bool(before.routes or before.rules or stands))


def status(module: AnsibleModule) -> dict[str, Any]:
    return {"report": core.status(module.params["state_dir"]), "changed": False}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["applied", "withdrawn", "status"], "default": "applied"},
            "src": {"type": "path"},
            "content": {"type": "str"},
            "signature": {"type": "str", "default": ""},
            "edge": {"type": "str"},
            "state_dir": {"type": "path", "default": core.DEFAULT_STATE_DIR},
            "allowed_signers": {"type": "path", "default": core.DEFAULT_ALLOWED_SIGNERS},
            "forget_round": {"type": "bool", "default": False},
            "reason": {"type": "str", "default": "withdrawn by Ansible"},
        },
        required_if=[("state", "applied", ("content",))],
        supports_check_mode=True,
    )
    act = {"applied": applied, "withdrawn": withdrawn, "status": status}[module.params["state"]]
    try:
        core.require_net_admin()
        result = act(module)
    except (core.RefusedError, core.FailedError) as error:
        module.fail_json(msg=str(error), refusal=error.exit_code, holds=isinstance(error, core.UnrecordedError))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['state_dir']}: {error.strerror}", refusal=core.FAILED)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
