"""The systemd units name commands that exist, in words that systemd understands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import click
import pytest
from springtide.cli import cli
from testkit.edge import PROGRAM

ROOT = Path(__file__).parents[3]
UNITS = [*sorted((ROOT / "deploy/systemd").iterdir()), *sorted((ROOT / "edge/packaging").glob("*.[st]*[er]"))]
INSTALLED = "/usr/bin/springtide-edge"
PROGRAMS = (INSTALLED, *(f"/usr/local/bin/{name}" for name in ("ansible-playbook", "airflow", "springtide")))


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(re.sub("|".join(PROGRAMS), str(PROGRAM), unit.read_text()))
    assert len(copies) == 21
    command = ["systemd-analyze", "verify", "--man=no", *map(str, copies)]
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_run_commands_that_there_are() -> None:
    found = [
        line
        for unit in UNITS
        if unit.name.startswith("springtide-edge-")
        for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    ]
    assert sorted(found) == [
        f"{INSTALLED} follow",
        f"{INSTALLED} parity",
        f"{INSTALLED} probe --serve [::]:8017",
        f"{INSTALLED} probe --targets /etc/springtide/probe-targets",
        f"{INSTALLED} pull",
        f"{INSTALLED} watch",
    ]
    for line in found:
        help_of = subprocess.run([str(PROGRAM), *line.split()[1:], "--help"], check=False, capture_output=True)
        assert help_of.returncode == 0


def test_the_units_give_springtide_what_its_commands_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their own words, and the one variable that the unit asks for."""
    monkeypatch.setenv("SPRINGTIDE_KAFKA", "kafka-1:9092")
    found = [re.findall(r"^ExecStart=-?/usr/local/bin/springtide (.*)$", unit.read_text(), re.M) for unit in UNITS]
    lines = [line for of_unit in found for line in of_unit]
    assert len(lines) == 8
    for line in lines:
        group: click.Group = cli
        name, *words = line.split()
        while isinstance(command := group.get_command(click.Context(group), name), click.Group):
            group, (name, *words) = command, words
        assert command is not None, line
        # Places that only an installed site has.
        command.make_context(name, [str(ROOT) if word.startswith("/var/") else word for word in words])


def test_without_a_folder_for_metrics_the_units_write_none_into_the_root() -> None:
    """An operator sets SPRINGTIDE_METRICS_DIR to nothing: each command gets that as its folder."""
    found = [re.findall(r"^ExecStart=(.*METRICS_DIR.*)$", unit.read_text(), re.M) for unit in UNITS]
    lines = [line for of_unit in found for line in of_unit]
    assert len(lines) == 2
    for line in lines:
        assert line.endswith(" --metrics-dir ${SPRINGTIDE_METRICS_DIR}"), line


def test_the_probes_units_keep_to_what_the_program_does() -> None:
    """Its folder is the one that the program writes to by default, and systemd ends no run that ends by itself."""
    text = (ROOT / "edge/packaging/springtide-edge-probe.service").read_text()
    help_of = subprocess.run([str(PROGRAM), "probe", "--help"], check=True, capture_output=True, text=True).stdout
    default = dict(re.findall(r"--(\w+) <[^>]+>[^<]*?\[default:\s+([^\]]+)\]", help_of))
    [folder] = re.findall(r"^StateDirectory=(.*)$", text, re.M)
    assert default["out"] == f"/var/lib/{folder}"
    [minutes] = re.findall(r"^TimeoutStartSec=(\d+)min$", text, re.M)
    # The grace after the spread, and a fetch that begins at its end.
    assert int(default["spread"]) + 300 + int(default["timeout"]) < 60 * int(minutes) < 3600
    ours = [unit for unit in UNITS if "probe" in unit.name and unit.suffix == ".service"]
    assert len(ours) == 2
    for unit in ours:
        # Neither needs a right that another program lacks.
        assert {"DynamicUser=yes", "CapabilityBoundingSet=", "NoNewPrivileges=yes"} <= set(unit.read_text().split("\n"))


def test_the_watch_may_be_told_to_write_metrics(tmp_path: Path) -> None:
    unit = tmp_path / "springtide-edge-watch.service"
    packaging = ROOT / "edge/packaging"
    unit.write_text((packaging / unit.name).read_text().replace(INSTALLED, str(PROGRAM)))
    drop_in = tmp_path / f"{unit.name}.d" / "metrics.conf"
    drop_in.parent.mkdir()
    text = (packaging / "metrics.conf").read_text()
    drop_in.write_text(text.replace(INSTALLED, str(PROGRAM)))
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    [file] = re.findall(r"^ExecStart=/usr/bin/springtide-edge watch --metrics (\S+)$", text, re.M)
    assert re.findall(r"^ReadWritePaths=(.*)$", text, re.M) == [f"-{Path(file).parent}"]
