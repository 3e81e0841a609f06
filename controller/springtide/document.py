"""YAML files that people write: plain data, and the line of every key and item for messages about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from springtide.errors import InputError, Problem

Keys = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

# A fleet of 250 PoPs with 100,000 edges is about 8 MB of YAML.
MAX_BYTES = 32 << 20
# Ours nest four deep; the composer recurses.
MAX_DEPTH = 20

# Characters that are shown of a key, and of what is said of a value: messages are one line that can be read.
MAX_SHOWN_KEY, MAX_SHOWN = 100, 500

MAPPING_TYPES = ("dict_type", "model_type", "model_attributes_type")


@dataclass(frozen=True)
class Document:
    """A parsed YAML mapping. `lines` gives the 1-based line of each key path."""

    path: Path
    data: dict[Any, Any]
    lines: Mapping[Keys, int] = field(repr=False)

    def line(self, keys: Keys) -> int:
        """The line of `keys`, or of the nearest thing around it that the file does have."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys, 1)

    def problem(self, keys: Keys, message: str, fix: str) -> Problem:
        return Problem(f"{self.path}:{self.line(keys)}", dotted(keys), _shortened(message, MAX_SHOWN), fix)

    def not_above(self, low_keys: Keys, low: float, high_keys: Keys, high: float) -> Iterator[Problem]:
        """A problem where one key's value is above another's; reported at the key that the file has."""
        if low > high:
            keys = low_keys if low_keys in self.lines else high_keys
            message = f"{dotted(low_keys)} = {low} is above {dotted(high_keys)} = {high}"
            yield self.problem(keys, message, f"lower {dotted(low_keys)} or raise {dotted(high_keys)}")


def fault(what: str, fix: str) -> PydanticCustomError:
    """Error that a model's validator raises, as `validate` takes it."""
    return PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix})


class _Loader(yaml.SafeLoader):
    """Plain data of one document, in one pass.

    Raises InputError for aliases, which make a small file expand without bound, and for depth, which would exhaust the
    composer's recursion. A value that is tagged or is not what it seems to be raises it too: an impossible date,
    `!!bool maybe`, too many digits."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self.path, self.depth = path, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise self.refused(mark, "uses a YAML alias", "write the value out")
        nests = self.check_event(yaml.CollectionStartEvent)
        self.depth += nests
        if self.depth > MAX_DEPTH:
            raise self.refused(mark, f"nests deeper than {MAX_DEPTH}", "flatten it")
        node = super().compose_node(parent, index)
        self.depth -= nests
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
            message = f"holds an impossible value ({_shortened(str(error), MAX_SHOWN)})"
            raise self.refused(node.start_mark, message, "quote it") from error

    def refused(self, mark: yaml.Mark, message: str, fix: str) -> InputError:
        return InputError([Problem(f"{self.path}:{mark.line + 1}", "document", message, fix)])


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def dotted(keys: Keys) -> str:
    """`("pops", "ams", "prefixes", 1)` as `pops.ams.prefixes[1]`."""
    text = ""
    for key in keys:
        # A key may hold anything that YAML can quote, line breaks too: messages are one line.
        shown = _shortened(str(key) if str(key).isprintable() else repr(key), MAX_SHOWN_KEY)
        text += f"[{key}]" if isinstance(key, int) else f".{shown}" if text else shown
    return text or "document"


def load(path: Path) -> Document:
    """Read one YAML mapping; an empty file is an empty mapping.

    Raises InputError when the file cannot be read, is not YAML, is not a mapping, repeats a key or uses aliases.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            [Problem(str(path), "file", f"cannot be read: {error.strerror}", "give a readable file")]
        ) from error
    if len(raw) > MAX_BYTES:
        raise InputError([Problem(str(path), "file", f"is larger than {MAX_BYTES} bytes", "make it smaller")])
    lines: dict[Keys, int] = {}
    try:
        loader = _Loader(path, raw.decode("utf-8"))
        node = loader.get_single_node()
        if node is None:
            return Document(path, {}, {})
        # Before the values are built: that merges keys.
        problems = list(_walk(path, node, (), lines))
        if problems:
            raise InputError(problems)
        data = loader.construct_document(node)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = Problem(f"{path}:{line}", "document", "is not UTF-8", "save it as UTF-8")
        raise InputError([problem]) from error
    except yaml.YAMLError as error:
        raise InputError([_malformed(path, error)]) from error
    if not isinstance(data, dict):
        raise loader.refused(node.start_mark, "is not a mapping", "begin with `key: value`")
    return Document(path, data, lines)


def validate(document: Document, model: type[Model]) -> Model:
    """The document as `model`; raises InputError with every field that is wrong."""
    try:
        return model.model_validate(document.data, strict=True)
    except ValidationError as error:
        raise InputError([_problem(document, model, item) for item in error.errors()]) from error


def _malformed(path: Path, error: yaml.YAMLError) -> Problem:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    what = " ".join(
        str(getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed").split()
    )
    return Problem(where, "document", f"is not YAML: {what}", "correct the syntax here or just above")


def _walk(path: Path, node: yaml.Node, keys: Keys, lines: dict[Keys, int]) -> Iterator[Problem]:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag != "tag:yaml.org,2002:str":
                scalar = isinstance(key_node, yaml.ScalarNode)
                name = _shortened(key_node.value, MAX_SHOWN_KEY) if scalar else "(not a scalar)"
                fix = f"quote it: '{name}'" if scalar else "use a plain name"
                yield Problem(f"{path}:{line}", dotted(keys), f"the key {name} is not text in YAML", fix)
                continue
            child = (*keys, key_node.value)
            if child in lines:
                fix = "keep one of the two"
                yield Problem(f"{path}:{line}", dotted(child), f"is given twice (first on line {lines[child]})", fix)
                continue
            lines[child] = line
            yield from _walk(path, value_node, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*keys, index)] = item.start_mark.line + 1
            yield from _walk(path, item, (*keys, index), lines)


def _problem(document: Document, model: type[BaseModel], error: ErrorDetails) -> Problem:
    """One pydantic error in our form."""
    keys: Keys = tuple(key for key in error["loc"] if key != "[key]")
    context = error.get("ctx", {})
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _fields(model, keys[:-1])
        close = difflib.get_close_matches(str(keys[-1]), known, n=1)
        fix = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"
        return document.problem(keys, "unknown key", fix)
    if kind == "missing":
        return document.problem(keys, "is missing", "add it")
    if kind == "springtide":
        return document.problem(keys, context["what"], context["fix"])
    message = "should be a mapping" if kind in MAPPING_TYPES else re.sub(r"^Input should", "should", error["msg"])
    try:
        shown = repr(error["input"])
    except ValueError:  # 0xfff... may have more digits than Python writes
        shown = "a number of too many digits"
    return document.problem(keys, f"is {_shortened(shown, 60)}", message)


def _fields(model: type[BaseModel], keys: Keys) -> list[str]:
    """The names that `model` knows at `keys`, walking through nested models and mappings of models."""
    current: Any = model
    for key in keys:
        if isinstance(current, type) and issubclass(current, BaseModel):
            info = current.model_fields.get(str(key))
            current = info.annotation if info else None
        else:
            arguments = getattr(current, "__args__", ())
            current = arguments[-1] if arguments else None
    is_model = isinstance(current, type) and issubclass(current, BaseModel)
    return list(current.model_fields) if is_model else []
