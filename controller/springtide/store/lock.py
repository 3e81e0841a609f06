"""One process at a time: an advisory lock file beside an embedded store, which names its holder."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from springtide.errors import StoreError, printable

# Short compared with any command that holds the lock, long compared with the cost of one attempt.
POLL_S = 0.05


class DirectoryLock:
    """Held from `acquire` to `release`, or until the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self, wait_s: float, on_wait: Callable[[str], None]) -> None:
        """Wait up to `wait_s` seconds. `on_wait` is called once with the holder. Raises StoreError when time is up."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be opened: {error.strerror}; choose a writable --store") from error
        deadline = time.monotonic() + wait_s
        reported = False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(fd, 500, 0).decode(errors="replace").strip() or "another process"
                if time.monotonic() >= deadline:
                    os.close(fd)
                    name = self._path.with_suffix("")
                    text = f"store {name} is held by {holder}; waited {wait_s:g} s: try again, or raise --store-wait"
                    raise StoreError(text) from None
                if not reported:
                    on_wait(holder)
                    reported = True
                time.sleep(POLL_S)
        os.ftruncate(fd, 0)
        holder = f"pid {os.getpid()} ({' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])})"
        # On a full disk it is held without a name.
        with suppress(OSError):
            os.pwrite(fd, f"{printable(holder)}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
