"""A release, and a machine that has nothing else to install the controller from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testkit.debian import once, run
from testkit.machine import Machine

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".venv/bin/uv"
# Pinned packages are links to the cache: hundreds of megabytes are not copied. The wheel is.
PIP = """#!/bin/sh
case "$*" in *.lock) UV_LINK_MODE=symlink ;; *) UV_LINK_MODE=copy ;; esac
export UV_LINK_MODE
set -- /srv/uv pip "$@" --python /opt/springtide/bin/python
"$@" --offline 2>/dev/null || exec "$@"
"""


def made(folder: Path) -> Path:
    """All of it in `folder`, signed by the key beside that; from what uv has in its cache, else from the network."""
    key = folder.with_name("releaser")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    for more in ({"UV_OFFLINE": "1"}, {}):
        command = [str(ROOT / "tools/release"), "--sign-key", str(key), str(folder)]
        done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return folder
    raise AssertionError(done.stderr)


def shared(folders: pytest.TempPathFactory) -> Path:
    """The release of this run of the tests, which nobody changes."""
    return once(folders, "release", made)


def bring(there: Machine, release: Path) -> None:
    """The release in its /srv/release, what an earlier installation left is gone, and uv is in place of pip."""
    programs = "/usr/local/bin/{springtide,ansible-playbook,airflow}"
    gone = "/opt/springtide /etc/springtide /var/lib/springtide /var/spool/springtide /etc/ansible/ansible.cfg"
    there.run(f"rm -rf {gone} {programs}; mkdir -p /etc/springtide")
    shutil.copytree(release, there.root / "srv/release")
    shutil.copy(UV, there.root / "srv/uv")
    pip = there.root / "srv/pip"
    pip.write_text(PIP)
    pip.chmod(0o755)
