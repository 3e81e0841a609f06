"""How an edge enforces its bundle, as bundles of schema 2 carry it; and whether it needs one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from springtide.laws.entry import ABSENT, Shape, optional
from springtide.policy import EnforcePolicy
from springtide.policy.enforce import excluded


class Brake(Shape):
    """When an entry stops by itself, until a newer bundle comes."""

    lost_permille: int = Field(description="of a thousand connections, those that may lose of their first flights")
    connections: int = Field(description="not before so many have started")
    half_life_s: int = Field(description="after so many seconds a connection counts half")


class Enforce(Shape):
    by: Literal["routes", "bpf"] = "routes"
    otherwise: Literal["routes", "default"] = Field(
        default="default", description="where the program cannot be loaded: as much as routes can, or nothing"
    )
    live: Literal["leave", "restore"] = Field(
        default="leave", description="connections that are open when the program is withdrawn"
    )
    excluded: list[str] = Field(default=[], description="destinations that are left alone; sorted and unique")
    lift_bytes: int = Field(default=60_000, description="bytes acknowledged at which a start rate is lifted")
    lift_round_trips: Annotated[int | None, ABSENT] = optional("round trips after which it is; without, no bound")
    brake: Annotated[Brake | None, ABSENT] = optional("without, no entry stops by itself")
    record_permille: int = Field(
        default=0, description="of a thousand connections, those that leave a first-flight record"
    )


def enforcement(policy: EnforcePolicy) -> Enforce | None:
    """What `policy` asks of an edge; None where schema 1, which every edge reads, says all of it.

    By routes, neither a lift nor a brake nor a record means anything: they alone need no schema 2.
    """
    left_alone = excluded(policy)
    if policy.by == "routes" and not (left_alone or policy.congestion_always or policy.live == "restore"):
        return None
    fields: dict[str, Any] = {"by": policy.by, "otherwise": policy.otherwise, "live": policy.live}
    if left_alone:
        fields["excluded"] = left_alone
    if policy.by == "bpf":
        fields["lift_bytes"] = policy.lift_bytes
        if policy.lift_round_trips:
            fields["lift_round_trips"] = policy.lift_round_trips
        fields["brake"] = Brake(
            lost_permille=policy.brake_lost_permille,
            connections=policy.brake_connections,
            half_life_s=policy.brake_half_life_s,
        )
        fields["record_permille"] = policy.record_permille
    return Enforce(**fields)
