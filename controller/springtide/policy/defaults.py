"""The default policy as a commented policy.yaml."""

from __future__ import annotations

import json
import textwrap

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from springtide.policy.whole import Policy


def default_yaml() -> str:
    """The default policy as a commented policy.yaml."""
    lines = ["# Every key is optional; these are the defaults."]
    for section_name, section in Policy.model_fields.items():
        model = section.annotation
        if isinstance(extra := section.json_schema_extra, dict) and "commented" in extra:
            lines += ["", str(extra["commented"])]
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            lines += ["", *_key(section_name, section, "")]
            continue
        lines += ["", f"# {model.__doc__}", f"{section_name}:"]
        for name, info in model.model_fields.items():
            lines += _key(name, info, "  ")
    return "\n".join(lines) + "\n"


def _key(name: str, info: FieldInfo, indent: str) -> list[str]:
    """A key with its default, beneath what it means."""
    lines = []
    for text in (info.description or "", f"Range: {_range(info)}.", f"Source: {_source(info)}."):
        lines += textwrap.wrap(text, width=110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#   ")
    return [*lines, f"{indent}{name}: {json.dumps(info.default)}"]


def _source(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


def _range(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    if isinstance(extra, dict) and "choices" in extra:
        return str(extra["choices"])
    limits = {kind: getattr(item, kind) for item in info.metadata for kind in ("ge", "le") if hasattr(item, kind)}
    if limits:
        return f"{limits['ge']} to {limits['le']}"
    return ", ".join(str(choice) for choice in getattr(info.annotation, "__args__", ()))
