"""A section of the policy, and a key of it: its default, its range and where the default comes from."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def tunable(
    default: float | str | bool, description: str, *, source: str, ge: float | None = None, le: float | None = None
) -> Any:
    """A key; `source` is the seed, the RFC or the measurement that its default comes from."""
    return Field(default=default, description=description, json_schema_extra={"source": source}, ge=ge, le=le)
