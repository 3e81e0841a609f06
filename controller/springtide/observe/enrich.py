"""Facts of fleet.yaml that the engine needs: which PoP an address belongs to, which hosts count, regions, tenants."""

from __future__ import annotations

from ipaddress import IPv6Address

from springtide.fleet import Fleet, Prefix, TenantRule
from springtide.store import Row, Store


def publish_fleet(store: Store, fleet: Fleet) -> None:
    """Make the store match `fleet`; a fleet that has not changed costs two small reads.

    Prefixes are a longest-prefix-match dictionary, read as rows arrive; edges are `fleet_edges`, read by roll-ups;
    regions are `fleet_regions`, read by laws; tenants are `fleet_tenants`, read by roll-ups.
    """
    prefixes = [{"prefix": str(prefix), "pop": pop} for prefix, pop in fleet.prefixes()]
    present = store.query("select prefix, pop from fleet_prefixes order by prefix")
    if present != sorted(prefixes, key=lambda row: row["prefix"]):
        store.execute("truncate table fleet_prefixes")
        store.insert("fleet_prefixes", prefixes)
    store.execute("system reload dictionary fleet_pops")
    edges = [{"edge": edge, "pop": pop} for edge, pop in sorted(fleet.edges().items())]
    if store.query("select edge, pop from fleet_edges order by edge") != edges:
        [row] = store.query("select max(revision) as newest from fleet_edge_revisions")
        # A fleet without edges has a revision too.
        rows = [{"revision": row["newest"] + 1, **edge} for edge in edges or [{"edge": "", "pop": ""}]]
        store.insert("fleet_edge_revisions", rows)
    regions = [{"pop": name, "region": pop.region} for name, pop in sorted(fleet.pops.items())]
    if store.query("select pop, region from fleet_regions order by pop") != regions:
        [row] = store.query("select max(revision) as newest from fleet_region_revisions")
        store.insert("fleet_region_revisions", [{"revision": row["newest"] + 1, **region} for region in regions])
    tenants = sorted(map(_tenant_row, fleet.tenant_rules()), key=lambda row: tuple(map(str, row.values())))
    present = store.query("select tenant, port, first_ip, last_ip, opted_out from fleet_tenants")
    if sorted(present, key=lambda row: tuple(map(str, row.values()))) != tenants:
        [row] = store.query("select max(revision) as newest from fleet_tenant_revisions")
        nobody = {"tenant": "", "port": 0, "first_ip": "::", "last_ip": "::", "opted_out": False}
        rows = [{"revision": row["newest"] + 1, **tenant} for tenant in tenants or [nobody]]
        store.insert("fleet_tenant_revisions", rows)


def _tenant_row(rule: TenantRule) -> Row:
    first, last = _range(rule.prefix)
    return {
        "tenant": rule.tenant,
        "port": rule.port or 0,
        "first_ip": first,
        "last_ip": last,
        "opted_out": rule.opted_out,
    }


def _range(prefix: Prefix | None) -> tuple[str, str]:
    """Its first and last address as the engine shows them: IPv4 mapped."""
    if prefix is None:
        return "::", str(IPv6Address((1 << 128) - 1))
    first, last = prefix.network_address, prefix.broadcast_address
    mapped = "::ffff:" if prefix.version == 4 else ""
    return f"{mapped}{first}", f"{mapped}{last}"
