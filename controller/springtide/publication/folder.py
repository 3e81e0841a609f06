"""The publisher's folder: rounds that left or may leave, which of them holds, and how each is taken back.

    rounds/ROUND-CREATED/edges/EDGE.json, .sig    what a rollout brings to the edges
    rounds/ROUND-CREATED/back/EDGE.json, .sig     what brings them back to what held when it was published
    rounds/ROUND-CREATED/back-if-done/...         the same, should the rollout that was under way come to its end
    rounds/ROUND-CREATED/off/...                  the kernel's default after either, for edges that pull
    rounds/ROUND-CREATED/fleet.yaml               the fleet that it was made for, as an inventory
    candidate -> rounds/...                       the newest; the rollout takes it
    current -> rounds/.../edges or .../back       what holds on the fleet; the rollout moves it

An edge refuses what is older than what it has, so going back means the old values under a newer creation time. They are
rendered and signed beside the new ones: taking a round back needs neither store nor key nor controller. What holds may
change between a publication and its rollout: the rollout takes the way back that gives what holds when it begins, as
`back`, and refuses a publication that has none.

A publication is written under a name that begins with a dot, and gets its own when it is whole: what a killed `publish`
left behind is never taken for one, and goes with the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, Problem, SpringtideError
from .files import explained, sync, write, write_file
from .withdrawal import WITHDRAWN

CANDIDATE, CURRENT = "candidate", "current"
# The part of a publication that a rollout brings to the edges.
EDGES = "edges"
# The part that ends everything on edges that pull: withdraw.yml offers it.
OFF = "off"
LOCK = "publish.lock"
# Another `publish` signs some hundred bundles a second.
LOCK_WAIT_S = 120


@dataclass(frozen=True)
class PublishFolder:
    path: Path

    def resolved(self, link: str) -> Path | None:
        """Where `candidate` or `current` leads; None before the first."""
        target = self.path / link
        return target.resolve() if target.is_dir() else None

    def held(self) -> Path | None:
        """The bundles to which a rollout that fails goes back, were it to begin now: none after a withdrawal."""
        return None if (self.path / WITHDRAWN).exists() else self.resolved("current")

    def rounds(self) -> list[str]:
        """Names of publications, oldest first."""
        folder = self.path / "rounds"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(path.name for path in found if path.is_dir() and not path.name.startswith("."))

    def publication(self, name: str) -> Path:
        """By its name, or by its round: the newest of that round. Raises InputError."""
        fitting = [known for known in self.rounds() if known == name or known.startswith(f"{name}-")]
        if not fitting:
            known = ", ".join(self.rounds()[-3:]) or "none yet"
            raise InputError([Problem(str(self.path), "round", f"{name} was not published", f"the newest: {known}")])
        return self.path / "rounds" / fitting[-1]

    def write(self, name: str, parts: Mapping[str, Mapping[str, bytes]], fleet: bytes = b"") -> Path:
        """A publication, whole or not at all, to which `candidate` leads from then on; for whoever is alone.

        `parts`: of `edges` and each way back its files; `fleet`: its fleet.yaml. Raises SpringtideError.
        """
        folder = self.path / "rounds" / name
        unfinished = folder.with_name(f".{name}")
        for part, contents in parts.items():
            write(unfinished / part, contents)
        with explained(folder):
            if fleet:
                write_file(unfinished / "fleet.yaml", fleet)
            if folder.exists():
                folder.rename(folder.with_name(f".{name}.gone"))
            unfinished.rename(folder)
            sync(folder.parent)
        self.point("candidate", folder)
        return folder

    def is_left_over(self, name: str, edges: Mapping[str, bytes]) -> bool:
        """Whether it is a whole publication of just these bundles, that was killed before a link led to it."""
        folder = self.path / "rounds" / name
        if folder in self.led_to():
            return False
        return {path.name: path.read_bytes() for path in (folder / "edges").glob("*.json")} == dict(edges)

    def led_to(self) -> set[Path]:
        """Publications that a link leads to."""
        found = [self.resolved("candidate"), self.resolved("current")]
        return {path if path.parent.name == "rounds" else path.parent for path in found if path is not None}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One writer of publications at a time; what a killed one left behind goes. Raises SpringtideError."""
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            give_up = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up:
                        what = f"another `springtide publish` has worked for {LOCK_WAIT_S} s"
                        raise SpringtideError(f"{self.path / LOCK}: {what}; see what it waits for") from None
                    time.sleep(0.05)
            with explained(self.path / "rounds"):
                # A file is none of ours: NFS keeps what is removed while it is open as `.nfs...`.
                for path in (self.path / "rounds").glob(".*/"):
                    shutil.rmtree(path)
            yield
        finally:
            os.close(handle)

    def point(self, link: str, folder: Path) -> None:
        """Let a link lead to a folder of ours; it always leads to the old or the new one. Raises SpringtideError."""
        temporary = self.path / f".{link}.new"
        with explained(self.path / link):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(folder.resolve().relative_to(self.path.resolve()))
            temporary.replace(self.path / link)
            sync(self.path)

    def prune(self, keep: int) -> list[str]:
        """Remove the oldest publications but `keep`, and never one that a link leads to. Returns their names."""
        gone = []
        with self.alone(), explained(self.path / "rounds"):
            used = self.led_to()
            for name in self.rounds()[: -keep or None]:
                folder = (self.path / "rounds" / name).resolve()
                if folder not in used:
                    # A name of no publication first: half of one is none.
                    shutil.rmtree(folder.rename(folder.with_name(f".{name}.gone")))
                    gone.append(name)
        return gone
