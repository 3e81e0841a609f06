"""Ways in which an edge enforces its bundle, as bundles carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Any

from springtide.fleet import TenantRule, prefix_order
from springtide.laws.entry import Part
from springtide.laws.recovery.policy import RecoveryPolicy
from springtide.policy import EnforcePolicy


def own_sides(rules: Iterable[TenantRule]) -> list[Part]:
    """Sides of tenants that keep the kernel's default start, as bundles have them."""

    def order(rule: TenantRule) -> tuple[int, tuple[int, int, int]]:
        return rule.port or 0, (0, 0, 0) if rule.prefix is None else prefix_order(rule.prefix)

    found = []
    for rule in sorted((rule for rule in rules if rule.opted_out), key=order):
        found.append(Part(port=rule.port, prefix=None if rule.prefix is None else str(rule.prefix)))
    return found


def enforcement(policy: EnforcePolicy, recovery: RecoveryPolicy, opted_out: Sequence[Part] = ()) -> Part:
    """Way of enforcing that `policy` asks of an edge.

    By routes, neither a lift nor a brake nor a record nor a copy means anything. Nor can routes leave a tenant alone:
    a rule of `validate` refuses such a bundle.
    """
    left_alone = sorted(policy.excluded, key=lambda text: prefix_order(ip_network(text)))
    fields: dict[str, Any] = {"by": policy.by, "otherwise": policy.otherwise, "live": policy.live}
    if left_alone:
        fields["excluded"] = left_alone
    if policy.by == "bpf":
        if opted_out:
            fields["opted_out"] = list(opted_out)
        fields["lift_bytes"] = policy.lift_bytes
        if policy.lift_round_trips:
            fields["lift_round_trips"] = policy.lift_round_trips
        fields["brake"] = Part(
            lost_permille=policy.brake_lost_permille,
            connections=policy.brake_connections,
            half_life_s=policy.brake_half_life_s,
        )
        fields["record_permille"] = policy.record_permille
        fields["copies_permille"] = recovery.copies_permille
    return Part(**fields)
