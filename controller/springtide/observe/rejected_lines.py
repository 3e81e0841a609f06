"""FILE.rejected: the bad lines of FILE, each once, however often FILE is read and whatever it is replaced by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from springtide.observe.folder import Folder

# A line may have any length; the part of it in memory is bounded.
PIECE_BYTES = 1 << 20


class Rejected:
    """Made when the first line is kept. Nothing that was kept is ever lost from it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._known: set[bytes] = set()
        self._ends_a_line = True
        self._open = ExitStack()

    def __enter__(self) -> Rejected:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def keep(self, source: int, start: int, length: int) -> str | None:
        """Keep a line of `source`; gives back why it could not be."""
        digest = hashlib.blake2b(digest_size=8)
        for piece in _pieces(source, start, length):
            digest.update(piece.removesuffix(b"\n"))
        try:
            fd = self._opened()
            if digest.digest() in self._known:
                return None
            if not self._ends_a_line:
                _write(fd, b"\n")
            for piece in _pieces(source, start, length):
                _write(fd, piece)
                self._ends_a_line = piece.endswith(b"\n")
        except OSError as error:
            self._ends_a_line = False
            return error.strerror or str(error)
        self._known.add(digest.digest())
        return None

    def _opened(self) -> int:
        if self._fd is None:
            with Folder(self._path.parent) as folder:
                fd = folder.append_to(f"{self._path.name}.rejected")
            self._open.callback(os.close, fd)
            self._open.callback(os.fsync, fd)
            self._read(fd)
            self._fd = fd
        return self._fd

    def _read(self, fd: int) -> None:
        """Reads what was kept before."""
        with os.fdopen(os.dup(fd), "rb") as file:
            digest = hashlib.blake2b(digest_size=8)
            while piece := file.readline(PIECE_BYTES):
                digest.update(piece.removesuffix(b"\n"))
                self._ends_a_line = piece.endswith(b"\n")
                if self._ends_a_line:
                    self._known.add(digest.digest())
                    digest = hashlib.blake2b(digest_size=8)
            if not self._ends_a_line:
                self._known.add(digest.digest())


def _pieces(fd: int, start: int, length: int) -> Iterator[bytes]:
    end = start + length
    while start < end and (piece := os.pread(fd, min(PIECE_BYTES, end - start), start)):
        yield piece
        start += len(piece)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
