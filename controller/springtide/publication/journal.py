"""Who did what, when and why: a line for each event in the publisher's folder, and from there a row in the store.

The line comes first and waits for nobody, so that what is done while the store is down is not lost; sending the lines
again changes nothing (jobs/audit.py).

A writer that was killed, or a disk that was full, may leave half a line. It stays a line of its own, since the next one
begins on a new line. What cannot be read is counted, and kept as an event `damaged`, whose reason is the line.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import instants
from ..errors import SpringtideError

FILE = "journal.jsonl"
DAMAGED = "damaged"
# Bytes of a damaged line that the audit has; the whole of it stays in the file.
SHOWN_BYTES = 500


EVENTS = (
    "publish",
    "force",
    "advise",
    "disable",
    "rollout",
    "wave",
    "gate",
    "cleared",
    "rollback",
    "withdraw",
    "drift",
    "pause",
    "resume",
    "job",
    "damaged",
)


@dataclass(frozen=True)
class Event:
    """`event` is one of EVENTS."""

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
    """On the disk when it returns. Raises SpringtideError; then nothing of it is in the file."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _append_line(path, json.dumps(vars(event), sort_keys=True, ensure_ascii=False))
    except OSError as error:
        raise SpringtideError(
            f"{path}: cannot be written: {error.strerror}; make room or name another folder"
        ) from error


def _append_line(path: Path, line: str) -> None:
    """A line of its own behind whatever a killed writer left; all of it or, where it raises OSError, nothing."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        # A byte of an argument that is not UTF-8 is half a surrogate pair here, which nobody could print or store.
        content = ("\n" * torn + line + "\n").encode(errors="replace")
        try:
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def read(folder: Path, offset: int = 0) -> tuple[list[Event], int, int]:
    """Events from a byte offset on, the offset behind the last whole line, and how many lines are damaged."""
    path = folder / FILE
    try:
        content = path.read_bytes()[offset:]
        written = int(path.stat().st_mtime)
    except FileNotFoundError:
        return [], 0, 0
    except OSError as error:
        raise SpringtideError(f"{path}: cannot be read: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1]
    names = {each.name for each in fields(Event)}
    events, bad, at, near = [], 0, offset + len(whole), written
    for line in reversed(whole.split(b"\n")[:-1]):
        at -= len(line) + 1
        try:
            found = json.loads(line)
            event = _checked(Event(**{name: found[name] for name in names}))
            near = event.at_unix_s
        except (ValueError, TypeError, KeyError, RecursionError):
            bad += 1
            event = _damaged(line, at, near)
        events.append(event)
    return events[::-1], offset + len(whole), bad


def _checked(event: Event) -> Event:
    """The event, as readers rely on it. Raises ValueError for a value of another type."""
    texts = (event.event, event.publication, event.verdict, event.reason, event.digest, event.who, event.id)
    lists = isinstance(event.edges, list) and isinstance(event.details, dict)
    if not lists or not all(isinstance(text, str) for text in (*texts, *event.edges)):
        raise ValueError("a field is not of its type")
    if type(event.at_unix_s) is not int or not 0 <= event.at_unix_s < 1 << 32:
        raise ValueError("at_unix_s is not an instant")
    "".join((*texts, *event.edges)).encode()
    return event


def _damaged(line: bytes, offset: int, next_unix_s: int) -> Event:
    """The event for a line that cannot be read: the same each time, so that sending it again changes nothing."""
    # Keys are sorted, so that the time is in the first bytes of a line that was cut.
    time = re.match(rb'\{"at_unix_s": (\d{1,10}),', line)
    text = line[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return Event(
        DAMAGED,
        reason=text if text.isprintable() else repr(text)[1:-1],
        details={"offset": offset, "bytes": len(line)},
        who="",
        at_unix_s=min(int(time[1]), next_unix_s) if time else next_unix_s,
        id=hashlib.sha256(b"%d %s" % (offset, line)).hexdigest()[:32],
    )
