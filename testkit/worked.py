"""Worked examples of the documentation: a copy of the code with a page's changes in it.

A block titled with a path is that file; one of kind `diff` changes it: lines with a space are found, one after the
other, those with + stand after them, those with - go.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Crates that cargo needs in a copy, and what it makes: a file, and where the testkit and Python find it.
CRATES = ("core", "collector", "controller/native", "edge", "lab/wan")
MADE = {
    "springtide-edge": ("springtide-edge", "target/release/springtide-edge"),
    "springtide-native": ("libspringtide_native.so", "controller/springtide/_core.abi3.so"),
}
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.M | re.S)


def files(page: str) -> set[str]:
    """The files that a page's example touches."""
    return {title for _, title, _ in BLOCK.findall(page)}


def copy(tree: Path, folders: Iterable[str], page: str, **holes: str) -> Path:
    """These folders with the page's example in them, each hole's word put in. Raises ValueError where a line of a
    difference is not there."""
    for folder in folders:
        ignored = shutil.ignore_patterns("__pycache__", "target", "node_modules")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored, symlinks=True)
    for kind, title, content in BLOCK.findall(page):
        for hole, word in holes.items():
            title, content = title.replace(hole, word), content.replace(hole, word)
        path = tree / title
        path.parent.mkdir(exist_ok=True)
        path.write_text(changed(path.read_text(), content) if kind == "diff" else content)
    return tree


def build(tree: Path, *packages: str) -> None:
    """Compiles crates of a copy that has CRATES, and puts what comes of them where it is looked for.

    Into a directory that all copies share, so that dependencies are compiled once. A copy's crates have the names of
    ours there, and cargo goes by a source's age: each is made new, and what was compiled is taken out before the next.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "worked"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, tree)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0"}
    command = ["cargo", "build", "--locked", "--quiet", *(f"--package={name}" for name in packages)]
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in (path for folder in CRATES for path in (tree / folder).rglob("*") if path.is_file()):
            path.touch()
        done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for made, place in (MADE[name] for name in packages):
            path = tree / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            shutil.copy(target / "debug" / made, path)


def run(tree: Path, script: str, *arguments: str) -> str:
    """Runs a script that has the copy's modules, and returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / name) for name in ("controller", ""))}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def next_migration() -> str:
    """The next free number, four digits."""
    return f"{max(int(path.name[:4]) for path in (ROOT / 'sql/migrations').glob('*.sql')) + 1:04}"


def changed(text: str, difference: str) -> str:
    """The text with a difference's lines in it."""
    at = 0
    for line in difference.splitlines():
        mark, content = line[0], line[1:] + "\n"
        if mark == "+":
            text = text[:at] + content + text[at:]
            at += len(content)
        else:
            start = text.index(content, at)
            if mark == "-":
                text = text[:start] + text[start + len(content) :]
            at = start + (len(content) if mark == " " else 0)
    return text
