"""Bundles where edges fetch them by themselves: a folder that a web server serves, or that is copied to an object store.

An object is EDGE.bundle: the armored signature, and right behind it the bundle. So an edge gets both or neither, and a
wave begins as its edges' objects are replaced. Nothing here needs to be secret or trusted: edges judge what they fetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import SpringtideError
from .files import explained

SUFFIX = ".bundle"


def offer(part: Path, edges: Iterable[str], origin: Path) -> list[str]:
    """Offer each of these edges its bundle of a publication's part; edges whose object is another one now.

    Each object is whole at any moment, the old or the new one. Raises SpringtideError: what was offered before it stays.
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


def withhold(origin: Path) -> None:
    """Offer nothing more: edges keep what they have until it expires or is withdrawn. Raises SpringtideError."""
    with explained(origin):
        for path in origin.glob(f"*{SUFFIX}"):
            path.unlink(missing_ok=True)
