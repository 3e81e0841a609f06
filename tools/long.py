"""Functions above 60 lines and files above 400: each needs a sentence `Long: ...` with the reason, in its docstring, or
a function whose docstring people read as help, in a comment.

    python -m tools.long

Exit code 1 where one has none.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION, FILE = 60, 400
ROOT = Path(__file__).parents[1]


def unexplained(name: str, source: str) -> Iterator[str]:
    """Functions of one file, or the file, that are long without a reason."""
    tree = ast.parse(source)
    lines = source.count("\n")
    if lines > FILE and "Long: " not in (ast.get_docstring(tree) or ""):
        yield f"{name}: {lines} lines, above {FILE}: give the reason in its docstring (`Long: ...`), or take it apart"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION and "Long: " not in (ast.get_source_segment(source, node) or ""):
                what = f"{node.name} has {length} lines, above {FUNCTION}"
                yield f"{name}:{node.lineno}: {what}: give the reason (`Long: ...`), or take it apart"


def main() -> None:
    names = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in names.split() if (ROOT / name).is_file()]
    found = [line for name in files for line in unexplained(name, (ROOT / name).read_text())]
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
