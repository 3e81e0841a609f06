"""The systemd units name commands that exist, in words that systemd understands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from deploy.ansible.plugins.module_utils.springtide_routes import parser
from testkit.edge import SCRIPT

UNITS = Path(__file__).parents[2] / "systemd"
INSTALLED = "/usr/local/sbin/springtide-routes"


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    program = tmp_path / "springtide-routes"
    program.write_bytes(SCRIPT.read_bytes())
    program.chmod(0o755)
    copies = []
    for unit in sorted(UNITS.iterdir()):
        copies.append(tmp_path / unit.name)
        text = unit.read_text().replace(INSTALLED, str(program)).replace("/usr/bin/ansible-playbook", str(program))
        copies[-1].write_text(text)
    assert len(copies) == 5
    command = ["systemd-analyze", "verify", "--man=no", *map(str, copies)]
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_run_commands_that_there_are() -> None:
    found = [
        line
        for unit in UNITS.glob("springtide-routes-*.service")
        for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    ]
    assert sorted(found) == [f"{INSTALLED} follow", f"{INSTALLED} watch"]
    for line in found:
        assert parser().parse_args(line.split()[1:]).command == line.split()[1]
