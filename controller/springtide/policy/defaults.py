"""The default policy as a commented policy.yaml."""

from __future__ import annotations

import json
import textwrap
from inspect import cleandoc
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from springtide.policy.whole import Policy


def default_yaml() -> str:
    """The default policy as a commented policy.yaml."""
    lines = ["# Every key is optional; these are the defaults."]
    for name, section in Policy.model_fields.items():
        is_list = get_origin(section.annotation) is list
        model = get_args(section.annotation)[0] if is_list else section.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            lines += ["", *_key(name, section, "")]
            continue
        lines += ["", *(f"# {line}" for line in cleandoc(model.__doc__ or "").splitlines())]
        lines.append(f"{name}: []" if is_list else f"{name}:")
        for key, info in {} if is_list else model.model_fields.items():
            lines += _key(key, info, "  ")
    return "\n".join(lines) + "\n"


def _key(name: str, info: FieldInfo, indent: str) -> list[str]:
    """A key with its default, beneath what its docstring says and its range."""
    meaning, _, source = " ".join((info.description or "").split()).partition(" Source: ")
    meaning, _, words = meaning.partition(" Range: ")
    lines = []
    for text in (meaning, f"Range: {words or _range(info)}", f"Source: {source}"):
        lines += textwrap.wrap(text, width=110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ")
    return [*lines, f"{indent}{name}: {json.dumps(info.default)}"]


def _range(info: FieldInfo) -> str:
    limits = {kind: getattr(item, kind) for item in info.metadata for kind in ("ge", "le") if hasattr(item, kind)}
    if limits:
        return f"{limits['ge']} to {limits['le']}."
    return ", ".join(str(choice) for choice in getattr(info.annotation, "__args__", ())) + "."
