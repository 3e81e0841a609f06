"""Who did what, when and why: a line for each event in the publisher's folder, and from there a row in the store.

The line comes first and waits for nobody, so that what is done while the store is down is not lost; sending the lines
again changes nothing. Ansible's module springtide_record writes lines of the same form.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from springtide import instants
from springtide.errors import SpringtideError
from springtide.store import Row, Store

FILE = "journal.jsonl"
SENT = "journal.sent"


@dataclass(frozen=True)
class Event:
    """`event` is one of publish, force, rollout, wave, gate, rollback, withdraw, drift, pause, resume, job."""

    event: str
    publication: str = ""
    verdict: str = ""
    reason: str = ""
    edges: Sequence[str] = ()
    digest: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    who: str = field(default_factory=lambda: who())
    at_unix_s: int = field(default_factory=lambda: instants.now())
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def who() -> str:
    """The person behind sudo, else the user of this process."""
    with contextlib.suppress(OSError, KeyError):
        return os.environ.get("SUDO_USER") or getpass.getuser()
    return str(os.getuid())


def append(folder: Path, event: Event) -> None:
    """On the disk when it returns. Raises SpringtideError."""
    path = folder / FILE
    line = json.dumps(asdict(event), sort_keys=True) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        with os.fdopen(handle, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpringtideError(
            f"{path}: cannot be written: {error.strerror}; make room or name another folder"
        ) from error


def read(folder: Path, offset: int = 0) -> tuple[list[Event], int, int]:
    """Events from a byte offset on, the offset behind the last whole line, and how many lines were none of ours."""
    path = folder / FILE
    if not path.exists():
        return [], 0, 0
    try:
        content = path.read_bytes()[offset:]
    except OSError as error:
        raise SpringtideError(f"{path}: cannot be read: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1]
    names = {each.name for each in fields(Event)}
    events, bad = [], 0
    for line in whole.splitlines():
        try:
            found = json.loads(line)
            events.append(Event(**{name: found[name] for name in names}))
        except (ValueError, TypeError, KeyError):
            bad += 1
    return events, offset + len(whole), bad


def send(folder: Path, store: Store) -> int:
    """Rows for the lines that the store does not have yet; how many. Raises StoreError, SpringtideError."""
    mark = folder / SENT
    try:
        offset = int(mark.read_text()) if mark.exists() else 0
    except (OSError, ValueError):
        offset = 0
    if (folder / FILE).exists() and offset > (folder / FILE).stat().st_size:
        offset = 0  # the file was begun anew
    events, end, _ = read(folder, offset)
    if events:
        store.insert("audit", [row(event) for event in events])
        with contextlib.suppress(OSError):  # then they are sent again, and are the same rows
            mark.write_text(str(end))
    return len(events)


def row(event: Event) -> Row:
    return {
        "at": event.at_unix_s,
        "id": event.id,
        "who": event.who,
        "event": event.event,
        "publication": event.publication,
        "digest": event.digest,
        "edges": list(event.edges),
        "verdict": event.verdict,
        "reason": event.reason,
        "details": json.dumps(event.details, sort_keys=True),
    }
