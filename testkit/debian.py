"""The packages that tools/package builds, taken apart: .deb and .rpm."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("springtide-collector", "springtide-edge")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; fails with its output unless it exits with 0."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    result = subprocess.run(arguments, text=True, capture_output=True, check=False, env=environment)
    assert result.returncode == 0, f"{arguments} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills once in a run of the tests, in the first worker that wants it; nobody changes it."""
    base = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / name / "dist"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            # A folder that a failure left half made keeps the other name.
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.parent.mkdir()
            make(folder.with_name("made"))
            folder.with_name("made").rename(folder)
    return folder


def packaged(folder: Path) -> None:
    """All packages, as of one moment."""
    run("env", "SOURCE_DATE_EPOCH=1700000000", ROOT / "tools/package", folder)


def built(name: str, folders: pytest.TempPathFactory, kind: str = "deb") -> Path:
    """The package `name`, built with the others from the release binaries."""
    folder = once(folders, "packages", packaged)
    paths = sorted(folder.iterdir())
    assert len(paths) == 2 * len(PACKAGES), paths
    [path] = [path for path in paths if path.name.startswith(name) and path.suffix == f".{kind}"]
    return path


def listing(package: Path) -> dict[str, str]:
    """Every file that it brings, with its mode; all are root's."""
    found = {}
    for line in run("dpkg-deb", "--contents", package).stdout.splitlines():
        mode, owner, *_, name = line.split()
        assert owner in ("0/0", "root/root"), line
        if not mode.startswith("d"):
            found[name.removeprefix("./")] = mode
    return found
