"""Parts that all operators' overrides share: each precedes what a law decides, until an instant, for a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import AfterValidator, Field

from springtide import instants
from springtide.document import Document, fault
from springtide.errors import Problem
from springtide.fleet import NAME, parse_prefix
from springtide.section import WRITE_CLIENT_PREFIX, Instant, Section, client_prefix

Why = Annotated[str, Field(min_length=1, max_length=200)]


class Word(Section):
    """An operator's word."""

    until: Instant
    reason: Why

    @property
    def until_unix_s(self) -> int:
        return instants.parse(self.until)


def _checked_target(text: str) -> str:
    found = text if NAME.fullmatch(text) else client_prefix(text)
    if found is None:
        raise fault(f"{text!r} is neither a PoP's name nor a client prefix", f"name a PoP, or {WRITE_CLIENT_PREFIX}")
    return found


class PathWord(Word):
    """An operator's word for one PoP's connections to another, or to one client prefix."""

    src: str
    # A PoP's name, or a client prefix in its shortest form.
    to: Annotated[str, AfterValidator(_checked_target)]
    ip_version: Literal[4, 6] | None = None

    def covers(self, ip_version: int, now_unix_s: int) -> bool:
        """Tell whether it is in force for this version; a client prefix has one."""
        prefix = parse_prefix(self.to)
        named = (self.ip_version, prefix.version if prefix is not None else None)
        return all(one in (None, ip_version) for one in named) and now_unix_s < self.until_unix_s


class Covering(Protocol):
    """A word that says for which IP versions it is in force, and when."""

    src: str

    def covers(self, ip_version: int, now: int, /) -> bool: ...


W = TypeVar("W", bound=Covering)
# Source PoP, destination, IP version.
Path = tuple[bytes, bytes, int]


def in_force(words: Iterable[W], now_unix_s: int, to: str = "to") -> dict[Path, W]:
    """The word that counts for each path: the first in the file. `to` is the field that names the destination."""
    found: dict[Path, W] = {}
    for one in words:
        for version in (4, 6):
            if one.covers(version, now_unix_s):
                found.setdefault((one.src.encode(), getattr(one, to).encode(), version), one)
    return found


def contradictions(document: Document, section: str, words: Sequence[PathWord]) -> Iterator[Problem]:
    """Keys of one word that contradict each other."""
    for index, one in enumerate(words):
        prefix = parse_prefix(one.to)
        if prefix is not None and one.ip_version not in (None, prefix.version):
            message = f"is {one.ip_version}, and {one.to} is of IPv{prefix.version}"
            yield document.problem((section, index, "ip_version"), message, "leave it out")
        if one.src == one.to:
            yield document.problem((section, index, "to"), "is also the src", "name another PoP")
