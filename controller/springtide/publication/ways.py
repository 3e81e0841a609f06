"""Ways back of a publication: which of them undoes it, and what holds on the fleet from then on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import instants
from .files import explained
from .folder import CURRENT, EDGES, PublishFolder
from .withdrawal import withdrawn

# To what held when it was published, and to what held if the rollout of then was done.
WAYS = ("back", "back-if-done")


def given(document: Mapping[str, Any] | None, now: float) -> object:
    """Values that an edge has by a bundle at this time, None for nothing; equal for bundles of the same effect.

    Edges refuse one of a clock that was ahead.
    """
    if document is None or instants.parse(document["expires_at"]) <= now:
        return None
    if instants.parse(document["created_at"]) > now + instants.EDGE_TOLERANCE_S:
        return None
    if "entries" in document:
        entries = document["entries"]
        return (entries, document["enforce"], document["expires_at"]) if entries else None
    routes, clients = document["routes"], document.get("congestion") or []
    return (routes, clients, document["expires_at"]) if routes or clients else None


def way_back(publication: Path, folder: Path, edges: Sequence[str], now: float) -> Path:
    """The folder of bundles that brings these edges back to what they have when its rollout begins.

    Raises ValueError where the publication has none, or is another content under a moment that edges know.
    """
    current = folder / CURRENT
    reason = withdrawn(folder)
    if reason is None and current.exists() and current.resolve().parent == publication.resolve():
        return publication / WAYS[0]  # it was begun before
    held = {edge: read_bundle(current / f"{edge}.json") if reason is None else None for edge in edges}
    for edge in edges:
        new, old = read_bundle(publication / f"{EDGES}/{edge}.json"), held[edge]
        if new and old and _moment(new) == _moment(old) and new["digest"] != old["digest"]:
            what = f"{edge}: is another content for {new['round']} as of {new['created_at']}, which it has"
            raise ValueError(f"{publication}: {what}; publish again")
    for name in WAYS:
        way = publication / name
        if way.is_dir() and all(
            given(read_bundle(way / f"{edge}.json"), now) == given(held[edge], now) for edge in edges
        ):
            return way
    since = "the fleet was withdrawn" if reason else "something else came to hold on the fleet"
    raise ValueError(
        f"{publication}: {since} after it was published, so that it has no way back to that; publish again"
    )


def _moment(document: Mapping[str, Any]) -> tuple[Any, Any]:
    return document["round"], document["created_at"]


def read_bundle(path: Path) -> dict[str, Any] | None:
    """None where there is none. What is not a bundle, the edge refuses: it gives nothing."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        given(found, instants.parse(found["created_at"])), _moment(found), found["digest"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found


def hold(folder: PublishFolder, part: Path) -> None:
    """Let `current` lead to this part of a publication: it holds on the fleet, all of it or nothing.

    A way back of another name becomes the publication's only one, so that whoever undoes it later finds that.
    Raises SpringtideError.
    """
    if part.name == WAYS[1]:
        with explained(part):
            with contextlib.suppress(FileNotFoundError):
                (part.parent / WAYS[0]).rename(part.parent / ".not-taken")
            part = part.rename(part.parent / WAYS[0])
    folder.point(CURRENT, part)
