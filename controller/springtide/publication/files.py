"""Files that are whole or not there, and what a disk refuses in one line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import SpringtideError


def write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Name -> content, each file whole or not at all: all are on disk under temporary names before the first gets its
    own. A bundle (NAME.json) without a signature loses the one of an earlier bundle.

    Raises SpringtideError, having removed the temporary files.
    """
    temporary: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in sorted(contents.items()):
            path = folder / name
            temporary[path] = folder / f".{name}.{os.getpid()}"
            write_file(temporary[path], content)
        for path, written in temporary.items():
            written.replace(path)
        for name in contents:
            if name.endswith(".json") and f"{name}.sig" not in contents:
                (folder / f"{name}.sig").unlink(missing_ok=True)
        sync(folder)
    except OSError as error:
        for written in temporary.values():
            written.unlink(missing_ok=True)
        raise SpringtideError(
            f"{folder}: bundles cannot be written: {error.strerror}; choose a writable --out"
        ) from error


def write_file(path: Path, content: bytes) -> None:
    """On the disk when it returns. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Brings what was renamed in the folder to the disk before it returns. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """An OSError as one line."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or path}: cannot be written: {error.strerror}"
        raise SpringtideError(f"{what}; make room, or let this user write there") from error
