"""A section of the policy, a key of it with its default, its range and where the default comes from, and what bounds
more than one section."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from springtide import instants
from springtide.fleet import destination_problem

# A decision older than this has expired under any policy: it bounds how far back the controller looks for the last one.
MAX_TTL_S = 86_400
# How far back decisions are read at most.
MAX_HISTORY_S = 2 * MAX_TTL_S
# The length of a client prefix, by IP version (the selective-BBR article).
CLIENT_PREFIX_LENGTH = {4: 24, 6: 56}
WRITE_CLIENT_PREFIX = "write an IPv4 /24 or an IPv6 /56, like 192.0.2.0/24"
# The largest condition on an object's size: 1 GB.
MAX_OBJECT_BYTES = 1_000_000_000


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def tunable(
    default: float | str | bool | list[str],
    description: str,
    *,
    source: str,
    ge: float | None = None,
    le: float | None = None,
    choices: str = "",
    max_length: int | None = None,
) -> Any:
    """A key; `source` is the seed, the RFC or the measurement that its default comes from. `choices`: its range in
    words, where neither bounds nor its type say it."""
    extra: dict[str, Any] = {"source": source} | ({"choices": choices} if choices else {})
    return Field(default=default, description=description, json_schema_extra=extra, ge=ge, le=le, max_length=max_length)


def items(commented: str) -> Any:
    """A list, empty by default; `commented` is the section in the default policy.yaml."""
    return Field(default_factory=list, json_schema_extra={"commented": commented})


def _checked_instant(text: str) -> str:
    try:
        instants.parse(text)
    except ValueError:
        what, fix = f"{text!r} is not an instant", "write it in UTC and quoted, like '2026-01-02T03:05:00Z'"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix}) from None
    return text


def client_prefix(text: str) -> str | None:
    """In its shortest form; None for what no bundle could name as one."""
    try:
        network = ip_network(text)
    except ValueError:
        return None
    is_client = "%" not in text and network.prefixlen == CLIENT_PREFIX_LENGTH[network.version]
    return str(network) if is_client and destination_problem(network) is None else None


def _checked_client_prefix(text: str) -> str:
    prefix = client_prefix(text)
    if prefix is None:
        what = f"{text!r} is not a client prefix"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": WRITE_CLIENT_PREFIX})
    return prefix


# UTC, like 2026-01-02T03:05:00Z.
Instant = Annotated[str, AfterValidator(_checked_instant)]
# In its shortest form.
ClientPrefix = Annotated[str, AfterValidator(_checked_client_prefix)]
