"""Which PoP an address belongs to, known to the engine as a longest-prefix-match dictionary."""

from __future__ import annotations

from springtide.fleet import Fleet
from springtide.store import Store


def publish_fleet(store: Store, fleet: Fleet) -> None:
    """Make the dictionary say what `fleet` says; a fleet that has not changed costs one small read."""
    wanted = [{"prefix": str(prefix), "pop": pop} for prefix, pop in fleet.prefixes()]
    present = store.query("select prefix, pop from fleet_prefixes order by prefix")
    if present != sorted(wanted, key=lambda row: row["prefix"]):
        store.execute("truncate table fleet_prefixes")
        store.insert("fleet_prefixes", wanted)
    store.execute("system reload dictionary fleet_pops")
