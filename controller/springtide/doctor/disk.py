"""Free space on the disks that are written to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.doctor.finding import Finding, advice, fine, fix, unknown

# The engine merges parts by rewriting them: with less than this it stops.
LEAST_SHARE, LEAST_BYTES = 0.05, 1_000_000_000
# A fleet's samples of a night (`springtide size`).
COMFORT_SHARE = 0.15


@dataclass(frozen=True)
class Disk:
    total_bytes: int
    free_bytes: int
    total_inodes: int = 0
    free_inodes: int = 0


def gather(paths: Mapping[str, Path]) -> dict[str, Disk | None]:
    """The disk of each path, or of its nearest existing parent folder; by its purpose and path."""
    return {f"{what} {path}": _of(path) for what, path in paths.items()}


def check(seen: Mapping[str, Disk | None]) -> Iterator[Finding]:
    for where, disk in seen.items():
        if disk is None:
            yield unknown("disk", where, "its free space cannot be read")
            continue
        yield from _check_space(where, disk)


def _check_space(where: str, disk: Disk) -> Iterable[Finding]:
    free = f"{disk.free_bytes / 1e9:.1f} of {disk.total_bytes / 1e9:.1f} GB are free"
    share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    todo = (
        "free some space: shorten the policy's retention and run `springtide retention apply`, or give it a larger disk"
    )
    if disk.total_inodes and disk.free_inodes < LEAST_SHARE * disk.total_inodes:
        yield fix("disk", where, f"{disk.free_inodes:,} inodes are left", "remove small files, or give it another disk")
    if share < LEAST_SHARE or disk.free_bytes < LEAST_BYTES:
        yield fix("disk", where, f"only {free}", todo)
    elif share < COMFORT_SHARE:
        yield advice("disk", where, free, todo)
    else:
        yield fine("disk", where, free)


def _of(path: Path) -> Disk | None:
    for folder in (path, *path.absolute().parents):
        try:
            found = os.statvfs(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        size = found.f_frsize
        return Disk(found.f_blocks * size, found.f_bavail * size, found.f_files, found.f_favail)
    return None
