"""Parts of bundles: an entry has the values that connections to one destination start with. Laws hand over entries, and
those of all laws for one prefix become one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from springtide._core import bundle_schema


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Names of all parts' fields, and whether they are lists."""
    for name, field in schema.get("properties", {}).items():
        yield name, field["type"] == "array"
        yield from _fields(field.get("items", field))


# Fields of all parts: core/src/bundle.rs defines them, with their bounds.
_IS_LIST = dict(_fields(json.loads(bundle_schema())))


class Part:
    """An object of a bundle: its fields as attributes, those that are missing None or an empty list. springtide-core
    defines which fields each has, and judges their values."""

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - _IS_LIST.keys():
            raise TypeError(f"no part of a bundle has {', '.join(sorted(unknown))}")
        vars(self).update((name, value) for name, value in values.items() if value is not None)

    def __getattr__(self, name: str) -> Any:
        if name in _IS_LIST:
            return [] if _IS_LIST[name] else None
        raise AttributeError(f"no part of a bundle has {name}")

    def but(self, **values: Any) -> Part:
        """The same with other values."""
        return Part(**{**vars(self), **values})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and vars(self) == vars(other)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"edges share parts of bundles: make another one, by but({name}=...)")

    def __repr__(self) -> str:
        return f"Part({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def to_json(part: object) -> str:
    """Without spaces, in the order in which fields were given; their bytes are as many as in a bundle."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False, default=vars)
