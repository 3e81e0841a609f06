"""sql/analysis: questions of network engineers, each with its parameters and their defaults in its header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from springtide.errors import InputError, Problem
from springtide.store.files import analysis_folder
from springtide.store.migrations import read_migrations
from springtide.store.reference import first_sentences

# The hole of a question about the store itself: what each table and view is, by the comments of the migrations.
DESCRIPTIONS = "$descriptions"
PARAMETER = re.compile(r"--   (?P<name>\w+) (?P<type>\w+) = (?P<default>[^:]*): (?P<meaning>.+)")


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Question:
    """One file: `question` is its first line, `note` the rest of its header, `sql` the whole text."""

    name: str
    question: str
    note: str
    parameters: tuple[Parameter, ...]
    sql: str

    def values(self, given: Mapping[str, str]) -> dict[str, str]:
        """The defaults, with what was given over them. Raises InputError for a parameter that the question lacks."""
        known = {parameter.name: parameter.default for parameter in self.parameters}
        unknown = [name for name in given if name not in known]
        if unknown:
            fix = f"it takes {', '.join(known) or 'none'}"
            raise InputError(
                [Problem(self.name, name, "is not a parameter of this question", fix) for name in unknown],
            )
        return {**known, **given}


def questions() -> list[Question]:
    """All questions, by name."""
    return [_read(path.stem, path.read_text()) for path in sorted(analysis_folder().glob("*.sql"))]


def question(name: str) -> Question:
    """Raises InputError when there is none of that name."""
    found = {item.name: item for item in questions()}
    if name not in found:
        near = get_close_matches(name, found, 1)
        fix = f"did you mean {near[0]}?" if near else "`springtide sql` lists them"
        raise InputError([Problem("sql", "question", f"{name!r} is not a question", fix)])
    return found[name]


def _read(name: str, text: str) -> Question:
    if DESCRIPTIONS in text:
        text = text.replace(DESCRIPTIONS, _described(first_sentences(read_migrations())))
    header = [line for line in re.split(r"\n(?!--)", text, maxsplit=1)[0].splitlines() if line != "--"]
    parameters = [match for line in header if (match := PARAMETER.fullmatch(line))]
    words = [line.removeprefix("-- ") for line in header if not PARAMETER.fullmatch(line) and line != "-- Parameters:"]
    taken = tuple(Parameter(m["name"], m["type"], m["default"].strip("'"), m["meaning"]) for m in parameters)
    return Question(name, words[0], " ".join(words[1:]), taken, text)


def _described(sentences: Mapping[str, str]) -> str:
    """An SQL map of them, a line each."""
    quoted = (["'" + re.sub(r"(['\\\\])", r"\\\1", text) + "'" for text in pair] for pair in sentences.items())
    return "map(\n    " + ",\n    ".join(", ".join(pair) for pair in quoted) + "\n)"
