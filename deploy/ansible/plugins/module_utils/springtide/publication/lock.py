"""One push at a time from this publisher: a lock that ends with the process that took it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .journal import who

LOCK = "rollout.lock"


def playbook_process() -> int:
    """The process whose end is the end of this run: the outermost ansible-playbook above us, else our parent."""
    found = pid = os.getppid()
    outermost: int | None = None
    while pid > 1:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.rpartition(b"/")[2].startswith(b"ansible") for word in words[:2]):
                outermost = pid
        parent = parent_of(pid)
        if parent is None:
            break
        pid = parent
    return outermost or found


def _stat(pid: int) -> list[str] | None:
    try:
        # The name in parentheses may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def parent_of(pid: int) -> int | None:
    words = _stat(pid)
    return None if words is None else int(words[1])


def started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks: not so a later one with its number (proc(5), field 22)."""
    words = _stat(pid)
    return None if words is None or words[0] in ("Z", "X") else words[19]


@contextlib.contextmanager
def _open_locked(path: Path) -> Iterator[Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o640)
    with os.fdopen(handle, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _taken(content: str, pid: int) -> str | None:
    """Who holds the lock with this content, but for us. A holder that has ended holds nothing, however it ended."""
    try:
        holder = json.loads(content or "{}")
    except ValueError:
        holder = {}
    other = holder.get("pid")
    alive = isinstance(other, int) and holder.get("boot") == _boot() and started(other) == holder.get("started")
    return f"{holder.get('what')} by {holder.get('who')} (process {other})" if alive and other != pid else None


def take_lock(folder: Path, pid: int, what: str) -> str | None:
    """None when the lock is ours, else who has it. Raises OSError where nothing can be written; see `lock_holder`."""
    with _open_locked(folder / LOCK) as file:
        other = _taken(file.read(), pid)
        if other is None:
            mine = {"pid": pid, "started": started(pid), "boot": _boot(), "what": what, "who": who()}
            file.seek(0)
            file.truncate()
            file.write(json.dumps(mine))
    return other


def lock_holder(folder: Path, pid: int) -> str | None:
    """Who holds the lock, but for us, where the disk takes nothing."""
    with contextlib.suppress(OSError):
        return _taken((folder / LOCK).read_text(encoding="utf-8", errors="replace"), pid)
    return None


def give_lock_back(folder: Path, pid: int) -> None:
    with _open_locked(folder / LOCK) as file:
        try:
            holder = json.loads(file.read() or "{}")
        except ValueError:
            holder = {}
        if holder.get("pid") == pid:
            file.seek(0)
            file.truncate()
