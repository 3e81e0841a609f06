"""Circles of modules in the edge's program: what one uses never leads back to it, on any level of `edge/src`.

    python -m tools.circles

A part that uses an item of its own face (`mod.rs`) makes a circle as well, since the face uses its parts. Tests do not
count. Exit code 1 where there is a circle.
"""

from __future__ import annotations

import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "edge" / "src"
FACE = "mod"
_NO_CODE = re.compile(r"#\[cfg\(test\)\]\s+mod tests(;| \{.*)|//[^\n]*", re.DOTALL)
_PATH = re.compile(r"\b(crate|super)(?=::)((?:::\w+)*)(?:::\{([^}]*))?")
_PART = re.compile(r"^(?:pub(?:\(\w+\))? )?mod (\w+);", re.MULTILINE)
Module = tuple[str, ...]


def uses(source: Path) -> dict[Module, set[Module]]:
    """Modules of the same folder that each module uses; a folder is a module of the folder above it."""
    files = {path.relative_to(source).with_suffix("").parts: path for path in source.rglob("*.rs")}
    files = {module: path for module, path in files.items() if not {"lib", "main", "tests"} & {*module}}
    found: dict[Module, set[Module]] = {}
    for module, path in files.items():
        for used in _named(module, _NO_CODE.sub("", path.read_text())):
            while used and used not in files and (*used, FACE) not in files:
                used = used[:-1]
            level = 0
            while module[level : level + 1] == used[level : level + 1] != ():
                level += 1
            if used and used != module and (*used, FACE) != module:
                found.setdefault(module[: level + 1], set()).add((*used, FACE)[: level + 1])
    return found


def _named(module: Module, text: str) -> Iterator[Module]:
    for start, path, names in _PATH.findall(text):
        used = () if start == "crate" else module[: -2 if module[-1] == FACE else -1]
        for part in path.split("::")[1:]:
            used = used[:-1] if part == "super" else (*used, part)
        yield from [(*used, *name.strip().split("::")) for name in names.split(",")] if names else [used]
    if module[-1] == FACE:
        yield from ((*module[:-1], part) for part in _PART.findall(text))


def main() -> None:
    try:
        graphlib.TopologicalSorter(uses(SOURCE)).prepare()
    except graphlib.CycleError as error:
        sys.exit("a circle: " + " <- ".join("::".join(module) for module in error.args[1]))


if __name__ == "__main__":
    main()
