"""What is written over netlink is what `ip` would have written, and what is not expressed there goes through `ip`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from deploy.ansible.plugins.module_utils.springtide_routes import (
    RULE,
    Change,
    Encoder,
    attribute,
    attributes,
    essence,
    messages_of,
    own_metric,
)
from hypothesis import given
from hypothesis import strategies as st
from testkit.edge import Edge, bundle

OWNER = "table 201 proto 201"


def own_state(edge: Edge) -> dict[str, str]:
    """What the program thinks that table 201 holds: prefix -> arguments of `ip route add`."""
    state = json.loads((edge.state_dir / "state.json").read_bytes().partition(b"\n")[2])
    routes: dict[str, str] = state["routes"]
    return routes


def calls_of_ip(edge: Edge, *arguments: str) -> list[str]:
    """Run the program; the arguments of every `ip` that it started."""
    log, real = edge.directory / "calls", shutil.which("ip")
    directory = edge.directory / "bin"
    directory.mkdir(exist_ok=True)
    program = directory / "ip"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n')
    program.chmod(0o755)
    log.write_text("")
    environment = dict(os.environ, PATH=f"{directory}:{os.environ['PATH']}")
    done = subprocess.run(
        [str(real), *edge.command(*arguments)[1:]], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


OVER_NETLINK = [
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
]
THROUGH_IP = [
    (4, "via inet6 fd00:1::2 dev up1"),
    (4, "via 192.168.0.2 mtu lock 1400"),
    (4, "via 192.168.0.2 rtt 120ms"),
    (4, "via 192.168.0.2 features ecn congctl reno"),
    (6, "via fd00:1::2 rto_min 300ms"),
]


@pytest.mark.root
@pytest.mark.parametrize(("version", "way"), OVER_NETLINK + THROUGH_IP)
def test_both_ways_write_what_ip_writes_for_the_same_arguments(edge: Edge, version: int, way: str) -> None:
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

    calls = calls_of_ip(edge, "apply", edge.write(bundle({first: 50, second: 60})))
    made = edge.picture()
    assert sum("-batch" in call for call in calls) == ((version, way) in THROUGH_IP)
    # Survey of both families; a read-back that is in doubt would make it three.
    listings = sum(call.endswith("route show table 201") for call in calls)
    assert listings == 2 + ((version, way) in THROUGH_IP)
    assert own_state(edge).keys() == {first, second}

    calls_of_ip(edge, "apply", edge.write(bundle({first: 55})))
    changed = edge.picture()
    routes = own_state(edge)
    assert routes.keys() == {first}

    calls_of_ip(edge, "apply", edge.write(bundle({})))
    assert edge.picture() == before
    metric = f" metric {own_metric(version)}" if own_metric(version) else ""
    rule = f"-{version} rule add pref 1000 lookup 201 protocol 201"
    for command in (rule, f"-{version} route add {first} {OWNER}{metric} {routes[first]}"):
        edge.ip(*command.split())
    assert edge.picture() == changed
    window = routes[first].replace("initcwnd 55", "initcwnd {}")
    edge.ip(*f"-{version} route replace {first} {OWNER}{metric} {window.format(50)}".split())
    edge.ip(*f"-{version} route add {second} {OWNER}{metric} {window.format(60)}".split())
    assert edge.picture() == made


@pytest.mark.root
def test_what_another_writes_into_the_table_is_seen_by_the_quick_read_back_too(edge: Edge) -> None:
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
        edge.ip("route", *change.split(), *OWNER.split())
        assert len(edge.status()["drift"]) == 1, change
        calls = calls_of_ip(edge, "apply", edge.write(bundle({"10.1.0.0/16": 20, "10.2.0.0/16": 30})))
        assert not [call for call in calls if "-batch" in call]
        assert edge.windows() == {"10.1.0.0/16": 20, "10.2.0.0/16": 30}, change
        assert edge.status()["in_sync"] is True, change


def interface(name: str) -> int:
    if name != "up0":
        raise OSError(name)
    return 7


@pytest.mark.parametrize(
    "rest",
    [
        "via 192.168.0.2 dev up1 scope 0 initcwnd 50",
        "via fd00::2 dev up0 scope 0 initcwnd 50",
        "via 192.168.0.2 dev up0 scope 0 initcwnd 50 nexthop via 192.168.0.3 dev up0",
        "via 192.168.0.2 dev up0 scope 0 initcwnd 50 nexthop weight 1",
        "via 192.168.0.2 dev up0 scope 0 initcwnd 50 nexthop dev up0 weight 300",
        "via 192.168.0.2 dev up0 scope 0 mtu lock 1400 initcwnd 50",
        "via 192.168.0.2 dev up0 scope 0 initcwnd 4294967296",
        "via 192.168.0.2 dev up0 scope 256 initcwnd 50",
        "via 192.168.0.2 dev up0 scope 0 realms 3 initcwnd 50",
        "via 192.168.0.2 dev",
    ],
)
def test_what_is_not_understood_is_left_to_ip(rest: str) -> None:
    assert Encoder(4, interface).messages([Change("add", "", RULE), Change("add", "10.1.0.0/16", rest)]) is None


def test_a_message_is_the_one_of_the_kernels_headers() -> None:
    change = Change("replace", "10.1.0.0/16", "via 192.168.0.2 dev up0 scope 0 initcwnd 50")
    messages = Encoder(4, interface).messages([change, change])
    assert messages is not None
    ((kind, flags, sequence, body),) = messages_of(messages[1])
    assert (kind, flags, sequence) == (24, 0x501, 1)  # RTM_NEWROUTE; REQUEST, REPLACE, CREATE
    assert list(body[:8]) == [2, 16, 0, 0, 201, 201, 0, 1]
    found = dict(attributes(body[12:]))
    assert found.keys() == {1, 4, 5, 8, 15}
    assert [int.from_bytes(found[key], sys.byteorder) for key in (4, 15)] == [7, 201]
    assert dict(attributes(found[8])) == {11: (50).to_bytes(4, sys.byteorder)}
    assert (found[1], found[5]) == (bytes([10, 1, 0, 0]), bytes([192, 168, 0, 2]))


@given(st.lists(st.tuples(st.integers(1, 60), st.binary(max_size=40))))
def test_attributes_are_read_as_they_are_written(pairs: list[tuple[int, bytes]]) -> None:
    data = b"".join(attribute(kind, value) for kind, value in pairs)
    assert len(data) % 4 == 0
    assert list(attributes(data)) == pairs


@given(st.binary(max_size=200))
def test_no_bytes_of_the_kernel_make_it_loop_or_crash(data: bytes) -> None:
    for _, _, _, body in messages_of(data):
        assert len(body) <= len(data)
    with contextlib.suppress(ValueError):
        essence(bytes(12), data)
