"""Plain English: words that a plainer one replaces (docs/reference/glossary.md), in sources and pages; in pages also
sentences of more than 30 words, and those that begin with "Of"; in sources comments that hide their subject.

    python -m tools.words             all files
    python -m tools.words FILE ...    these

Exit code 1 where something is found.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = (".c", ".h", ".md", ".proto", ".py", ".rs", ".sh", ".sql", ".toml", ".xml", ".yaml", ".yml")
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
# This list.
EXEMPT = ("tools/words.py",)
MOST_WORDS = 30
CODE = re.compile(r"^( *)```.*?^ *```|<!--.*?-->", re.M | re.S)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"(?:[-*>]|\d+\.) +")
# A colon or a semicolon ends a thought as a stop does.
END = re.compile(r"(?<=[.!?:;])\** ")

COMMENT = re.compile(r"\s*(?:#|//|--|/?\*)")
# Words with which no comment or docstring begins, unless it is a question.
SUBJECTLESS = re.compile(r"\s*(?:#|//[/!]?|--|/?\*+|r?\"{3})\s*(What|Which|Whoever|Whose|Of|How|That)\b[^?]*$")


def findings(name: str, text: str) -> Iterator[str]:
    """The lines of one file that have such a word."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in FOUND.items():
            if match := pattern.search(line):
                yield f"{name}:{number}: {match[0]!r}: write it plainly ({better})"


def subjectless(name: str, source: str) -> Iterator[str]:
    """The comments of a source that begin with neither a noun nor a verb."""
    before = ""
    for number, line in enumerate(source.splitlines(), 1):
        goes_on = COMMENT.match(before) and before.rstrip()[-1] not in ".:?#/!*-"
        if (match := SUBJECTLESS.match(line)) and not goes_on:
            yield f"{name}:{number}: begin with a noun or a verb, not with {match[1]!r}"
        before = line


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """A page's running text: paragraphs, items and cells, each with the number of its first line. Code is left out."""
    # As many lines as before.
    text = CODE.sub(lambda found: "\n" * (found[0].count("\n") + 1), page)
    first, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        cells = stripped.startswith("|")
        begins = not stripped or cells or line.startswith(("    ", "#", "<")) or ITEM.match(stripped)
        if begins and lines:
            yield first, " ".join(lines)
            lines = []
        if cells:
            yield from ((number, cell) for cell in stripped.strip("|").split("|"))
        elif stripped and not line.startswith(("    ", "#", "<")):
            first = first if lines else number
            lines.append(ITEM.sub("", stripped, count=1) if not lines else stripped)


def sentences(page: str) -> Iterator[tuple[int, str]]:
    """Each sentence of a page with the line on which its paragraph begins; a piece of code is one word."""
    for number, text in paragraphs(page):
        plain = LINK.sub(r"\1", re.sub(r"`[^`]*`", "`code`", text))
        yield from ((number, sentence) for sentence in END.split(plain))


def unreadable(name: str, page: str) -> Iterator[str]:
    """The sentences of a page that one cannot read aloud."""
    for number, sentence in sentences(page):
        words = sentence.split()
        if len(words) > MOST_WORDS:
            yield f"{name}:{number}: {len(words)} words, {MOST_WORDS} at most: {' '.join(words[:8])} ..."
        if words[:1] == ["Of"]:
            yield f"{name}:{number}: begin with the subject, not with 'Of': {' '.join(words[:8])} ..."


def main() -> None:
    names = (
        sys.argv[1:]
        or subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    )
    files = [
        ROOT / name
        for name in names
        if name.endswith(SUFFIXES) and not name.startswith(EXEMPT) and not (ROOT / name).is_symlink()
    ]
    found = list[str]()
    for path in files:
        name, text = str(path.relative_to(ROOT)), path.read_text()
        found += findings(name, text)
        found += unreadable(name, text) if path.suffix == ".md" else subjectless(name, text)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
