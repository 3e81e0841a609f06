#!/usr/bin/python
"""Springtide on one edge: thin over the edge's own program, springtide-edge, which decides and does everything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: springtide_edge
short_description: Springtide on an edge
description:
  - Makes new connections start as a signed bundle says, or as the kernel does.
  - The bundle is read on the publisher. The edge checks signature, name, round, expiry and bounds itself.
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
  program:
    description: The edge's program, as the Debian package springtide-edge installs it.
    type: path
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

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

REFUSED = 2
# On an edge that edges.yml has not been run for yet: what the program before this one applied can be withdrawn.
EARLIER = "/usr/local/sbin/springtide-routes"


class EdgeError(Exception):
    """What the program answered instead of a report, with its exit code."""

    def __init__(self, message: str, code: int, holds: bool = False) -> None:
        super().__init__(message)
        self.code, self.holds = code, holds


def run(module: AnsibleModule, *arguments: str) -> dict[str, Any]:
    """The program's report. Raises EdgeError."""
    program = module.params["program"]
    if not Path(program).exists():
        raise EdgeError(f"{program}: is not installed; run edges.yml first", REFUSED)
    command = [program, *arguments, "--json", "--state-dir", module.params["state_dir"]]
    code, output, errors = module.run_command(command)
    try:
        report = json.loads(output)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        raise EdgeError(" ".join((errors or output).split())[:1000] or f"{program} answered nothing", code or 1)
    if "error" in report:
        raise EdgeError(str(report["error"]), code or 1, report.get("holds") is True)
    return report


def difference(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    def text(routes: dict[str, str]) -> str:
        return "".join(f"{prefix} {way}\n" for prefix, way in routes.items())

    return {
        "before_header": "table 201",
        "after_header": "table 201",
        "before": text(before),
        "after": text(after),
    }


def applied(module: AnsibleModule) -> dict[str, Any]:
    path = Path(module.tmpdir) / "bundle.json"
    try:
        path.write_bytes(base64.b64decode(module.params["content"], validate=True))
        if module.params["signature"]:
            Path(f"{path}.sig").write_bytes(base64.b64decode(module.params["signature"], validate=True))
    except binascii.Error as error:
        raise EdgeError(f"content: is not Base64 ({error}); give src instead", REFUSED) from error
    named = ["--edge", module.params["edge"]] if module.params["edge"] else []
    arguments = ["apply", str(path), *named, "--allowed-signers", module.params["allowed_signers"]]
    result: dict[str, Any] = {}
    if module.check_mode or module._diff:
        report = run(module, *arguments, "--dry-run")
        result["diff"] = difference(report.pop("before"), report.pop("after"))
    if not module.check_mode:
        report = run(module, *arguments)
    return dict(result, report=report, changed=report["changed"])


def withdrawn(module: AnsibleModule) -> dict[str, Any]:
    forget = ["--forget-round"] if module.params["forget_round"] else []
    result: dict[str, Any] = {}
    if module._diff or module.check_mode:
        try:
            looked = run(module, "withdraw", "--dry-run", *forget)
            result = {"diff": difference(looked["before"], {}), "changed": looked["changed"]}
        except EdgeError:
            # What keeps us from looking must not keep anything in.
            if module.check_mode:
                raise
    if not module.check_mode:
        earlier = not Path(module.params["program"]).exists() and Path(EARLIER).exists()
        reason = [] if earlier else ["--reason", module.params["reason"]]
        if earlier:
            module.params["program"] = EARLIER
        report = run(module, "withdraw", *reason, *forget)
        result = dict(result, report=report, changed=report["changed"])
    return result


def status(module: AnsibleModule) -> dict[str, Any]:
    return {"report": run(module, "status"), "changed": False}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["applied", "withdrawn", "status"], "default": "applied"},
            "src": {"type": "path"},
            "content": {"type": "str"},
            "signature": {"type": "str", "default": ""},
            "edge": {"type": "str"},
            "state_dir": {"type": "path", "default": "/var/lib/springtide"},
            "allowed_signers": {"type": "path", "default": "/etc/springtide/allowed_signers"},
            "forget_round": {"type": "bool", "default": False},
            "program": {"type": "path", "default": "/usr/bin/springtide-edge"},
            "reason": {"type": "str", "default": "withdrawn by Ansible"},
        },
        required_if=[("state", "applied", ("content",))],
        supports_check_mode=True,
    )
    act = {"applied": applied, "withdrawn": withdrawn, "status": status}[module.params["state"]]
    try:
        result = act(module)
    except EdgeError as error:
        module.fail_json(msg=str(error), refusal=error.code, holds=error.holds)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
