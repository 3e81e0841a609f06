"""One JSON document for each edge: which initial window new connections use towards which prefix, which clients use
BBR, and until when.

A `Document` is a bundle together with its bytes. It is made in two places only: by `seal`, of values that are decided
here, and by `parse`, of bytes that came from elsewhere. Code that has one neither parses nor serialises it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from springtide.errors import InputError, Problem, SpringtideError
from springtide.laws.congestion.bundle import Choice
from springtide.laws.initcwnd.bundle import Route


class Bundle(BaseModel):
    """The document's shape; `validate` judges its values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    edge: str = Field(description="whose it is; an edge refuses another's")
    pop: str = Field(description="the edge's PoP")
    round: str = Field(description="the round that decided it, like 2026-01-02T03:05:00Z; an edge never goes back")
    policy_version: str = Field(description="first 12 hex digits of the SHA-256 of the effective policy")
    created_at: str = Field(description="when it was rendered, like 2026-01-02T03:05:04Z")
    expires_at: str = Field(description="from then on the edge withdraws it by itself")
    routes: list[Route] = Field(description="sorted by IP version, network address and length; unique")
    congestion: list[Choice] = Field(
        default_factory=list, description="sorted and unique as routes; every other client keeps the kernel's default"
    )
    digest: str = Field(description="sha256:<hex> over the canonical JSON of all other fields")


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
    """UTF-8, keys sorted, no spaces; routes and choices as their models or as mappings."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=vars).encode()


def digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical form of everything but the digest itself."""
    return _sha256(canonical({name: value for name, value in fields.items() if name != "digest"}))


def fields_of(bundle: Bundle) -> dict[str, Any]:
    """The fields that were set, without the digest."""
    return {name: getattr(bundle, name) for name in bundle.model_fields_set if name != "digest"}


def seal(fields: Mapping[str, Any]) -> Document:
    """A document of all fields but the digest, which is made here. The values are taken as they are: `validate` judges
    them."""
    rest = canonical(fields)
    found = _sha256(rest)
    # The digest belongs between created_at and edge. A quote within a text is escaped, and neither a route nor a choice
    # has an edge: the first `,"edge":` is the bundle's own.
    content = rest.replace(b',"edge":', f',"digest":"{found}","edge":'.encode(), 1)
    bundle = Bundle.model_construct(_fields_set={*fields, "digest"}, **fields, digest=found)
    return Document(bundle, content)


def parse(where: str, content: bytes, max_bytes: int | None = None) -> Document:
    """Bytes from elsewhere, checked against the document's shape. Raises InputError with every problem."""
    fix = "render it again with `springtide bundle`"
    if max_bytes is not None and len(content) > max_bytes:
        message = f"is larger than bundle.max_bytes = {max_bytes}"
        raise InputError([Problem(where, "file", message, "find out what made it grow before raising the limit")])
    try:
        document = json.loads(content, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
        return Document(Bundle.model_validate(document, strict=True), content)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError([Problem(where, "document", f"is not JSON: {error}", fix)]) from error
    except ValidationError as error:
        found = [Problem(where, _dotted(item["loc"]), item["msg"].lower(), fix) for item in error.errors()]
        raise InputError(found) from error
    except ValueError as error:
        raise InputError([Problem(where, "document", str(error), fix)]) from error


def read_folder(folder: Path) -> dict[str, Document]:
    """Edge -> bundle, of EDGE.json in a part of a publication. Raises SpringtideError."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = parse(str(path), path.read_bytes())
        except (OSError, InputError) as error:
            first = error.problems[0] if isinstance(error, InputError) else error
            what = f"{first.field}: {first.message}" if isinstance(first, Problem) else f"{first}"
            raise SpringtideError(f"{path}: cannot be read: {what}; publish a round again") from error
    return found


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"gives the key {twice!r} twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"holds {name}, which is not JSON")


def _dotted(keys: tuple[int | str, ...]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.lstrip(".") or "document"
