"""The publisher's folder: rounds that left or may leave, which of them holds, and how each is taken back.

    rounds/ROUND-CREATED/edges/EDGE.json, .sig    what a rollout brings to the edges
    rounds/ROUND-CREATED/back/EDGE.json, .sig     what brings them back to what held when it was published
    rounds/ROUND-CREATED/back-if-done/...         the same, should the rollout that was under way come to its end
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
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide import instants
from springtide.bundles import model as bundles
from springtide.bundles.sign import sign
from springtide.errors import InputError, Problem, SpringtideError

# What withdraw.yml leaves in the publisher's folder, with its reason: every edge is at the kernel's default.
WITHDRAWN = "withdrawn"
LOCK = "publish.lock"
# Another `publish` signs some hundred bundles a second.
LOCK_WAIT_S = 120

Document = dict[str, Any]
Documents = Mapping[str, Document]


def sealed(document: Mapping[str, Any]) -> Document:
    """With the digest that belongs to its content."""
    rest = {name: value for name, value in document.items() if name != "digest"}
    return {**rest, "digest": bundles.digest(rest)}


def going_back(before: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Document:
    """The bundle that undoes `new` on its edge: what held before it, no longer than it was promised, or nothing.

    It is one second younger than `new`, because an edge takes nothing older than what it has.
    """
    created = instants.parse(new["created_at"]) + 1
    rest = {name: value for name, value in new.items() if name != "congestion"}
    back = {**rest, "created_at": instants.show(created), "routes": []}
    if before is not None and instants.parse(before["expires_at"]) > created:
        kept = ("routes", "congestion", "expires_at", "policy_version")
        back |= {name: before[name] for name in kept if name in before}
    return sealed(back)


def renewed(old: Mapping[str, Any], over: Mapping[str, Any] | None, now_unix_s: int) -> Document:
    """Old values as a bundle that edges take after `over`: the later round of both, created now."""
    held = old if over is None else over
    moment = max(instants.parse(old["round"]), instants.parse(held["round"]))
    # `over` may have been taken back, by a bundle one second younger than itself.
    created = max(now_unix_s, instants.parse(held["created_at"]) + 2)
    return sealed({**old, "round": instants.show(moment), "created_at": instants.show(created)})


def read_folder(folder: Path) -> dict[str, Document]:
    """Edge -> bundle, of EDGE.json in a folder. Raises SpringtideError."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise SpringtideError(f"{path}: cannot be read: {error}; publish a round anew") from error
    return found


@dataclass(frozen=True)
class PublishFolder:
    path: Path

    def resolved(self, link: str) -> Path | None:
        """Where `candidate` or `current` leads; None before the first."""
        target = self.path / link
        return target.resolve() if target.is_dir() else None

    def current(self) -> dict[str, Document] | None:
        """What holds on the fleet, None before the first rollout."""
        folder = self.resolved("current")
        return None if folder is None else read_folder(folder)

    def held(self) -> dict[str, Document]:
        """What a rollout that fails goes back to, were it to begin now: nothing after a withdrawal."""
        return {} if (self.path / WITHDRAWN).exists() else self.current() or {}

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

    def publish(self, documents: Mapping[str, bytes], key: Path | None, fleet: bytes = b"") -> Path:
        """Write a publication with its ways back, and let `candidate` lead to it. `fleet`: its fleet.yaml.

        Raises SpringtideError, InputError.
        """
        new = {edge: json.loads(content) for edge, content in documents.items()}
        moment, created = max((document["round"], document["created_at"]) for document in new.values())
        folder = self.path / "rounds" / f"{moment}-{created[8:].translate(str.maketrans('', '', '-T:Z'))}"
        with self._alone():
            if folder.exists() and not self._is_left_over(folder, documents):
                raise SpringtideError(f"{folder}: is there already; wait a second and publish again")
            self._refuse_equals(new)
            parts = {"edges": dict(documents)}
            for name, before in self._ways_back().items():
                undone = {edge: going_back(before.get(edge), document) for edge, document in new.items()}
                parts[name] = {edge: bundles.canonical(document) for edge, document in undone.items()}
            signatures = {name: {} if key is None else sign(content, key) for name, content in parts.items()}
            unfinished = folder.with_name(f".{folder.name}")
            for name, content in parts.items():
                bundles.write(unfinished / name, content, signatures[name])
            with _explained(folder):
                if fleet:
                    _write(unfinished / "fleet.yaml", fleet)
                if folder.exists():
                    folder.rename(folder.with_name(f".{folder.name}.gone"))
                unfinished.rename(folder)
                _sync(folder.parent)
            self.point("candidate", folder)
        return folder

    def _ways_back(self) -> dict[str, dict[str, Document]]:
        """What each way back is to give."""
        found = {"back": self.held()}
        current = self.resolved("current")
        if found["back"] and current is not None and current.name == "back":
            found["back-if-done"] = read_folder(current.parent / "edges")
        return found

    def _refuse_equals(self, new: Documents) -> None:
        """Edges tell bundles of a round apart by when they were made, and so must those that go back be younger."""
        for publication in self._led_to():
            parts = [read_folder(part) for part in publication.iterdir() if part.is_dir()]
            for edge, document in ((edge, part[edge]) for part in parts for edge in new if edge in part):
                moment = new[edge]["created_at"]
                if new[edge]["round"] == document["round"] and moment <= document["created_at"]:
                    what = f"{edge}: created_at {moment} is not after {document['created_at']} of {publication.name}"
                    raise SpringtideError(f"{self.path}: {what}; wait two seconds and publish again")

    def _is_left_over(self, folder: Path, documents: Mapping[str, bytes]) -> bool:
        """Whether it is a whole publication of just these bundles, that was killed before a link led to it."""
        if folder in self._led_to():
            return False
        return {path.stem: path.read_bytes() for path in (folder / "edges").glob("*.json")} == dict(documents)

    def _led_to(self) -> set[Path]:
        """Publications that a link leads to."""
        found = [self.resolved("candidate"), self.resolved("current")]
        return {path if path.parent.name == "rounds" else path.parent for path in found if path is not None}

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer of publications at a time; what a killed one left behind goes. Raises SpringtideError."""
        with _explained(self.path):
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
            with _explained(self.path / "rounds"):
                for path in (self.path / "rounds").glob(".*"):
                    shutil.rmtree(path)
            yield
        finally:
            os.close(handle)

    def point(self, link: str, folder: Path) -> None:
        """Let a link lead to a folder of ours; it always leads to the old or the new one. Raises SpringtideError."""
        temporary = self.path / f".{link}.new"
        with _explained(self.path / link):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(folder.resolve().relative_to(self.path.resolve()))
            temporary.replace(self.path / link)
            _sync(self.path)

    def prune(self, keep: int) -> list[str]:
        """Remove the oldest publications but `keep`, and never one that a link leads to. Returns their names."""
        gone = []
        with self._alone(), _explained(self.path / "rounds"):
            used = self._led_to()
            for name in self.rounds()[: -keep or None]:
                folder = (self.path / "rounds" / name).resolve()
                if folder not in used:
                    # A name of no publication first: half of one is none.
                    shutil.rmtree(folder.rename(folder.with_name(f".{name}.gone")))
                    gone.append(name)
        return gone


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """An OSError as one line."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or path}: cannot be written: {error.strerror}"
        raise SpringtideError(f"{what}; make room, or let this user write there") from error


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
