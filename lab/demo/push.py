"""Pushing a published round to the lab's edges as an operator does: Ansible, over SSH, in waves.

Each edge's sshd runs in the edge's namespace, on the connection's own pipe (`sshd -i`): the way of an operator's
management network, and none of it crosses the WAN whose connections are measured.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.demo.product import EDGE, ROOT, CommandError, Springtide, run
from lab.errors import InputError

ANSIBLE = ROOT / "deploy/ansible"
SSHD = Path("/usr/sbin/sshd")
# Keys, files and sessions of the lab only, whatever the machine's own sshd does.
SSHD_CONFIG = """\
HostKey {ssh}/host
AuthorizedKeysFile {ssh}/login.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
# The default with sntrup761 takes a fifth of a second of processor time for each connection.
KexAlgorithms curve25519-sha256
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Push:
    """A publisher with its own keys below `out`. `inside` makes the command line that runs a command on an edge,
    `enforcing` gives the options that springtide-edge needs there."""

    out: Path
    product: Springtide
    edges: Sequence[str]
    inside: Callable[[str, Sequence[str]], list[str]]
    enforcing: Callable[[str], Sequence[str]] = lambda edge: ()

    def prepare(self) -> None:
        """Keys, sshd's configuration, and what Ansible must know of each edge. Raises InputError, CommandError."""
        if not SSHD.is_file():
            raise InputError(f"{SSHD}: no such program: apt-get install openssh-server")
        # sshd insists on it, and nothing else makes it where no sshd of the machine's own runs.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        ssh, variables, programs = self.out / "ssh", self.out / "host_vars", self.out / "programs"
        for folder in (ssh, variables, programs):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        ssh.chmod(0o700)
        for key in ("host", "login"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(ssh / key)])
        (ssh / "sshd_config").write_text(SSHD_CONFIG.format(ssh=ssh))
        (ssh / "known_hosts").write_text(f"* {(ssh / 'host.pub').read_text()}")
        for edge in self.edges:
            proxy = shlex.join(self.inside(edge, [str(SSHD), "-i", "-f", str(ssh / "sshd_config")]))
            about = {
                "ansible_user": "root",
                "ansible_python_interpreter": sys.executable,
                "ansible_ssh_private_key_file": str(ssh / "login"),
                "ansible_ssh_common_args": f"-o ProxyCommand={shlex.quote(proxy)}",
                "springtide_state_dir": str(self.out / "edges" / edge),
                "springtide_edge_program": str(self._program(programs / edge, self.enforcing(edge))),
            }
            (variables / f"{edge}.yml").write_text(yaml.safe_dump(about))

    def _program(self, script: Path, options: Sequence[str]) -> Path:
        """springtide-edge with options that a host of its own does not need: edges of a lab share one file system."""
        if not options:
            return EDGE
        script.write_text(f'#!/bin/sh\nexec {EDGE} "$@" {shlex.join(options)}\n')
        script.chmod(0o755)
        return script

    def variables(self) -> dict[str, Any]:
        """Variables of every play on these edges."""
        signers = str(self.out / "allowed_signers")
        return {
            "springtide_publish_dir": str(self.product.publish_dir),
            "springtide_allowed_signers": signers,
            "springtide_edge_allowed_signers": signers,
            "springtide_command": str(Path(sys.executable).with_name("springtide")),
        }

    def environment(self) -> dict[str, str]:
        """The environment of every play: it reaches the edges only, and keeps all below `out`."""
        return {
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.out / "ansible"),
            # No connection outlives the play: its other end would hold the edge's namespace.
            "ANSIBLE_SSH_ARGS": f"-o ControlMaster=no -o UserKnownHostsFile={self.out}/ssh/known_hosts"
            " -o LogLevel=ERROR",
            "SPRINGTIDE_STORE": f"chdb://{self.product.store}",
            "SPRINGTIDE_FLEET": str(self.product.fleet),
            "SPRINGTIDE_POLICY": str(self.product.policy),
        }

    def play(self, name: str, options: Iterable[str] = (), **variables: Any) -> str:
        """`ansible-playbook playbooks/NAME`; what it printed. Raises CommandError."""
        known = {**self.variables(), **variables}
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.product.fleet)]
        command += ["-e", json.dumps(known), *options, str(ANSIBLE / "playbooks" / name)]
        environment = {**os.environ, **self.environment()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        (self.out / f"{name}.log").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            # Ansible prints what failed among its output, and ends with a recap of every edge.
            failures = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]: ")]
            reason = failures[0] if failures else done.stderr or done.stdout
            raise CommandError(["ansible-playbook", name], done.returncode, reason)
        return done.stdout
