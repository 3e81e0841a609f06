"""Bundles where edges fetch them by themselves: in a folder that a web server serves.

An object is EDGE.bundle: the armored signature, and right behind it the bundle. So an edge gets both or neither, and a
wave begins as its edges' objects are replaced. Nothing here needs to be secret or trusted: edges judge what they fetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import SpringtideError
from .files import explained
from .folder import CANDIDATE, OFF

SUFFIX = ".bundle"


def offer(part: Path, edges: Iterable[str], origin: Path) -> list[str]:
    """Offer each of these edges its bundle of a publication's part. Returns the edges whose object is another one now.

    Each object is the whole old one or the whole new one at any moment. Raises SpringtideError.
    """
    changed = []
    with explained(origin):
        for edge in edges:
            content = offered(part, edge)
            path = origin / f"{edge}{SUFFIX}"
            if not path.exists() or path.read_bytes() != content:
                new = origin / f".{edge}{SUFFIX}"
                new.write_bytes(content)
                # The web server is another user, and nothing in it is secret.
                new.chmod(0o644)
                new.replace(path)
                changed.append(edge)
    return changed


def offered(part: Path, edge: str) -> bytes:
    """An edge's object. Raises SpringtideError where the part has no bundle for it."""
    path = part / f"{edge}.json"
    try:
        signature = path.with_name(f"{path.name}.sig")
        return (signature.read_bytes() if signature.exists() else b"") + path.read_bytes()
    except OSError as error:
        what = f"{error.filename}: cannot be read: {error.strerror}"
        raise SpringtideError(f"{what}; publish a round for this fleet.yaml") from error


def withdraw(publish_dir: Path, origin: Path) -> list[str]:
    """Offer every edge of the newest publication the kernel's default, and others nothing. Returns the edges whose
    object is another one now.

    Raises SpringtideError where that failed. Then nothing is offered to anybody, if the folder lets objects be removed.
    """
    off = publish_dir / CANDIDATE / OFF
    edges = {path.stem for path in off.glob("*.json")}
    with explained(origin):
        for path in origin.glob(f"*{SUFFIX}"):
            if path.name.removesuffix(SUFFIX) not in edges:
                path.unlink()
    try:
        return offer(off, sorted(edges), origin)
    except SpringtideError:
        with explained(origin):
            for path in origin.glob(f"*{SUFFIX}"):
                path.unlink()
        raise
