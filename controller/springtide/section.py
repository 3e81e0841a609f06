"""Parts that the policy's sections are made of: their base, kinds of values, and what bounds more than one section."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from springtide import instants
from springtide.document import fault
from springtide.fleet import destination_problem

# A decision older than this has expired under any policy: it bounds how far back the controller looks for the last one.
MAX_TTL_S = 86_400
# The furthest back that decisions are read.
MAX_HISTORY_S = 2 * MAX_TTL_S
# The length of a client prefix, by IP version (the selective-BBR article).
CLIENT_PREFIX_LENGTH = {4: 24, 6: 56}
WRITE_CLIENT_PREFIX = "write an IPv4 /24 or an IPv6 /56, like 192.0.2.0/24"
# The largest condition on an object's size: 1 GB.
MAX_OBJECT_BYTES = 1_000_000_000


class Section(BaseModel):
    """Keys, or an item of a list. A key's docstring says what it means, where neither bounds nor its type do also its
    `Range:`, and by `Source:` the seed, the RFC or the measurement that its default comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _checked_instant(text: str) -> str:
    try:
        instants.parse(text)
    except ValueError:
        fix = "write it in UTC and quoted, like '2026-01-02T03:05:00Z'"
        raise fault(f"{text!r} is not an instant", fix) from None
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
        raise fault(f"{text!r} is not a client prefix", WRITE_CLIENT_PREFIX)
    return prefix


# UTC, like 2026-01-02T03:05:00Z.
Instant = Annotated[str, AfterValidator(_checked_instant)]
# In its shortest form.
ClientPrefix = Annotated[str, AfterValidator(_checked_client_prefix)]
# Names of edges; the whole policy's rules judge that each is there once.
Edges = Annotated[list[str], Field(min_length=1)]
