"""The default policy as a commented policy.yaml."""

from __future__ import annotations

import json
import textwrap

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from springtide.policy.overrides import CongestionOverride, Override
from springtide.policy.whole import Policy


def default_yaml() -> str:
    """The default policy as a commented policy.yaml."""
    lines = ["# Every key is optional; these are the defaults."]
    for section_name, section in Policy.model_fields.items():
        model = section.annotation
        if section_name in _LISTS:
            lines += ["", *_LISTS[section_name]]
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"policy section {section_name} is not a model")
        lines += ["", f"# {model.__doc__}", f"{section_name}:"]
        for name, info in model.model_fields.items():
            for text in (info.description or "", f"Range: {_range(info)}.", f"Source: {_source(info)}."):
                lines += textwrap.wrap(text, width=110, initial_indent="  # ", subsequent_indent="  #   ")
            lines.append(f"  {name}: {json.dumps(info.default)}")
    return "\n".join(lines) + "\n"


_LISTS = {
    "overrides": (
        f"# {Override.__doc__}",
        "# Each item: {src: ams, dst: sin, initcwnd: 20, until: '2026-01-02T03:05:00Z', reason: planned drain};",
        "# ip_version: 4 or 6 narrows it to one, edges: [ams-1] to these edges of the src; initcwnd: null keeps the",
        "# kernel's default.",
        "overrides: []",
    ),
    "congestion_overrides": (
        f"# {CongestionOverride.__doc__}",
        "# Each item: {pop: ams, prefix: 192.0.2.0/24, algorithm: bbr, until: '2026-01-02T03:05:00Z', reason: trial};",
        "# algorithm: default keeps the kernel's.",
        "congestion_overrides: []",
    ),
}


def _source(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra["source"]) if isinstance(extra, dict) else ""


def _range(info: FieldInfo) -> str:
    limits = {kind: getattr(item, kind) for item in info.metadata for kind in ("ge", "le") if hasattr(item, kind)}
    if limits:
        return f"{limits['ge']} to {limits['le']}"
    return ", ".join(str(choice) for choice in getattr(info.annotation, "__args__", ()))
