"""A folder that others may write to: links in it are never followed, and pipes never waited for."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from springtide.errors import printable

# Device, inode and size: they identify one open file.
Identity = tuple[int, int, int]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def shown(name: str) -> str:
    """A file's name as text on one line, whatever bytes it is made of."""
    return printable(os.fsencode(name).decode(errors="backslashreplace"))


def safe_name(name: str) -> str:
    """A name reduced to characters that are safe in another file's name."""
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII)[:120]


class Folder:
    """Access by name within this one folder, even if it is moved meanwhile. Every method raises OSError."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if descriptor is None else descriptor

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def names(self, suffix: str) -> list[str]:
        with os.scandir(self._fd) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(suffix))

    def size(self, name: str) -> int:
        """Bytes of a regular file, 0 of anything else."""
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def open(self, name: str) -> int:
        """A descriptor to read a regular file by; the caller closes it."""
        return self._regular(name, _READ)

    def remove(self, name: str, identity: Identity) -> None:
        """Remove only the file that was read, not one that has replaced it."""
        if identity_of(os.stat(name, dir_fd=self._fd, follow_symlinks=False)) != identity:
            raise OSError(errno.ESTALE, "has been replaced by another file", name)
        os.unlink(name, dir_fd=self._fd)

    def below(self, name: str) -> Folder:
        """The folder `name` in this one, made when it is missing."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._fd)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return Folder(self.path / name, os.open(name, flags, dir_fd=self._fd))

    def keep(self, name: str, data: bytes) -> None:
        """`data` as the file `name`, on the disk when this returns: a new file, put in place of whatever is there."""
        temporary = f".{secrets.token_hex(8)}.new"
        fd = os.open(temporary, _NEW, 0o600, dir_fd=self._fd)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError:
            os.unlink(temporary, dir_fd=self._fd)
            raise
        os.fsync(self._fd)

    def append_to(self, name: str) -> int:
        """A descriptor to read and lengthen our own file by, made when it is missing; the caller closes it."""
        fd = self._regular(name, _APPEND)
        found = os.fstat(fd)
        if found.st_uid == os.geteuid() and found.st_nlink == 1:
            return fd
        os.close(fd)
        raise OSError(errno.EPERM, "is owned by somebody else, or has two names", name)

    def _regular(self, name: str, flags: int) -> int:
        try:
            fd = os.open(name, flags, 0o600, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise OSError(error.errno, "is not a regular file", name) from error
            raise
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a regular file", name)


def identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size


class Bytes:
    """An open file's bytes, by position. A file truncated meanwhile is an OSError; mapped, it would be a SIGBUS."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes: fewer at the end only."""
        wanted = max(0, min(length, self.size - start))
        data = os.pread(self._fd, wanted, start)
        while len(data) < wanted:
            more = os.pread(self._fd, wanted - len(data), start + len(data))
            if not more:
                raise OSError(errno.EIO, "became shorter while it was read")
            data += more
        return data
