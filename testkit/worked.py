"""Worked examples of the documentation: a copy of the code with a page's changes in it.

A block titled with a path is that file; one of kind `diff` changes it: lines with a space are found, one after the
other, those with + stand after them, those with - go.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
