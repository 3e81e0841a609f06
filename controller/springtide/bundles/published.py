"""Bundles in the publisher's folder: the current ones, and a publication of new ones with their ways back."""

from __future__ import annotations

from pathlib import Path

from springtide.bundles.back import going_back
from springtide.bundles.model import Document, Documents, read_folder
from springtide.bundles.sign import sign
from springtide.errors import SpringtideError
from springtide.publication.folder import PublishFolder


class PublishedBundles:
    """The bundles of a folder. A publication never changes, so each file is read once per object. With `force` a
    bundle that cannot be read is none, and one of `damaged`: path -> why."""

    def __init__(self, folder: PublishFolder, *, force: bool = False) -> None:
        self.folder = folder
        self.damaged: dict[Path, str] = {}
        self._force = force
        self._known: dict[Path, dict[str, Document]] = {}

    def part(self, path: Path) -> dict[str, Document]:
        """Edge -> bundle, of a part of a publication. Raises SpringtideError."""
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: Path) -> dict[str, Document]:
        return read_folder(path, self.damaged if self._force else None)

    def current(self) -> dict[str, Document] | None:
        """What is current on the fleet, None before the first rollout."""
        path = self.folder.resolved("current")
        return None if path is None else self.part(path)

    def publish(self, documents: Documents, key: Path | None, fleet: bytes = b"") -> Path:
        """Write a publication with its ways back, and point `candidate` to it. `fleet`: its fleet.yaml.

        Raises SpringtideError, InputError.
        """
        moment, created = max((one.bundle.round, one.bundle.created_at) for one in documents.values())
        name = f"{moment}-{created.translate(str.maketrans('', '', '-T:Z'))}"
        edges = files(documents)
        with self.folder.alone():
            path = self.folder.path / "rounds" / name
            if path.exists() and not self.folder.is_left_over(name, edges):
                raise SpringtideError(f"{path}: exists already; wait a second and publish again")
            ways = self._ways_back()
            self._refuse_equals(documents)
            parts = {"edges": documents}
            for way, before in ways.items():
                parts[way] = {edge: _back(before.get(edge), document) for edge, document in documents.items()}
            signed = {part: files(found) | signatures(found, key) for part, found in parts.items()}
            return self.folder.write(name, signed, fleet)

    def _ways_back(self) -> dict[str, Documents]:
        """The state that each way back restores."""
        held = self.folder.held()
        found: dict[str, Documents] = {"back": {} if held is None else self.part(held)}
        if held is not None and held.name == "back" and found["back"]:
            found["back-if-done"] = self.part(held.parent / "edges")
        return found

    def _refuse_equals(self, new: Documents) -> None:
        """Edges know bundles of one round by when they were made: a new one must be younger than all of these."""
        for publication in self.folder.led_to():
            for path in (part for part in publication.iterdir() if part.is_dir()):
                # Parts that are not cached yet are not needed again either.
                part = self._known[path] if path in self._known else self._read(path)
                for edge in new.keys() & part.keys():
                    ours, theirs = new[edge].bundle, part[edge].bundle
                    if ours.round == theirs.round and ours.created_at <= theirs.created_at:
                        what = f"created_at {ours.created_at} is not after {theirs.created_at} of {publication.name}"
                        raise SpringtideError(f"{self.folder.path}: {edge}: {what}; wait two seconds and publish again")


def files(documents: Documents) -> dict[str, bytes]:
    """Name -> content."""
    return {f"{edge}.json": document.content for edge, document in documents.items()}


def signatures(documents: Documents, key: Path | None) -> dict[str, bytes]:
    """Name -> content, nothing without a key. Raises InputError, SpringtideError."""
    if key is None:
        return {}
    found = sign({edge: document.content for edge, document in documents.items()}, key)
    return {f"{edge}.json.sig": signature for edge, signature in found.items()}


def _back(before: Document | None, new: Document) -> Document:
    return going_back(None if before is None else before.bundle, new.bundle)
