"""The errors that operators see. Standard library only: Ansible's plugins link to this file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def printable(text: str) -> str:
    """`text` on one line, for a terminal: a character that is not printable is shown as Python's escape."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class SpringtideError(Exception):
    """A failure at run time: one line with what failed, on which input, and what to do. Exit code 1."""

    exit_code = 1


class ThinInputError(SpringtideError):
    """Too little of a round arrived: the complete PoPs were decided, elsewhere the last decisions stay in force. Exit
    code 3."""

    exit_code = 3


class PausedError(SpringtideError):
    """An operator has paused publishing; nothing was changed. Exit code 5."""

    exit_code = 5


class AdviceOnlyError(PausedError):
    """The policy's mode is advise: nothing is pushed, and nothing was changed. Exit code 5."""


class StoreError(SpringtideError):
    """The store could not be opened, or refused a statement; `code` is ClickHouse's own, 0 when it has none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Problem:
    """One fault of an input: `where` is a file, with its line where it has lines; `field` a dotted path in it."""

    where: str
    field: str
    message: str
    fix: str

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.field}: {self.message}; {self.fix}")


class InputError(SpringtideError):
    """Bad input or usage; nothing was changed. Carries every problem that was found. Exit code 2."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem | str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
