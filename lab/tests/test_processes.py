"""Only the recorded process is ended, and it is ended for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import processes, state, teardown
from lab.errors import InputError, LabError
from lab.processes import Process
from lab.state import Recorded, State


def sleeper(ready: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"{ready}\nprint(flush=True)\nimport time; time.sleep(600)"], stdout=-1
    )


def started(child: subprocess.Popen[bytes]) -> Process:
    assert child.stdout is not None
    child.stdout.readline()
    found = processes.find(child.pid)
    assert found is not None
    return found


@pytest.fixture
def child() -> subprocess.Popen[bytes]:
    return sleeper()


def test_a_process_gets_sigterm_first(child: subprocess.Popen[bytes]) -> None:
    with child:
        assert processes.end([started(child)], 10) == 1
        assert child.wait() == -signal.SIGTERM


def test_one_that_does_not_listen_is_killed() -> None:
    with sleeper("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as stubborn:
        assert processes.end([started(stubborn)], 0.05) == 1
        assert stubborn.wait() == -signal.SIGKILL


def test_another_process_with_the_same_id_is_left_alone(child: subprocess.Popen[bytes]) -> None:
    with child:
        other = Process(child.pid, started(child).start - 1)
        assert processes.end([other], 0) == 0
        assert not processes.send_signal(other, signal.SIGTERM)
        assert child.poll() is None
        child.kill()


def test_a_process_that_has_ended_is_not_an_error(child: subprocess.Popen[bytes]) -> None:
    with child:
        gone = started(child)
        child.kill()
    assert processes.end([gone], 0) == 0
    assert not processes.send_signal(gone, signal.SIGTERM)


def test_own_namespace_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").symlink_to("/proc/self/ns/net")
    monkeypatch.setattr(processes, "NETNS_DIRECTORY", tmp_path)
    assert os.getpid() in {process.pid for process in processes.inside(["mine", "absent"])}
    assert processes.inside(["absent"]) == []


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "ROOT", tmp_path)
    return tmp_path


def known(*recorded: Recorded) -> State:
    return State(lab="x", namespaces=["st-x-none-such"], processes=list(recorded), topology={})


def test_clean_ends_recorded_processes_but_not_their_successors(root: Path, child: subprocess.Popen[bytes]) -> None:
    with child, sleeper() as successor:
        mine, theirs = started(child), started(successor)
        recorded = [
            Recorded(what="mine", pid=mine.pid, start=mine.start),
            Recorded(what="gone", pid=theirs.pid, start=theirs.start + 1),
        ]
        state.save(known(*recorded))
        (root / "x").mkdir()
        (root / "x" / "wan.log").write_text("ready\n")
        assert teardown.take_down("x").processes == 1
        assert child.wait() == -signal.SIGTERM
        assert successor.poll() is None
        successor.kill()
    assert state.names() == []
    assert not (root / "x").exists()


def test_a_record_drops_processes_that_have_ended(root: Path, child: subprocess.Popen[bytes]) -> None:
    with child:
        state.save(known(Recorded(what="dead", pid=1, start=1)))
        state.record("x", "alive", started(child))
        assert [entry.what for entry in state.load("x").processes] == ["alive"]
        child.kill()


def test_an_unknown_lab_and_a_damaged_file_are_reported(root: Path) -> None:
    with pytest.raises(InputError, match="no such lab is up"):
        teardown.take_down("none")
    state.path_of("bad").write_text('{"lab": "bad"')
    with pytest.raises(LabError, match=r"bad\.json: is damaged"):
        teardown.take_down("bad")
    assert state.names() == ["bad"]
