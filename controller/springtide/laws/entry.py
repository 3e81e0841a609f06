"""Values that connections to one destination start with, as bundles carry them: a law hands over entries, and
those of all laws for one prefix become one."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema


class _Absent:
    """A value that is either there or not: null is no value, as edges have it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(next(kind for kind in get_args(source) if kind is not type(None)))


ABSENT = _Absent()


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def optional(description: str) -> Any:
    """A field that may be missing, and then is None."""
    return Field(default=None, description=description, json_schema_extra=_without_default)


class Shape(BaseModel):
    """Part of a bundle: its fields and their types."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StartCongestion(Shape):
    """Another congestion control than the edge's default."""

    algorithm: str = Field(description="congestion control by the kernel's name for it, like bbr")
    from_bytes: int = Field(description="for connections that have had so many bytes acknowledged")
    always: Annotated[bool | None, ABSENT] = optional(
        "where the bytes cannot be waited for, it may act from the first one"
    )


class Trial(Shape):
    """Other values for a share of the connections, by chance."""

    permille: int = Field(description="of a thousand connections")
    initcwnd: Annotated[int | None, ABSENT] = optional("in place of the entry's; without, the kernel's default")
    start_rate: Annotated[int | None, ABSENT] = optional("in place of the entry's; without, no cap")
    connection_rate: Annotated[int | None, ABSENT] = optional("in place of the entry's; without, no bound")


class Entry(Shape):
    """What is missing stays the kernel's default."""

    prefix: str = Field(description="IPv4 or IPv6 prefix in its shortest form, like 10.77.2.0/24")
    initcwnd: Annotated[int | None, ABSENT] = optional("initial congestion window, segments")
    start_rate: Annotated[int | None, ABSENT] = optional(
        "this edge's part of the path's rate, bytes/s, which all that start at once share"
    )
    connection_rate: Annotated[int | None, ABSENT] = optional(
        "the most of start_rate that one connection gets, bytes/s"
    )
    congestion: Annotated[StartCongestion | None, ABSENT] = optional("another congestion control than the default")
    receive_window: Annotated[int | None, ABSENT] = optional("receive window announced at first, segments")
    trial: Annotated[Trial | None, ABSENT] = optional("other values for a share of the connections")
    default_resent: Annotated[int | None, ABSENT] = optional(
        "segments that a thousand first flights with the kernel's default were seen to send again"
    )
