"""One JSON document for each edge: the values that new connections start with towards each prefix, how the edge
enforces them, and until when.

A `Document` is a bundle together with its bytes. It is made in two places only: by `seal`, of values that are decided
here, and by `parse`, of bytes that came from elsewhere. Code that has one neither parses nor serialises it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from springtide import _core
from springtide._core import shape_problem
from springtide.errors import InputError, Problem, SpringtideError
from springtide.laws.entry import Part, to_json

SCHEMA_VERSION = 1


class Bundle(Part):
    """A document's fields; `validate` judges its values."""

    entries: Sequence[Part]

    def __eq__(self, other: object) -> bool:
        # Caches are no fields.
        return isinstance(other, Bundle) and fields_of(self) == fields_of(other)

    @cached_property
    def windows(self) -> dict[str, int]:
        """Prefix -> initial window, segments."""
        return {one.prefix: one.initcwnd for one in self.entries if one.initcwnd is not None}

    @cached_property
    def congestion(self) -> dict[str, Part]:
        """Prefix -> congestion control."""
        return {one.prefix: one.congestion for one in self.entries if one.congestion is not None}

    @property
    def by(self) -> str:
        """The way of enforcing it, routes or bpf."""
        by: str = self.enforce.by
        return by

    @property
    def empty(self) -> bool:
        """Whether it gives nothing to any connection."""
        return not self.entries


@dataclass(frozen=True, slots=True)
class Document:
    """A bundle, and its bytes: canonical where it was made here, as they were found where it was read."""

    bundle: Bundle
    content: bytes


Documents = Mapping[str, Document]


def fields_of(bundle: Bundle) -> dict[str, Any]:
    """The fields that were set, without the digest."""
    names = {"windows", "congestion", "digest"}
    return {name: value for name, value in vars(bundle).items() if name not in names}


def seal(fields: Mapping[str, Any]) -> Document:
    """A document of all fields but the digest, in canonical form with its digest. `validate` judges the values."""
    content, digest = _core.seal(to_json({**fields, "digest": ""}).encode())
    return Document(Bundle(**fields, digest=digest), content)


def parse(where: str, content: bytes) -> Document:
    """Bytes from elsewhere, checked against the document's shape. Raises InputError with the first problem."""
    if problem := shape_problem(content):
        raise InputError([Problem(where, *problem)])
    found = json.loads(content, object_hook=lambda fields: Part(**fields))
    return Document(Bundle(**vars(found)), content)


def read_folder(folder: Path, damaged: dict[Path, str] | None = None) -> dict[str, Document]:
    """Edge -> bundle, of EDGE.json in a part of a publication. Raises SpringtideError, unless there is `damaged`: then
    what cannot be read is left out, and put there with the reason."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = parse(str(path), path.read_bytes())
        except (OSError, InputError) as error:
            first = error.problems[0] if isinstance(error, InputError) else error
            what = f"{first.field}: {first.message}" if isinstance(first, Problem) else f"{first}"
            if damaged is None:
                fix = "publish a round with --force --reason TEXT"
                raise SpringtideError(f"{path}: cannot be read: {what}; {fix}") from error
            damaged[path] = what
    return found
