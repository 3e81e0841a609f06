"""The switch that stops publishing: a file in the publisher's folder, which commands, jobs and plays all see.

What holds on the edges is not touched: it lives until its bundles expire (policy key bundle.ttl_s). Taking back,
`springtide rollback` and withdraw.yml, goes on working.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .. import instants
from ..errors import PausedError, SpringtideError
from . import journal

FILE = "paused"


@dataclass(frozen=True)
class Pause:
    """Since when, by whom, why and until when publishing is paused; instants in seconds since the epoch."""

    reason: str
    since_unix_s: int
    until_unix_s: int | None = None
    who: str = field(default_factory=journal.who)

    def __str__(self) -> str:
        until = "" if self.until_unix_s is None else f" until {instants.show(self.until_unix_s)}"
        return f"paused since {instants.show(self.since_unix_s)}{until} by {self.who}: {self.reason}"


def paused(folder: Path, now_unix_s: int) -> Pause | None:
    """The pause that is in force, None when there is none or its time is over.

    Raises SpringtideError for a file that cannot be read: what may be a pause must not be taken for none.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_bytes())
        pause = Pause(**found)
        over = pause.until_unix_s is not None and pause.until_unix_s <= now_unix_s
        str(pause).encode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        fix = "run `springtide resume`, or pause again"
        raise SpringtideError(f"{path}: cannot be read, so nothing is published: {error}; {fix}") from error
    return None if over else pause


def refuse_when_paused(folder: Path, now_unix_s: int) -> None:
    """Raises PausedError (exit code 5) while a pause is in force."""
    found = paused(folder, now_unix_s)
    if found is not None:
        raise PausedError(f"nothing is published: {found}; `springtide resume` ends the pause")


def pause(folder: Path, wanted: Pause) -> None:
    """Let nothing more be published; replaces an earlier pause. In force even where the journal cannot be written.

    Raises SpringtideError.
    """
    path = folder / FILE
    temporary = folder / f".{FILE}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(wanted), sort_keys=True))
        temporary.replace(path)
    except OSError as error:
        raise SpringtideError(f"{path}: cannot be written: {error.strerror}; NOT paused") from error
    details = {} if wanted.until_unix_s is None else {"until": instants.show(wanted.until_unix_s)}
    journal.append(folder, journal.Event("pause", verdict="paused", reason=wanted.reason, details=details))


def resume(folder: Path, reason: str) -> bool:
    """Publish again from now on; False when nothing was paused. Raises SpringtideError."""
    path = folder / FILE
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SpringtideError(f"{path}: cannot be removed: {error.strerror}; publishing stays paused") from error
    journal.append(folder, journal.Event("resume", verdict="resumed", reason=reason))
    return True
