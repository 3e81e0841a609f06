"""Operators' words, which end."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from springtide import instants
from springtide.policy.limits import CLIENT_PREFIX_LENGTH
from springtide.policy.section import Section


def _instant(text: str) -> str:
    try:
        instants.parse(text)
    except ValueError:
        what, fix = f"{text!r} is not an instant", "write it in UTC and quoted, like '2026-01-02T03:05:00Z'"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix}) from None
    return text


def _client_prefix(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen != CLIENT_PREFIX_LENGTH[network.version]:
        what, fix = f"{text!r} is no client prefix", "write an IPv4 /24 or an IPv6 /56, like 192.0.2.0/24"
        raise PydanticCustomError("springtide", "{what}; {fix}", {"what": what, "fix": fix}) from None
    return str(network)


class Override(Section):
    """An operator's word for one pair of PoPs, until an instant (Riptide V: hints of planned load changes)."""

    src: str
    dst: str
    # Of the src; None: all of them.
    edges: Annotated[list[str], Field(min_length=1)] | None = None
    ip_version: Literal[4, 6] | None = None
    initcwnd: Annotated[int, Field(ge=1, le=1000)] | None
    until: Annotated[str, AfterValidator(_instant)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def until_unix_s(self) -> int:
        return instants.parse(self.until)

    def covers(self, ip_version: int, now: int) -> bool:
        return self.ip_version in (None, ip_version) and now < self.until_unix_s


class CongestionOverride(Section):
    """An operator's word for one client prefix at one PoP, until an instant."""

    pop: str
    prefix: Annotated[str, AfterValidator(_client_prefix)]
    algorithm: Literal["bbr", "default"]
    until: Annotated[str, AfterValidator(_instant)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def until_unix_s(self) -> int:
        return instants.parse(self.until)
