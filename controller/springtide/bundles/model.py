"""One JSON document for each edge: the values that new connections start with towards each prefix, how the edge
enforces them, and until when.

A `Document` is a bundle together with its bytes. It is made in two places only: by `seal`, of values that are decided
here, and by `parse`, of bytes that came from elsewhere. Code that has one neither parses nor serialises it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from springtide._core import shape_problem
from springtide.bundles.enforce import Enforce
from springtide.errors import InputError, Problem, SpringtideError
from springtide.laws.entry import Entry, Shape, StartCongestion

SCHEMA_VERSION = 1


class Bundle(Shape):
    """The document's shape; `validate` judges its values."""

    schema_version: Literal[1]
    edge: str = Field(description="whose it is; an edge refuses another's")
    pop: str = Field(description="the edge's PoP")
    round: str = Field(description="the round that decided it, like 2026-01-02T03:05:00Z; an edge never goes back")
    policy_version: str = Field(description="first 12 hex digits of the SHA-256 of the effective policy")
    created_at: str = Field(description="when it was rendered, like 2026-01-02T03:05:04Z")
    expires_at: str = Field(description="from then on the edge withdraws it by itself")
    digest: str = Field(description="sha256:<hex> over the canonical JSON of all other fields")

    enforce: Enforce
    entries: list[Entry] = Field(
        description="sorted by IP version, network address and length; unique; the longest match counts"
    )

    @cached_property
    def windows(self) -> dict[str, int]:
        """Prefix -> initial window, segments."""
        return {one.prefix: one.initcwnd for one in self.entries if one.initcwnd is not None}

    @cached_property
    def congestion(self) -> dict[str, StartCongestion]:
        """Prefix -> congestion control."""
        return {one.prefix: one.congestion for one in self.entries if one.congestion is not None}

    @property
    def by(self) -> str:
        """What enforces it."""
        return self.enforce.by

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


def json_schema() -> str:
    """The published JSON Schema of a bundle, as docs/reference/bundle.schema.json holds it."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | Bundle.model_json_schema(), indent=2) + "\n"


def canonical(fields: Mapping[str, Any]) -> bytes:
    """UTF-8, keys sorted, no spaces; parts as their models or as mappings. What a model was not given is left out."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_given).encode()


def digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical form of everything but the digest itself."""
    return _sha256(canonical({name: value for name, value in fields.items() if name != "digest"}))


def _given(model: Shape) -> dict[str, Any]:
    values, given = vars(model), model.model_fields_set
    # Most have all of their fields.
    return values if len(given) == len(values) else {name: values[name] for name in given}


def fields_of(bundle: Bundle) -> dict[str, Any]:
    """The fields that were set, without the digest."""
    return {name: getattr(bundle, name) for name in bundle.model_fields_set if name != "digest"}


def seal(fields: Mapping[str, Any]) -> Document:
    """A document of all fields but the digest, which is made here. The values are taken as they are: `validate` judges
    them."""
    rest = canonical(fields)
    found = _sha256(rest)
    # The digest belongs between created_at and edge. A quote within a text is escaped, and no part of a bundle has an
    # edge: the first `,"edge":` is the bundle's own.
    content = rest.replace(b',"edge":', f',"digest":"{found}","edge":'.encode(), 1)
    return Document(Bundle.model_construct(_fields_set={*fields, "digest"}, **fields, digest=found), content)


def parse(where: str, content: bytes, max_bytes: int | None = None) -> Document:
    """Bytes from elsewhere, checked against the document's shape. Raises InputError with the first problem."""
    if max_bytes is not None and len(content) > max_bytes:
        message = f"is larger than bundle.max_bytes = {max_bytes}"
        raise InputError([Problem(where, "file", message, "find out what made it grow before raising the limit")])
    if problem := shape_problem(content):
        raise InputError([Problem(where, *problem)])
    return Document(Bundle.model_validate_json(content), content)


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


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
