"""What the engine needs of fleet.yaml: which PoP an address belongs to, which hosts count, and PoPs' regions."""

from __future__ import annotations

from springtide.fleet import Fleet
from springtide.store import Store


def publish_fleet(store: Store, fleet: Fleet) -> None:
    """Make the store match `fleet`; a fleet that has not changed costs two small reads.

    Prefixes are a longest-prefix-match dictionary, read as rows arrive; edges are `fleet_edges`, read by roll-ups;
    regions are `fleet_regions`, read by laws.
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
