"""From the publisher's journal to rows of the store."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from springtide.publication.journal import FILE, Event, read
from springtide.store import Row, Store

SENT = "journal.sent"


def send(folder: Path, store: Store) -> int:
    """Rows for the lines that the store does not have yet; how many. Raises StoreError, SpringtideError."""
    mark = folder / SENT
    offset = 0
    with contextlib.suppress(OSError, ValueError):
        sent = int(mark.read_text())
        # A shorter file was begun anew.
        offset = sent if sent <= (folder / FILE).stat().st_size else 0
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
