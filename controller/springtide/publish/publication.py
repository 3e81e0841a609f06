"""The publisher's folder: rounds that left or may leave, which of them holds, and how each is taken back.

    rounds/ROUND-CREATED/edges/EDGE.json, .sig    what a rollout brings to the edges
    rounds/ROUND-CREATED/back/EDGE.json, .sig     what brings them back to what held before
    candidate -> rounds/...                       the newest; the rollout takes it
    current -> rounds/.../edges or .../back       what holds on the fleet; the rollout moves it

An edge refuses what is older than what it has, so going back means the old values under a newer creation time. They are
rendered and signed beside the new ones: taking a round back needs neither store nor key nor controller.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide import instants
from springtide.errors import InputError, Problem, SpringtideError
from springtide.publish import bundle as bundles
from springtide.publish.sign import sign

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

    def rounds(self) -> list[str]:
        """Names of publications, oldest first."""
        folder = self.path / "rounds"
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def publication(self, name: str) -> Path:
        """By its name, or by its round: the newest of that round. Raises InputError."""
        fitting = [known for known in self.rounds() if known == name or known.startswith(f"{name}-")]
        if not fitting:
            known = ", ".join(self.rounds()[-3:]) or "none yet"
            raise InputError([Problem(str(self.path), "round", f"{name} was not published", f"the newest: {known}")])
        return self.path / "rounds" / fitting[-1]

    def publish(self, documents: Mapping[str, bytes], key: Path | None) -> Path:
        """Write a publication with its way back, and let `candidate` lead to it. Raises SpringtideError, InputError."""
        new = {edge: json.loads(content) for edge, content in documents.items()}
        held = self.current() or {}
        back = {edge: bundles.canonical(going_back(held.get(edge), document)) for edge, document in new.items()}
        signatures = [{} if key is None else sign(content, key) for content in (documents, back)]
        moments = {(document["round"], document["created_at"]) for document in new.values()}
        moment, created = max(moments)
        folder = self.path / "rounds" / f"{moment}-{created[8:].translate(str.maketrans('', '', '-T:Z'))}"
        if folder.exists():
            raise SpringtideError(f"{folder}: is there already; wait a second and publish again")
        bundles.write(folder / "edges", documents, signatures[0])
        bundles.write(folder / "back", back, signatures[1])
        self.point("candidate", folder)
        return folder

    def point(self, link: str, folder: Path) -> None:
        """Let a link lead to a folder of ours; it always leads to the old or the new one. Raises SpringtideError."""
        temporary = self.path / f".{link}.{os.getpid()}"
        try:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(folder.resolve().relative_to(self.path.resolve()))
            temporary.replace(self.path / link)
        except OSError as error:
            raise SpringtideError(f"{self.path / link}: cannot be set: {error.strerror}") from error

    def prune(self, keep: int) -> list[str]:
        """Remove the oldest publications but `keep`, and never one that a link leads to. Returns their names."""
        used = {path for path in (self.resolved("candidate"), self.resolved("current")) if path is not None}
        gone = []
        for name in self.rounds()[: -keep or None]:
            folder = self.path / "rounds" / name
            real = folder.resolve()
            if any(real == path or real in path.parents for path in used):
                continue
            for file in [*folder.glob("*/*"), *folder.glob("*/.*")]:
                file.unlink()
            for part in folder.iterdir():
                part.rmdir()
            folder.rmdir()
            gone.append(name)
        return gone
