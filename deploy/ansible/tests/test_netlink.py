"""Writes over netlink are those that `ip` would have made."""

from __future__ import annotations

import pytest
from testkit.edge import Edge

OWNER = ["table", "201", "proto", "201"]

WAYS = [
    (4, "via 192.168.0.2"),
    (4, "via 192.168.0.2 src 192.168.1.1 mtu 1400 advmss 1300 initrwnd 30 quickack 1 window 60000 reordering 5"),
    (4, "dev up1 scope link"),
    (4, "via 203.0.113.9 dev up1 onlink"),
    (4, "nexthop via 192.168.0.2 weight 3 nexthop via 192.168.1.2 weight 2"),
    (4, "nexthop dev up0 nexthop via 203.0.113.9 dev up1 onlink weight 200"),
    (4, "nhid 1"),
    (4, "nhid 7"),
    (6, "via fd00:1::2"),
    (6, "via fd00:1::2 src fd00:0::1 mtu 1400"),
    (6, "dev up0"),
    (6, "nexthop via fd00:1::2 weight 2 nexthop via fd00:0::2 weight 3"),
    (6, "nhid 1"),
    (6, "nhid 7"),
    (4, "via inet6 fd00:1::2 dev up1"),
    (4, "via 192.168.0.2 mtu lock 1400"),
    (4, "via 192.168.0.2 rtt 120ms"),
    (4, "via 192.168.0.2 features ecn congctl reno"),
    (6, "via fd00:1::2 rto_min 300ms"),
    (4, "via 192.168.0.2 congctl lock reno initrwnd 9 initcwnd 30"),
    (6, "via fd00:1::2 mtu lock 1400 hoplimit 9"),
]


def written_by_ip(edge: Edge, version: int, prefix: str, way: str, window: int) -> None:
    """A copy of a route with this way and another window, as a person would make it."""
    head, hop, hops = way.replace(" initcwnd 30", "").partition("nexthop")
    command = f"route add {prefix} {head} initcwnd {window} {hop}{hops}".split()
    edge.ip(f"-{version}", *command[:3], *OWNER, *command[3:])


@pytest.mark.root
@pytest.mark.parametrize(("version", "way"), WAYS)
def test_a_copy_is_what_ip_writes_for_the_same_words(edge: Edge, version: int, way: str) -> None:
    cover, first, second = (
        ("10.77.0.0/16", "10.77.2.0/24", "10.77.3.1/32")
        if version == 4
        else ("fd77::/32", "fd77:0:2::/48", "fd77:0:3::1/128")
    )
    gateways = ("192.168.0.2", "192.168.1.2") if version == 4 else ("fd00:0::2", "fd00:1::2")
    for number, gateway in enumerate(gateways):
        edge.ip("nexthop", "add", "id", f"{number + 1}", "via", gateway, "dev", f"up{number}")
    edge.ip("nexthop", "add", "id", "7", "group", "1,3/2,2")
    edge.ip(f"-{version}", "route", "add", cover, *way.split())
    before = edge.picture()

    assert edge.apply({first: 50, second: 60}).code == 0
    made = edge.picture()
    assert edge.apply({first: 55}).code == 0
    changed = edge.picture()
    assert edge.apply({}).code == 0
    assert edge.picture() == before

    edge.ip(*f"-{version} rule add pref 1000 lookup 201 protocol 201".split())
    written_by_ip(edge, version, first, way, 55)
    assert edge.picture() == changed
    edge.ip(f"-{version}", "route", "del", first, *OWNER)
    written_by_ip(edge, version, first, way, 50)
    written_by_ip(edge, version, second, way, 60)
    assert edge.picture() == made


@pytest.mark.root
def test_what_another_writes_into_the_table_is_seen_and_put_right(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({"10.1.0.0/16": 20, "10.2.0.0/16": 30})
    for change in (
        "replace 10.1.0.0/16 via 192.168.0.2 dev up0 initcwnd 21",
        "replace 10.1.0.0/16 via 192.168.1.2 dev up1 initcwnd 20",
        "replace 10.1.0.0/16 via 192.168.0.2 dev up0 initcwnd 20 mtu 1400",
        "replace 10.1.0.0/16 via 192.168.0.2 dev up0 initcwnd 20 src 192.168.1.1",
        "add 10.3.0.0/16 via 192.168.0.2 dev up0 initcwnd 20",
        "del 10.1.0.0/16",
    ):
        edge.ip("route", *change.split(), *OWNER)
        assert len(edge.status()["drift"]) == 1, change
        assert edge.apply({"10.1.0.0/16": 20, "10.2.0.0/16": 30}).code == 0
        assert edge.windows() == {"10.1.0.0/16": 20, "10.2.0.0/16": 30}, change
        assert edge.status()["in_sync"] is True, change
