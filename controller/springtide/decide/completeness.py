"""Which PoPs' newest round can be trusted: where too much is missing, the last decisions stand."""

from __future__ import annotations

from collections.abc import Iterable

from springtide.observe.rounds import Completeness


def incomplete_pops(pops: Iterable[str], hosts: Iterable[Completeness], least: float) -> dict[str, float]:
    """Those of `pops` of whose expected rows the round has a share below `least`, and that share.

    A PoP none of whose hosts was heard in the round or the one before has a share of 0. A host whose clock is wrong is
    heard in some other round, and so is missing here.
    """
    seen: dict[str, int] = {}
    expected: dict[str, int] = {}
    for host in hosts:
        seen[host.pop] = seen.get(host.pop, 0) + min(host.rows_seen, host.rows_expected)
        expected[host.pop] = expected.get(host.pop, 0) + host.rows_expected
    shares = {pop: seen[pop] / expected[pop] if expected.get(pop) else 0.0 for pop in pops}
    return {pop: share for pop, share in sorted(shares.items()) if share < least}
