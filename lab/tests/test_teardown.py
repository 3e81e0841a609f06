"""Whatever ends a lab, nothing of it stays.

Long: one lab under every end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cgroups, host, processes, state, teardown
from lab.demo.edges import edge_command
from lab.errors import InputError, LabError
from lab.lab import Lab
from lab.topology import load_topology
from testkit import leftovers
from testkit.bpf import shown
from testkit.edge import enforcement, instant, sealed

pytestmark = pytest.mark.root

PAIR = host.REPOSITORY / "lab/topologies/pair.yaml"
# A lab with a busy edge, whose owner waits for its end.
OWNER = """
import sys, time
from pathlib import Path
from lab.lab import Lab
with Lab.up(Path(sys.argv[1]), sys.argv[2]) as lab:
    lab.popen("ams-1", sys.argv[3:] or ["sleep", "600"])
    lab.start_load(600)
    print("up", flush=True)
    time.sleep(600)
"""
PYTEST = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
# One that ends as `python -m lab up` does: nobody waits for its end.
ALONE = OWNER.replace(
    "with Lab.up(Path(sys.argv[1]), sys.argv[2]) as lab:", "if lab := Lab.up(Path(sys.argv[1]), sys.argv[2]):"
)


@pytest.fixture
def by_bpf(tmp_path: Path) -> Path:
    """The same pair, with eBPF programs on cgroups instead of routes."""
    path = tmp_path / "pair.yaml"
    path.write_text(f"{PAIR.read_text()}\nenforce: bpf\n")
    return path


@pytest.fixture
def name() -> Iterator[str]:
    name = f"d{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
    yield name
    if name in state.names():
        teardown.take_down(name)


def _hearing(command: list[str]) -> list[str]:
    """The command as a terminal would start it: what runs in the background of a script ignores Ctrl-C."""
    return ["env", "--default-signal=INT", *command]


@contextlib.contextmanager
def owner(name: str, *command: str, code: str = OWNER, topology: Path = PAIR) -> Iterator[subprocess.Popen[str]]:
    """A process with a lab up and this command on an edge; tests bound its end for a machine that stands still."""
    line = [sys.executable, "-c", code, str(topology), name, *command]
    with subprocess.Popen(_hearing(line), stdout=subprocess.PIPE, text=True, cwd=host.REPOSITORY) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
            yield child
        finally:
            child.kill()


def lab(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`python -m lab`, after some Python code."""
    command = [sys.executable, "-c", f"from lab.cli import main\n{before}\nmain(prog_name='lab')", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=host.REPOSITORY)


def left(name: str) -> dict[str, object]:
    """The lab's remains: namespaces, cgroups, live processes that name it, devices, mounts, files, the state."""
    marks = (f"st-{name}-".encode(), f"springtide-lab/{name}/".encode())
    alive = []
    for entry in Path("/proc").glob("[0-9]*"):
        # A zombie has an empty command line: it has ended, and waits for its parent. Another one ends meanwhile.
        line = b""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            line = (entry / "cmdline").read_bytes()
        if any(mark in line for mark in marks):
            alive.append((entry.name, line))
    # A lab that is just made widens the host's list for a moment.
    with state.locked():
        allowed = host.ALLOWED.read_text()
    return {
        "namespaces": {one for one in host.namespaces() if one.startswith(f"st-{name}-")},
        "cgroups": [path.name for path in cgroups.root().glob(f"st-{name}-*")],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/{name}/" in line],
        "processes": alive,
        "devices": [line for line in host.run(["ip", "-o", "link"]).splitlines() if "wan0" in line],
        "files": state.directory(name).exists(),
        "state": state.path_of(name).exists(),
        "allowed": allowed,
    }


def nothing() -> dict[str, object]:
    return {
        "namespaces": set(),
        "cgroups": [],
        "mounts": [],
        "processes": [],
        "devices": [],
        "files": False,
        "state": False,
        "allowed": ALLOWED,
    }


with state.locked():
    ALLOWED = host.ALLOWED.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_line_takes_its_lab_down(name: str, number: signal.Signals) -> None:
    """`demo` and `up` run a lab inside the command line's process; so does this."""
    code = f"from lab import cli; cli.signal.signal({number:d}, cli._end)\n{OWNER}"
    with owner(name, code=code) as child:
        inside = processes.inside(state.load(name).namespaces)
        assert len(inside) >= 7  # the emulator, two masters and workers of nginx, two clients, and `sleep`
        child.send_signal(number)
        assert child.wait(60) == 128 + number
    assert left(name) == nothing()
    assert not [one for one in inside if processes.find(one.pid) == one]


def test_ctrl_c_in_python_takes_the_lab_down(name: str) -> None:
    with owner(name) as child:
        child.send_signal(signal.SIGINT)
        child.wait(60)
    assert left(name) == nothing()


def test_ctrl_c_does_not_wait_for_the_last_probe(name: str) -> None:
    code = OWNER.replace("time.sleep(600)", "lab.probe(1000, spacing_s=1.0)")
    with owner(name, code=code) as child:
        # Two clients for the load, two more for the probes.
        while sum("lab.client" in line for line in command_lines(name)) < 4:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        child.wait(120)  # a thousand probes take a quarter of an hour
    assert left(name) == nothing()


def eventually_nothing(name: str) -> None:
    """A process that was killed is survived by the one that cleans up after it, for as long as that takes."""
    give_up = time.monotonic() + 60  # the minute is only for a machine that stands still
    while left(name) != nothing() or processes.naming([name]):
        assert time.monotonic() < give_up, (left(name), processes.naming([name]))
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_lab_ends_with_its_owner_however_that_ends(name: str, by_bpf: Path, number: signal.Signals) -> None:
    with owner(name, "sh", "-c", "trap '' TERM; sleep 600 & wait; wait", topology=by_bpf) as child:
        inside = processes.inside(state.load(name).namespaces)
        child.send_signal(number)
        assert child.wait(60) == -number
    eventually_nothing(name)
    assert not [one for one in inside if processes.find(one.pid) == one]


# Tests of which the first takes the end for its own, as click does.
SWALLOWED = """
import contextlib, time
from pathlib import Path

def test_long():
    with contextlib.suppress(KeyboardInterrupt):
        Path({up!r}).touch()
        time.sleep(600)

def test_next():
    Path({up!r}).unlink()
"""


def test_a_run_of_tests_that_is_ended_begins_no_other_test(tmp_path: Path) -> None:
    up, file = tmp_path / "up", tmp_path / "test_long.py"
    file.write_text(SWALLOWED.format(up=str(up)))
    with subprocess.Popen([*PYTEST, str(file)], cwd=host.REPOSITORY, stdout=subprocess.DEVNULL) as child:
        while not up.exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        assert child.wait(120) == pytest.ExitCode.INTERRUPTED  # the bound is only for a machine that stands still
    assert up.exists()


# A run of tests with an edge and a lab; the wait for its end is bounded for a machine that stands still.
LONG = """
import time
from pathlib import Path
from lab.lab import Lab
from testkit.edge import Edge

def test_long(tmp_path):
    with Edge.made(tmp_path) as edge, Lab.up(Path({topology!r}), {name!r}) as lab:
        lab.popen("ams-1", ["sleep", "600"])
        Path({up!r}).write_text(edge.name)
        time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_of_tests_that_is_ended_leaves_nothing(name: str, tmp_path: Path, number: signal.Signals) -> None:
    up, file = tmp_path / "up", tmp_path / "test_long.py"
    file.write_text(LONG.format(topology=str(PAIR), name=name, up=str(up)))
    with subprocess.Popen([*PYTEST, str(file)], cwd=host.REPOSITORY, stdout=subprocess.DEVNULL) as child:
        while not (up.exists() and up.read_text()):
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(number)
        assert child.wait(120) == (-number if number == signal.SIGKILL else pytest.ExitCode.INTERRUPTED)
    eventually_nothing(name)
    if number == signal.SIGKILL:
        assert up.read_text() in host.namespaces(), "the next run has nothing to sweep"
        leftovers.sweep()
    assert not {one for one in host.namespaces() if str(child.pid) in one}


def command_lines(name: str) -> list[str]:
    """Command lines of the processes in the lab's namespaces."""
    found = []
    for process in processes.inside(state.load(name).namespaces):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{process.pid}/cmdline").read_text())
    return found


def test_a_killed_lab_is_cleaned_up_by_the_next_command(name: str) -> None:
    # One process ignores SIGTERM.
    with owner(name, "sh", "-c", "trap '' TERM; sleep 600 & wait; wait", code=ALONE) as child:
        inside = processes.inside(state.load(name).namespaces)
        child.kill()
        child.wait()
    assert len([one for one in host.namespaces() if one.startswith(f"st-{name}-")]) == 3
    done = lab("clean", name, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (removed,) = json.loads(done.stdout)
    assert (removed["lab"], removed["namespaces"]) == (name, 3)
    assert removed["processes"] >= len(inside)
    assert left(name) == nothing()
    again = lab("clean", name)
    assert (again.returncode, again.stdout) == (2, "")
    assert "no such lab is up" in again.stderr


def programs() -> dict[int, int]:
    """The eBPF links of this machine that hold a program on a cgroup: the cgroup's inode by the link's id."""
    return {link["id"]: link["cgroup_id"] for link in shown("link") if link["type"] == "cgroup"}


def test_a_killed_lab_leaves_neither_programs_nor_cgroups(name: str, tmp_path: Path, by_bpf: Path) -> None:
    with owner(name, code=ALONE, topology=by_bpf) as child:
        found = Lab.attach(name)
        bundle(tmp_path / "bundle.json")
        apply = ["apply", str(tmp_path / "bundle.json"), "--unsigned"]
        assert edge_command(found, "ams-1", tmp_path / "state", *apply)["enforced_by"] == "bpf"
        inode = cgroups.of(name, "ams-1").stat().st_ino
        [link] = [link for link, on in programs().items() if on == inode]
        # One that left the namespace, but not the cgroup.
        outside = cgroups.entering(cgroups.of(name, "sin-1"), ["sh", "-c", "echo; exec sleep 600"])
        with subprocess.Popen(outside, stdout=subprocess.PIPE, text=True) as stray:
            assert stray.stdout is not None
            stray.stdout.readline()
            child.kill()
            child.wait()
            teardown.take_down(name)
            assert stray.wait(10) == -signal.SIGTERM  # the bound is only for a machine that stands still
    assert left(name) == nothing()
    assert link not in programs()


def bundle(path: Path) -> None:
    """A bundle for an edge that enforces by eBPF."""
    now = int(time.time())
    first = {"schema_version": 1, "edge": "ams-1", "pop": "ams", "round": instant(now), "policy_version": "0" * 12}
    rest = {
        "created_at": instant(now),
        "expires_at": instant(now + 600),
        "enforce": enforcement("bpf"),
        "entries": [{"prefix": "10.78.2.0/24", "initcwnd": 30}],
    }
    path.write_text(json.dumps(sealed(first | rest)))


@pytest.mark.parametrize("delay_s", [0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_start_can_be_interrupted_at_any_moment(
    name: str, by_bpf: Path, delay_s: float, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "lab", "up", str(by_bpf), "--name", name]
    with subprocess.Popen(
        _hearing(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=host.REPOSITORY
    ) as child:
        time.sleep(delay_s)
        child.send_signal(number)
        child.wait()
    # Either it was up already, as a whole, or (but for SIGKILL) it has removed what it had made.
    if name in state.names():
        if number != signal.SIGKILL:
            found = Lab.attach(name).status()
            assert found["wan"]
            assert all(edge["nginx"] for edge in found["edges"].values())
        teardown.take_down(name)
    assert left(name) == nothing()


@pytest.mark.parametrize(
    ("tool", "reached"),
    [("ip", "{name}.json"), ("nsenter", "{name}/wan.log")],
    ids=["making namespaces", "entering one"],
)
def test_what_a_killed_start_left_half_done_is_waited_for(tmp_path: Path, name: str, tool: str, reached: str) -> None:
    """Its children live on: the one that makes namespaces, and the one that is about to enter one."""
    slow = tmp_path / tool
    slow.write_text(f'#!/bin/sh\nsleep 0.7\n{shutil.which(tool)} "$@"\n')
    slow.chmod(0o755)
    command = [sys.executable, "-m", "lab", "up", str(PAIR), "--name", name]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(command, env=environment, cwd=host.REPOSITORY) as child:
        while not (state.ROOT / reached.format(name=name)).exists():
            time.sleep(0.01)
        time.sleep(0.1)  # the command that comes next has begun, and is not done
        child.kill()
    teardown.take_down(name)
    while processes.naming([str(slow)]):
        time.sleep(0.05)
    assert left(name) == nothing()


def test_the_hosts_list_of_algorithms_is_restored_after_a_crash(name: str) -> None:
    state.save(state.State(lab=name, namespaces=[], allowed_congestion_control=ALLOWED.strip(), topology={}))
    host.ALLOWED.write_text(host.AVAILABLE.read_text().strip())
    teardown.take_down(name)
    assert left(name) == nothing()


def test_what_was_removed_by_hand_does_not_stop_the_rest(name: str) -> None:
    with Lab.up(PAIR, name) as found:
        os.kill(found._process("nginx of ams-1").pid, signal.SIGKILL)
        os.kill(found._process("wan").pid, signal.SIGKILL)
        host.run(["ip", "netns", "delete", f"st-{name}-sin-1"])
    assert left(name) == nothing()


def test_a_damaged_state_file_does_not_keep_other_labs_up(name: str) -> None:
    damaged = state.path_of(f"{name}-bad")
    with Lab.up(PAIR, name):
        damaged.write_text("{")
        try:
            done = lab("clean", damaged.stem, name)
        finally:
            damaged.unlink()
    assert done.returncode == 1
    assert done.stdout.startswith(f"lab {name}: removed 3 namespaces")
    assert f"{damaged}: is damaged" in done.stderr
    assert left(name) == nothing()


def test_a_lab_that_somebody_cleaned_ends_without_an_error(name: str) -> None:
    with Lab.up(PAIR, name):
        assert lab("clean", name).returncode == 0
    assert left(name) == nothing()


def test_a_failed_start_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "springtide-wan"
    broken.write_text("#!/bin/sh\necho 'it does not want to' >&2; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("SPRINGTIDE_WAN", str(broken))
    with pytest.raises(LabError, match="the emulator ended with exit code 3: it does not want to"):
        Lab.up(PAIR, name)
    assert left(name) == nothing()


def test_a_namespace_of_somebody_else_is_neither_taken_nor_removed(name: str) -> None:
    foreign = f"st-{name}-sin-1"
    host.run(["ip", "netns", "add", foreign])
    try:
        with pytest.raises(InputError, match=f"namespace {foreign} exists already"):
            Lab.up(PAIR, name)
        assert foreign in host.namespaces()
        assert name not in state.names()
    finally:
        host.run(["ip", "netns", "delete", foreign])


def test_two_labs_of_different_names_run_at_once(name: str) -> None:
    with Lab.up(PAIR, name) as first, Lab.up(load_topology(PAIR), f"{name}-b") as second:
        second.close()
        assert all(probe.ok for probe in first.probe(1, [10_000]))
    assert left(name) == left(f"{name}-b") == nothing()


def test_without_root_one_line_shows_what_to_do(name: str) -> None:
    done = lab("up", str(PAIR), "--name", name, before="import os; os.setuid(65534)")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"lab: lab {name} needs root: it makes network namespaces and TUN devices; run it with sudo"
    ]
    assert left(name) == nothing()
