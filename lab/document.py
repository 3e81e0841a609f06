"""A YAML file that a person wrote: its data, and the line of every key, for messages about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.errors import InputError

Keys = tuple[str | int, ...]

# A topology of 250 PoPs with a full RTT matrix is about 1 MB.
MAX_BYTES = 8 << 20
# A topology nests five deep.
MAX_DEPTH = 20


@dataclass(frozen=True)
class Document:
    """A parsed mapping. `lines` gives the 1-based line of each key path."""

    path: Path
    data: dict[Any, Any]
    lines: Mapping[Keys, int]

    def message(self, keys: Keys, message: str) -> str:
        """`file:line: field: message`, with the line of `keys` or of the nearest thing around it."""
        known = keys
        while known and known not in self.lines:
            known = known[:-1]
        return f"{self.path}:{self.lines.get(known, 1)}: {dotted(keys)}: {message}"


def dotted(keys: Keys) -> str:
    """`("pops", "ams", "prefixes", 1)` as `pops.ams.prefixes[1]`."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text or "document"


def load(path: Path) -> Document:
    """Raises InputError when the file cannot be read, is not a YAML mapping, repeats a key or uses aliases."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; give a readable file") from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES} bytes; describe a smaller lab")
    try:
        text = raw.decode()
        _refuse_traps(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        what = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{where}: document: is not readable YAML: {what}; correct it here or just above") from error
    if not isinstance(node, yaml.MappingNode) or not isinstance(data, dict):
        raise InputError(f"{path}:1: document: is not a mapping; begin with `name: ...`")
    lines: dict[Keys, int] = {}
    faults = [f"{path}:{line}: {dotted(keys)}: {message}" for keys, line, message in _walk(node, (), lines)]
    if faults:
        raise InputError("\n".join(faults))
    return Document(path, data, lines)


def _refuse_traps(path: Path, text: str) -> None:
    """An alias lets a small file stand for an endless one, and depth costs the parser quadratic time."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{path}:{line}: document: uses a YAML alias; write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InputError(f"{path}:{line}: document: nests deeper than {MAX_DEPTH}; flatten it")


def _walk(node: yaml.Node, keys: Keys, lines: dict[Keys, int]) -> Iterator[tuple[Keys, int, str]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:str":
                yield keys, line, f"the key {key.value} is not text in YAML; quote it"
                continue
            child = (*keys, key.value)
            if child in lines:
                yield child, line, f"is given twice (first on line {lines[child]}); keep one"
                continue
            lines[child] = line
            yield from _walk(value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*keys, index)] = item.start_mark.line + 1
            yield from _walk(item, (*keys, index), lines)
