"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`FIX`: something does not work or will stop to. `ADVICE`: it works, with less than it could.

    `UNKNOWN`: not checked, because something before it is broken or no place to look was given.
    """

    FINE = "fine"
    ADVICE = "advice"
    UNKNOWN = "unknown"
    FIX = "fix"


@dataclass(frozen=True)
class Finding:
    """`what` on which input, and what to do about it; `todo` is empty where it is fine."""

    check: str
    verdict: Verdict
    where: str
    what: str
    todo: str = ""

    def __str__(self) -> str:
        text = f"{self.check}: {self.where}: {self.what}"
        return f"{text}; {self.todo}" if self.todo else text


def fine(check: str, where: str, what: str) -> Finding:
    return Finding(check, Verdict.FINE, where, what)


def fix(check: str, where: str, what: str, todo: str) -> Finding:
    return Finding(check, Verdict.FIX, where, what, todo)


def advice(check: str, where: str, what: str, todo: str) -> Finding:
    return Finding(check, Verdict.ADVICE, where, what, todo)


def unknown(check: str, where: str, what: str, todo: str = "") -> Finding:
    return Finding(check, Verdict.UNKNOWN, where, what, todo)
