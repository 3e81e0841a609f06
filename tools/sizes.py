"""Lines of the code that decides, renders, validates and lays out: what a newcomer reads to follow a decision. Tests
and generated files do not count.

    python -m tools.sizes                 of the last commit
    python -m tools.sizes --at COMMIT     of another one
    python -m tools.sizes --json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Work of a part, and the files or folders that do it.
PARTS = {
    "decide: the step, and what a start saves": ("core/src/step/", "core/src/gain.rs"),
    "decide: laws": ("controller/springtide/laws/",),
    "hand over columns": (
        "controller/springtide/frame.py",
        "controller/springtide/pieces.py",
        "controller/native/src/",
        "controller/springtide/_core.pyi",
    ),
    "render and validate: a bundle's definition": (
        "core/src/bundle.rs",
        "core/src/check.rs",
        "core/src/part.rs",
        "core/src/prefix.rs",
        "core/src/instant.rs",
        "core/src/text.rs",
    ),
    "render and validate: the controller's": ("controller/springtide/bundles/",),
    "lay out: structs shared with BPF": ("core/src/layout/",),
    "lay out: the edge's": ("edge/src/bundle", "edge/src/enforce/bpf/encode.rs"),
    "read: first flights, and the estimate's arithmetic": (
        "collector/src/kernel/flights.rs",
        "collector/src/read/poller/flights.rs",
        "collector/src/estimate/gain.rs",
    ),
}
_CODE = (".rs", ".py", ".pyi", ".h", ".c")
_UNIT_TESTS = re.compile(r"\n#\[cfg\(test\)\]\nmod tests \{.*", re.DOTALL)


def sizes(commit: str) -> dict[str, int]:
    """Lines by part."""
    names = _git("ls-tree", "-r", "--name-only", commit).splitlines()
    found = {}
    for part, paths in PARTS.items():
        own = [name for name in names if name.startswith(paths) and name.endswith(_CODE) and not _is_test(name)]
        found[part] = sum(_lines(_git("show", f"{commit}:{name}")) for name in own)
    return found


def _is_test(name: str) -> bool:
    return name.endswith("tests.rs") or "/tests/" in name


def _lines(source: str) -> int:
    return _UNIT_TESTS.sub("\n", source).count("\n")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tools.sizes: git {arguments[0]}: {done.stderr.strip()}; name a commit of this repository")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.sizes", description=__doc__.split("\n\n")[0])
    parser.add_argument("--at", default="HEAD", metavar="COMMIT", help="of this commit (default: the last one)")
    parser.add_argument("--json", action="store_true", help="one JSON object: lines by part")
    options = parser.parse_args()
    found = sizes(options.at)
    if options.json:
        print(json.dumps(found))
        return
    for part, lines in found.items():
        print(f"{lines:>7,}  {part}")
    print(f"{sum(found.values()):>7,}  in all")


if __name__ == "__main__":
    main()
