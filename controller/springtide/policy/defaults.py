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
        if isinstance(extra := section.json_schema_extra, dict):
            lines += ["", str(extra["commented"])]
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"policy section {section_name} is not a model")
        lines += ["", f"# {model.__doc__}", f"{section_name}:"]
        for name, info in model.model_fields.items():
            for text in (info.description or "", f"Range: {_range(info)}.", f"Source: {_source(info)}."):
                lines += textwrap.wrap(text, width=110, initial_indent="  # ", subsequent_indent="  #   ")
            lines.append(f"  {name}: {json.dumps(info.default)}")
    return "\n".join(lines) + "\n"


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
