"""Bundles in the publisher's folder: the current ones, and a publication of new ones with their ways back.

An edge refuses bundles older than its own: what brings it back has old values, and a newer creation time.
"""

from __future__ import annotations

from pathlib import Path

from springtide import instants
from springtide.bundles.model import Bundle, Document, Documents, fields_of, read_folder, seal
from springtide.bundles.sign import sign
from springtide.errors import SpringtideError
from springtide.laws.entry import Part
from springtide.publication.folder import OFF, PublishFolder

# By how many seconds a bundle that goes back is younger than the one that it undoes, and one that ends either.
BACK_S, OFF_S = 1, 2


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
        """Returns what is current on the fleet, None before the first rollout."""
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
                parts[way] = {
                    edge: going_back(before[edge].bundle if edge in before else None, document.bundle)
                    for edge, document in documents.items()
                }
            parts[OFF] = {edge: going_back(None, document.bundle, OFF_S) for edge, document in documents.items()}
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
                        raise SpringtideError(
                            f"{self.folder.path}: {edge}: {what}; wait three seconds and publish again"
                        )


def files(documents: Documents) -> dict[str, bytes]:
    """Name -> content."""
    return {f"{edge}.json": document.content for edge, document in documents.items()}


def signatures(documents: Documents, key: Path | None) -> dict[str, bytes]:
    """Name -> content, nothing without a key. Raises InputError, SpringtideError."""
    if key is None:
        return {}
    found = sign({edge: document.content for edge, document in documents.items()}, key)
    return {f"{edge}.json.sig": signature for edge, signature in found.items()}


def going_back(before: Bundle | None, new: Bundle, after_s: int = BACK_S) -> Document:
    """The bundle that undoes `new` on its edge: what was current before it, until its own expiry, or nothing.

    It is some seconds younger than `new`, because an edge refuses bundles older than its own. Tenants that `new` leaves
    alone stay so: it is they who opted out, and no value that was decided.
    """
    created = instants.parse(new.created_at) + after_s
    alone = new.enforce.opted_out
    # By routes nobody can be left alone.
    can = before is not None and (before.by, before.enforce.otherwise) == ("bpf", "default")
    # A later bundle is of a clock that was ahead: edges refuse it, and would refuse its values again.
    known = before is not None and instants.parse(before.created_at) <= created + instants.EDGE_TOLERANCE_S
    if known and before is not None and instants.parse(before.expires_at) > created and (can or not alone):
        fields = fields_of(before)
        if alone:
            fields["enforce"] = before.enforce.but(opted_out=alone)
    else:
        # By routes of which there are none: the program goes, and open connections are treated as `new` says.
        fields = {
            **fields_of(new),
            "enforce": Part(by="routes", otherwise="default", live=new.enforce.live),
            "entries": [],
        }
    own = {"edge": new.edge, "pop": new.pop, "round": new.round, "created_at": instants.show(created)}
    return seal(fields | own)


def renewed(old: Bundle, over: Bundle | None, now_unix_s: int) -> Document:
    """Old values as a bundle that edges take after `over`: the later round of both, created now."""
    # One of a clock that was ahead is nothing to come after: edges refuse it as long as it is.
    latest = now_unix_s + instants.EDGE_TOLERANCE_S
    held = old if over is None or instants.parse(over.created_at) > latest else over
    moment = max(instants.parse(old.round), instants.parse(held.round))
    # `over` may have been taken back, or withdrawn, by a younger one.
    created = max(now_unix_s, instants.parse(held.created_at) + OFF_S + 1)
    return seal({**fields_of(old), "round": instants.show(moment), "created_at": instants.show(created)})
