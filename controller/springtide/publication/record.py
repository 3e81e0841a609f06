"""Records of what a play did: a line in the journal, and what holds on the fleet from then on."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError, Problem
from .folder import CURRENT, EDGES, PublishFolder
from .journal import Event, append
from .ways import WAYS, hold

# Events that plays record. `gate` and the others are the controller's.
EVENTS = ("rollout", "wave", "rollback", "withdraw", "drift")
# Parts of a publication that can hold on the fleet.
PARTS = (EDGES, *WAYS)


def record(folder: PublishFolder, event: Event, holds: str | None = None) -> None:
    """The line, and `current` leads to this part of the event's publication.

    What is rolled out holds once its line is on the disk; a way back does even where the line cannot be written. A
    rollout that begins again after it had come to its end moves nothing. Raises SpringtideError, InputError.
    """
    if event.event == "rollback":
        try:
            if holds is not None:
                hold(folder, _part(folder, event.publication, holds))
        finally:
            append(folder.path, event)
        return
    part = None if holds is None else _part(folder, event.publication, holds)
    append(folder.path, event)
    if part is None or (event.verdict == "begun" and folder.resolved(CURRENT) == (part.parent / EDGES).resolve()):
        return
    hold(folder, part)


def _part(folder: PublishFolder, publication: str, holds: str) -> Path:
    found = folder.path / "rounds" / publication / holds
    if holds not in PARTS or publication in ("", ".", "..") or "/" in publication or not found.is_dir():
        message = f"{publication}/{holds} is not a part of a publication"
        raise InputError([Problem(str(folder.path), "holds", message, f"name a publication and one of {PARTS}")])
    return found
