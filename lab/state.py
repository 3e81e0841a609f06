"""Records what a lab makes before it is made, so that anyone can take it down after any end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lab import processes
from lab.errors import InputError, LabError
from lab.processes import Process

ROOT = Path("/run/springtide-lab")


class Recorded(BaseModel):
    """One process: what it is for, and who it is."""

    model_config = ConfigDict(extra="forbid")

    what: str
    pid: int
    start: int

    def process(self) -> Process:
        return Process(self.pid, self.start)


class State(BaseModel):
    """The content of a state file. `topology` is the whole topology, so that a later command needs no other file."""

    model_config = ConfigDict(extra="forbid")

    lab: str
    namespaces: list[str]
    # Those of the edges that enforce by eBPF.
    cgroups: list[str] = []
    processes: list[Recorded] = []
    # The host's list of allowed congestion control algorithms, while the lab has it widened.
    allowed_congestion_control: str | None = None
    topology: dict[str, Any]


def directory(lab: str) -> Path:
    """Configuration, logs and objects of a lab."""
    return ROOT / lab


def path_of(lab: str) -> Path:
    """The state file of a lab."""
    return ROOT / f"{lab}.json"


def names() -> list[str]:
    """The labs that have a state file."""
    return sorted(path.stem for path in ROOT.glob("*.json"))


def load(lab: str) -> State:
    """Raises InputError when there is no such lab, LabError when its file is damaged."""
    path = path_of(lab)
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        known = ", ".join(names()) or "none"
        raise InputError(f"{lab}: no such lab is up (up: {known}); start one with `python -m lab up FILE`") from None
    except (ValidationError, OSError) as error:
        raise LabError(
            f"{path}: is damaged ({str(error).splitlines()[0]}); inspect what it lists and remove it"
        ) from error


def save(state: State) -> None:
    """Replaces the state file at once: a reader sees the old one or the new one."""
    ROOT.mkdir(parents=True, exist_ok=True)
    path = path_of(state.lab)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    with fresh.open("w") as file:
        json.dump(state.model_dump(), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Only one process at a time makes, changes or removes labs.

    The short commands that `host.run` calls meanwhile hold the lock as well: when their caller is killed, who comes
    next waits until they have ended.
    """
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / "lock").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record(lab: str, what: str, process: Process) -> None:
    """Adds a process to the lab's state file, and forgets the recorded ones that have ended.

    Call with the lock held.
    """
    state = load(lab)
    alive = [known for known in state.processes if processes.find(known.pid) == known.process()]
    alive.append(Recorded(what=what, pid=process.pid, start=process.start))
    save(state.model_copy(update={"processes": alive}))
