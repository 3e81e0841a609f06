"""Ways in which an edge enforces its bundle, as bundles carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from springtide.fleet import TenantRule, prefix_order
from springtide.laws.entry import ABSENT, Shape, optional
from springtide.policy import EnforcePolicy
from springtide.policy.enforce import excluded


class Brake(Shape):
    """When an entry stops by itself, until a newer bundle comes."""

    lost_permille: int = Field(description="of a thousand connections, those that may lose of their first flights")
    connections: int = Field(description="not before so many have started")
    half_life_s: int = Field(description="after so many seconds a connection counts half")


class OwnSide(Shape):
    """Connections by the edge's own side of them; at least one of both."""

    port: Annotated[int | None, ABSENT] = optional("the edge's port; without, any")
    prefix: Annotated[str | None, ABSENT] = optional("of the edge's addresses; without, any")


class Enforce(Shape):
    by: Literal["routes", "bpf"]
    otherwise: Literal["routes", "default"] = Field(
        description="where the program cannot be loaded: as much as routes can, or nothing"
    )
    live: Literal["leave", "restore"] = Field(description="connections that are open when the program is withdrawn")
    excluded: list[str] = Field(default=[], description="destinations that are left alone; sorted and unique")
    opted_out: list[OwnSide] = Field(
        default=[],
        description="connections that are left alone, whatever their destination; sorted by port, then prefix; unique",
    )
    lift_bytes: int = Field(default=60_000, description="bytes acknowledged at which a start rate is lifted")
    lift_round_trips: Annotated[int | None, ABSENT] = optional("round trips after which it is; without, no bound")
    brake: Annotated[Brake | None, ABSENT] = optional("without, no entry stops by itself")
    record_permille: int = Field(
        default=0, description="of a thousand connections, those that leave a first-flight record"
    )


def own_sides(rules: Iterable[TenantRule]) -> list[OwnSide]:
    """Of tenants that keep the kernel's default start, as bundles have them."""

    def order(rule: TenantRule) -> tuple[int, tuple[int, int, int]]:
        return rule.port or 0, (0, 0, 0) if rule.prefix is None else prefix_order(rule.prefix)

    found = []
    for rule in sorted((rule for rule in rules if rule.opted_out), key=order):
        values: dict[str, Any] = {"port": rule.port, "prefix": None if rule.prefix is None else str(rule.prefix)}
        found.append(OwnSide(**{name: value for name, value in values.items() if value is not None}))
    return found


def enforcement(policy: EnforcePolicy, opted_out: Sequence[OwnSide] = ()) -> Enforce:
    """Way of enforcing that `policy` asks of an edge.

    By routes, neither a lift nor a brake nor a record means anything. Nor can routes leave a tenant alone: a rule of
    `validate` refuses such a bundle.
    """
    left_alone = excluded(policy)
    fields: dict[str, Any] = {"by": policy.by, "otherwise": policy.otherwise, "live": policy.live}
    if left_alone:
        fields["excluded"] = left_alone
    if policy.by == "bpf":
        if opted_out:
            fields["opted_out"] = list(opted_out)
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
