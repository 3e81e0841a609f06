"""Bundles where edges fetch them by themselves: in a folder that a web server serves.

An object is EDGE.bundle: the armored signature, and right behind it the bundle. So an edge gets both or neither, and a
wave begins as its edges' objects are replaced. Nothing here needs to be secret or trusted: edges judge what they fetch.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
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
            if not (path.is_file() and path.read_bytes() == content):
                _replace(path, content)
                changed.append(edge)
    return changed


def _replace(path: Path, content: bytes) -> None:
    """Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=".offer-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            # The web server is another user, and nothing in it is secret.
            os.fchmod(handle, 0o644)
            # Web servers make their tags of size and second: another content needs another second.
            before = path.stat().st_mtime if path.is_file() else 0.0
            second = max(time.time(), before + 1.0)
            file.flush()
            os.utime(handle, (second, second))
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


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
    """Offer every edge of the newest publication the kernel's default. Returns the edges whose object is another one;
    none where there is no origin, since nobody pulls.

    Raises SpringtideError where that failed for some. They are offered nothing then, if their object can be removed.
    """
    if not os.path.lexists(origin):
        return []
    if not origin.is_dir():
        raise SpringtideError(f"{origin}: is not a folder; make it, and let a web server serve it")
    off = publish_dir / CANDIDATE / OFF
    edges = sorted(path.stem for path in off.glob("*.json"))
    if not edges and any(origin.glob(f"*{SUFFIX}")):
        raise SpringtideError(f"{off}: has no bundles, so that edges that pull are not withdrawn; publish a round")
    changed, failed = [], None
    for edge in edges:
        try:
            changed += offer(off, [edge], origin)
        except SpringtideError as error:
            failed = error
            with contextlib.suppress(OSError):
                (origin / f"{edge}{SUFFIX}").unlink()
    if failed is not None:
        raise failed
    return changed
