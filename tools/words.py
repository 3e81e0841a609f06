"""Words that a plainer one replaces (docs/reference/glossary.md): metaphors for what a program reports or requests.

    python -m tools.words

Exit code 1 where one stands in a source or a page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = (".md", ".py", ".rs", ".sql", ".toml", ".xml", ".yaml", ".yml")
# Each with what to write instead.
WORDS = {
    r"told|spoken": "reported, configured, known",
    r"wish(es|ed)?": "wanted, requested",
    r"hears?|heard": "receives, got, sent samples",
    r"strangers?": "unknown host",
    r"honest(ly)?": "truthful, reliable",
    r"red button": "withdraw.yml",
    r"for ever": "forever, permanently",
    r"is no (number|text|file|regular|sample|fault|error|change|loss|parameter|valid)": "is not a ...",
}
FOUND = {re.compile(rf"(?<!\w)({pattern})(?!\w)", re.IGNORECASE): better for pattern, better in WORDS.items()}
# History; this list.
EXEMPT = ("CHANGELOG.md", "tools/words.py")


def findings(name: str, text: str) -> Iterator[str]:
    """The lines of one file that have such a word."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in FOUND.items():
            if match := pattern.search(line):
                yield f"{name}:{number}: {match[0]!r}: write it plainly ({better})"


def main() -> None:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = [
        ROOT / name
        for name in names
        if name.endswith(SUFFIXES) and not name.startswith(EXEMPT) and not (ROOT / name).is_symlink()
    ]
    found = [line for path in files for line in findings(str(path.relative_to(ROOT)), path.read_text())]
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
