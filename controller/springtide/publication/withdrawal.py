"""After withdraw.yml nothing is pushed until somebody ends it: a file in the publisher's folder, with the reason."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .journal import who

# While it is there, every edge is at the kernel's default, or goes there.
WITHDRAWN = "withdrawn"


def withdraw(folder: Path, reason: str) -> None:
    """From now on nothing is pushed, not even by a rollout that is running. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WITHDRAWN).write_bytes(f"withdrawn by {who()}: {reason}\n".encode(errors="replace"))


def withdrawn(folder: Path) -> str | None:
    """Why nothing may be pushed, or None. Raises OSError."""
    try:
        return (folder / WITHDRAWN).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None


def end_withdrawal(folder: Path) -> None:
    """Push again. Raises OSError."""
    if (folder / WITHDRAWN).exists():  # a disk that is read-only refuses to delete also what is not there
        with contextlib.suppress(FileNotFoundError):
            (folder / WITHDRAWN).unlink()
