"""The contract, read from its .proto text: which fields a sample has, and as what the engine parses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from springtide.store.files import proto_file

_TYPES = {"uint32": "UInt32", "uint64": "UInt64", "int64": "Int64", "bool": "Bool", "string": "String"}


@cache
def columns() -> Mapping[str, str]:
    """The engine's type for each field of TcpSample, in the file's order; enums as their numbers."""
    text = proto_file().read_text()
    body = text[text.index("message TcpSample") : text.index("message Envelope")]
    found: dict[str, str] = {}
    for optional, kind, name in re.findall(r"^  (optional )?(\w+) (\w+) = \d+;", body, re.MULTILINE):
        engine = _TYPES.get(kind, "IPv6" if kind == "bytes" else "Int32")
        found[name] = f"Nullable({engine})" if optional else engine
    return found


@cache
def enums() -> Mapping[str, Mapping[int, str]]:
    """The names of each enum field's numbers."""
    text = proto_file().read_text()
    bodies = dict(re.findall(r"^enum (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    fields = re.findall(rf"^  (?:optional )?({'|'.join(bodies)}) (\w+) = \d+;", text, re.MULTILINE)
    return {
        name: {int(number): value for value, number in re.findall(r"^  (\w+) = (\d+);", bodies[kind], re.MULTILINE)}
        for kind, name in fields
    }
