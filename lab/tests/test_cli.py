"""The command line: what people and programs read from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab import host
from lab.demo.starts import rounds_of
from lab.lab import Lab
from lab.tests.conftest import TOPOLOGY
from lab.topology import load_topology

DEMO = host.REPOSITORY / "lab/topologies/demo.yaml"


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=host.REPOSITORY)


@pytest.mark.parametrize(
    "command", [[], ["up"], ["exec"], ["load"], ["probe"], ["status"], ["clean"], ["fleet"], ["demo"], ["truth"]]
)
def test_help_has_examples(command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.returncode == 0
    assert "Examples:\n    python -m lab " in done.stdout


@pytest.mark.parametrize("path", [DEMO, TOPOLOGY], ids=lambda path: path.stem)
def test_the_fleet_that_it_writes_is_one_that_springtide_accepts(tmp_path: Path, path: Path) -> None:
    fleet, policy = tmp_path / "fleet.yaml", tmp_path / "policy.yaml"
    fleet.write_text(cli("fleet", str(path)).stdout)
    policy.write_text("")
    springtide = str(Path(sys.executable).with_name("springtide"))
    command = [springtide, "check", "--fleet", str(fleet), "--policy", str(policy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(cli("fleet", str(path), "--json").stdout) == yaml.safe_load(fleet.read_text())


def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(DEMO.read_text().replace("seed: 20", "seed: x"))
    for command in ("up", "fleet"):
        done = cli(command, str(path))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"lab: {path}:3: seed: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("pops", "more", "message"),
    [
        ("ams", "", "pops: has one PoP"),
        ("ams nyc", "traffic: {servers: [ams], silent: [{src: ams, dst: nyc}]}", "leaves no pair with traffic"),
        ("ams nyc", "rtt_ms: {ams: {nyc: 0}}", "rtt_ms: is 0 on every pair"),
    ],
)
def test_a_demo_of_nothing_is_refused_in_one_line(tmp_path: Path, pops: str, more: str, message: str) -> None:
    path = tmp_path / "lab.yaml"
    listed = [
        f"  {pop}: {{prefixes: [10.9.{at}.0/24], edges: {{{pop}-1: {{addresses: [10.9.{at}.1]}}}}}}"
        for at, pop in enumerate(pops.split())
    ]
    path.write_text("\n".join(["name: x", "default_rtt_ms: 10", "pops:", *listed, more, ""]))
    done = cli("demo", "--topology", str(path), "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_demo_decides_once_more_where_edges_pace() -> None:
    shipped = load_topology(DEMO)
    assert rounds_of(shipped) == 2
    assert rounds_of(shipped.model_copy(update={"enforce": "bpf"})) == 3


@pytest.mark.root
@pytest.mark.parametrize(("without", "enforce"), [("", "bpf"), ("-bpf,-sys_admin", "routes")])
def test_the_demos_edges_enforce_by_bpf_where_this_kernel_can(without: str, enforce: str) -> None:
    script = (
        "from rich.console import Console\n"
        "from lab.demo.command import as_this_host_can\n"
        "from lab.demo.run import TOPOLOGY\n"
        "from lab.topology import load_topology\n"
        "print(as_this_host_can(load_topology(TOPOLOGY), Console(stderr=True)).enforce)\n"
    )
    limits = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"] if without else []
    command = [*limits, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=host.REPOSITORY)
    assert done.stdout == f"{enforce}\n"
    assert done.stderr.startswith(f"edges enforce by {enforce}: ")
    assert ("CAP_BPF" in done.stderr) == bool(without)


@pytest.mark.root
def test_a_lab_can_be_used_from_the_shell(lab: Lab) -> None:
    """The fixture's lab is used as one that some other process made."""
    name = ("--lab", lab.name)
    assert cli("exec", *name, "nyc-1", "--", "ip", "-o", "link", "show", "wan0").stdout.count("\n") == 1
    assert cli("exec", *name, "nyc-1", "--", "false").returncode == 1
    assert cli("exec", *name, "lon-1", "--", "true").returncode == 2

    probes = cli("probe", *name, "--count", "2", "--size", "10000", "--pair", "ams:sin", "--json")
    rows = [json.loads(line) for line in probes.stdout.splitlines()]
    assert [(row["src"], row["dst"], row["size_bytes"], row["rtt_ms"], row["ok"]) for row in rows] == [
        ("ams", "sin", 10_000, 150.0, True)
    ] * 2
    wrong = cli("probe", *name, "--pair", "ams")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--pair ams: is not SRC:DST" in wrong.stderr

    load = json.loads(cli("load", *name, "--seconds", "2", "--json").stdout)
    assert load["errors"] == 0
    assert {(window["src"], window["dst"]) for window in load["windows"]} == set(lab.topology.busy_pairs())

    status = json.loads(cli("status", *name, "--json").stdout)
    assert status["wan"]
    assert all(edge["nginx"] for edge in status["edges"].values())
    assert len(status["wan_counters"]["paths"]) == len(lab.topology.pops) ** 2
