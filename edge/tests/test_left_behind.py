"""Start rates that a withdrawal, or a newer program, leaves on open connections: nobody else would lift those."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.connections import own_network
from testkit import bpf
from testkit.bpf import PRELUDE, Program

pytestmark = pytest.mark.root

NO_CAP = 0xFFFFFFFF
ENTRIES = [{"prefix": "127.0.0.0/8", "initcwnd": 20, "start_rate": 1_000_000}]
# A connection that is silent until a line asks for both ends' rates, or for bytes first.
HOLD = """
kept = pair("127.0.0.1")
print(json.dumps(list(map(rate, kept))), flush=True)
for line in sys.stdin:
    if line == "move\\n":
        move(*kept, 100_000)
    print(json.dumps(list(map(rate, kept))), flush=True)
"""
ELSEWHERE = """
import os, subprocess
os.unshare(os.CLONE_NEWNET) if hasattr(os, "unshare") else __import__("ctypes").CDLL(None).unshare(0x40000000)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
"""


@pytest.fixture
def program() -> Iterator[Program]:
    with own_network(), bpf.program(f"stl{os.getpid()}") as found:
        found.apply({"entries": ENTRIES})
        yield found


class Held:
    """A connection of the cgroup."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert self.answer() != [NO_CAP, NO_CAP]

    def answer(self) -> list[int]:
        assert self.process.stdout is not None
        found: list[int] = json.loads(self.process.stdout.readline())
        return found

    def rates(self, first: str = "look") -> list[int]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first}\n".encode())
        self.process.stdin.flush()
        return self.answer()


@contextmanager
def held(program: Program, *, elsewhere: bool = False) -> Iterator[Held]:
    code = (ELSEWHERE if elsewhere else "") + PRELUDE + HOLD
    with program.popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Held(process)
        finally:
            process.kill()


@pytest.mark.parametrize("gone", [("totals",), ("bundle",), ("link",), ("about",), ("starts",), ("about", "starts")])
def test_a_pin_that_is_missing_keeps_no_cap_alive(program: Program, gone: tuple[str, ...]) -> None:
    with held(program) as connection:
        for name in gone:
            (program.pins / "v6" / name).unlink()
        done = program.withdraw()
        assert connection.rates() == [NO_CAP, NO_CAP]
        assert (done["lifted"], done["warnings"]) == (2, []), done["warnings"]


def test_where_nothing_leads_to_the_map_of_connections_it_is_said_how_many_may_keep_a_cap(program: Program) -> None:
    with held(program) as silent:
        for name in ("link", "starts"):
            (program.pins / "v6" / name).unlink()
        done = program.withdraw()
        assert min(silent.rates()) < NO_CAP
        assert "at most 2 connections keep a cap" in done["warnings"][0]


def test_connections_of_other_network_namespaces_are_found(program: Program) -> None:
    with held(program, elsewhere=True) as connection, held(program) as near:
        assert program.withdraw()["lifted"] == 4
        assert connection.rates() == near.rates() == [NO_CAP, NO_CAP]


def test_what_cannot_be_entered_is_said(program: Program) -> None:
    with held(program, elsewhere=True) as connection:
        kept = "-all,+bpf,+perfmon,+net_admin,+sys_ptrace"
        where = ["--cgroup", str(program.cgroup), "--pins", str(program.pins)]
        command = ["setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}", str(program.binary), *where, "withdraw"]
        done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert "at most 2 connections keep a cap" in done["warnings"][0]
        assert "cannot be entered" in done["warnings"][0]
        assert min(connection.rates()) < NO_CAP


def test_a_set_that_a_killed_step_left_is_settled_by_whoever_removes_it(program: Program) -> None:
    for again in (True, False):
        with held(program) as connection:
            (program.pins / "v6").rename(program.pins / "v6-old")
            done = program.apply({"entries": ENTRIES}) if again else program.withdraw()
            assert done["warnings"] == []
            assert connection.rates() == [NO_CAP, NO_CAP]


def test_what_is_not_ours_in_the_place_of_the_pins_or_among_them_is_not_removed(
    program: Program, tmp_path: Path
) -> None:
    """Where a BPF file system is writable by all, anybody may put a link there."""
    (program.pins / "theirs").mkdir()
    program.run("withdraw")
    assert [path.name for path in program.pins.iterdir()] == ["theirs"]
    (program.pins / "theirs").rmdir()
    program.pins.rmdir()
    kept = tmp_path / "v6" / "kept"
    kept.parent.mkdir()
    kept.touch()
    program.pins.symlink_to(tmp_path)
    try:
        done = program.run("withdraw", check=False)
        assert done.returncode != 0
        assert "cannot use" in done.stderr
        assert kept.exists()
    finally:
        program.pins.unlink()


def test_another_versions_caps_are_lifted_on_silent_connections_too(program: Program) -> None:
    program.apply({"entries": ENTRIES, "lift_bytes": 1 << 30})
    with held(program) as connection:
        (program.pins / "v6").rename(program.pins / "v0")
        done = program.withdraw()
        assert connection.rates() == [NO_CAP, NO_CAP]
        assert (done["lifted"], done["warnings"]) == (2, [])
