"""The Debian packages that tools/package builds, taken apart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("springtide-collector", "springtide-edge")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; fails with its output unless it exits with 0."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    result = subprocess.run(arguments, text=True, capture_output=True, check=False, env=environment)
    assert result.returncode == 0, f"{arguments} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result


def built(name: str, directory: Path) -> Path:
    """The package `name`, built into `directory` with the others, from the release binaries."""
    paths = [Path(line) for line in run(ROOT / "tools/package", directory).stdout.split()]
    assert sorted(path.name.partition("_")[0] for path in paths) == sorted(PACKAGES), paths
    return next(path for path in paths if path.name.startswith(f"{name}_"))


def listing(package: Path) -> dict[str, str]:
    """Every file that it brings, with its mode; all are root's."""
    found = {}
    for line in run("dpkg-deb", "--contents", package).stdout.splitlines():
        mode, owner, *_, name = line.split()
        assert owner in ("0/0", "root/root"), line
        if not mode.startswith("d"):
            found[name.removeprefix("./")] = mode
    return found
