"""The pure part: which next hop, which steps, whose rule."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from deploy.ansible.plugins.module_utils.springtide_routes import (
    Change,
    Clock,
    Destination,
    Index,
    KernelRoute,
    Plan,
    Snapshot,
    Way,
    batch,
    batch_line,
    difference,
    expired,
    find_next_hop,
    parse_prefix,
    parse_routes,
    parse_way,
    plan_routes,
    rule_problem,
    sort_own_table,
    with_rules,
)
from hypothesis import given
from hypothesis import strategies as st

# --- difference


def carried_out(table: dict[str, str], steps: list[Change]) -> dict[str, str]:
    """As strict as the kernel: add fails on what is there, del and replace on what is not."""
    result = dict(table)
    for step in steps:
        assert (step.prefix in result) == (step.verb != "add")
        if step.verb == "del":
            del result[step.prefix]
        else:
            result[step.prefix] = step.arguments
    return result


tables = st.dictionaries(
    st.sampled_from([f"10.{n}.0.0/16" for n in range(6)] + [f"fd0{n}::/32" for n in range(4)]),
    st.sampled_from(["dev a initcwnd 10", "dev a initcwnd 20", "via 192.0.2.1 dev b initcwnd 20"]),
)


@given(tables, tables)
def test_difference_leads_from_any_table_to_any_other(before: dict[str, str], after: dict[str, str]) -> None:
    steps = difference(before, after)
    assert carried_out(before, steps) == after
    assert len({step.prefix for step in steps}) == len(steps)
    assert (steps == []) == (before == after)


@given(tables, tables)
def test_a_rule_exists_only_while_its_routes_do(before: dict[str, str], after: dict[str, str]) -> None:
    for version in (4, 6):
        had, has = version in with_rules(before).rules, version in with_rules(after).rules
        changes = batch(with_rules(before), with_rules(after), difference(before, after), version)
        rules = [(number, change.verb) for number, change in enumerate(changes) if not change.prefix]
        if had and not has:
            assert rules == [(0, "del")], "the rule goes before the routes"
        elif has and not had:
            assert rules == [(len(changes) - 1, "add")], "the rule comes after the routes"
        else:
            assert rules == []


def test_a_lost_rule_is_put_back() -> None:
    routes = {"10.1.0.0/16": "dev a initcwnd 10"}
    [change] = batch(Snapshot(routes, ()), with_rules(routes), [], 4)
    assert batch_line(change, 4) == "rule add pref 1000 lookup 201 protocol 201"


# --- longest match, against the standard library's slow and independent one


def route(text: str, kind: str = "unicast", **changes: str | int) -> KernelRoute:
    way = parse_way("dev up0 scope 253", 4)._asdict() | changes
    return KernelRoute(parse_prefix(text), text, kind, Way(**way))


prefixes = st.builds(
    lambda network, length: str(ipaddress.ip_network((0x0A000000 | network << 20, length), strict=False)),
    st.integers(0, 15),
    st.integers(8, 32),
) | st.builds(
    lambda network, length: str(ipaddress.ip_network((0x0A000000 | network, length), strict=False)),
    st.integers(0, 15),
    st.integers(24, 32),
)


@given(st.lists(prefixes, max_size=12), prefixes)
def test_index_agrees_with_the_standard_library(table: list[str], destination: str) -> None:
    index = Index(route(text) for text in table)
    wanted = ipaddress.IPv4Network(destination)
    networks = [ipaddress.IPv4Network(text) for text in table]
    covering = sorted({n.prefixlen for n in networks if wanted.subnet_of(n)}, reverse=True)
    assert [group[0].prefix[2] for group in index.covering(parse_prefix(destination))] == covering
    inside = any(n != wanted and n.subnet_of(wanted) for n in networks)
    assert (index.first_inside(parse_prefix(destination), wanted.prefixlen + 1) is not None) == inside


def chosen(destination: str, main: list[KernelRoute], local: list[KernelRoute] | None = None) -> str:
    return find_next_hop(parse_prefix(destination), Index(main), Index(local or [])).text


def test_the_longest_route_with_the_lowest_metric_is_copied() -> None:
    default = parse_routes("default via 192.0.2.1 dev up0", 4)[0]
    main = [default, route("10.0.0.0/8"), route("10.1.0.0/16", metric=50), route("10.1.0.0/16", metric=20, head="x")]
    assert find_next_hop(parse_prefix("10.1.2.0/24"), Index(main), Index([])).way.head == "x"
    assert chosen("10.2.2.0/24", main) == "10.0.0.0/8"
    assert chosen("10.1.0.0/16", main) == "10.1.0.0/16"
    assert chosen("172.16.0.0/12", main) == "default"


def test_a_dead_route_is_passed_over_as_the_kernel_does() -> None:
    main = [route("10.1.0.0/16", dead=True), route("10.0.0.0/8")]
    assert chosen("10.1.2.0/24", main) == "10.0.0.0/8"


@pytest.mark.parametrize(
    ("main", "local", "reason"),
    [
        ([], [], "no route of the edge's own covers it"),
        ([route("10.1.2.0/25")], [], "more specific route 10.1.2.0/25"),
        ([route("10.0.0.0/8"), route("10.1.2.128")], [], "more specific route 10.1.2.128"),
        ([route("10.0.0.0/8"), route("10.1.2.7", kind="throw")], [], "more specific route 10.1.2.7"),
        ([route("10.0.0.0/8")], [route("10.1.2.3", kind="local")], "own address 10.1.2.3 lies inside"),
        ([route("10.0.0.0/8")], [route("10.1.2.0/24", kind="local")], "own address 10.1.2.0/24 lies inside"),
        ([route("10.0.0.0/8")], [route("10.0.0.0/8", kind="local")], "is the edge's own"),
        ([route("10.0.0.0/8"), route("10.1.0.0/16", kind="blackhole")], [], "10.1.0.0/16, is blackhole"),
        ([route("10.0.0.0/8"), route("10.1.0.0/16", kind="throw")], [], "10.1.0.0/16, is throw"),
        ([route("10.0.0.0/8"), route("10.0.0.0/8", narrow=True)], [], "by TOS or source"),
        ([route("10.0.0.0/8"), route("10.1.0.0/16", narrow=True)], [], "by TOS or source"),
        ([route("10.0.0.0/8"), route("10.0.0.0/8")], [], "several routes 10.0.0.0/8"),
        ([route("10.0.0.0/8", obstacle="encap, which is not copied")], [], "carries encap"),
    ],
)
def test_a_destination_that_cannot_be_served_has_a_reason(
    main: list[KernelRoute], local: list[KernelRoute], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        chosen("10.1.2.0/24", main, local)


def test_a_narrow_route_behind_the_chosen_one_does_not_matter() -> None:
    assert chosen("10.1.2.0/24", [route("10.1.0.0/16"), route("10.0.0.0/8", narrow=True)]) == "10.1.0.0/16"


@given(
    st.lists(st.tuples(prefixes, st.sampled_from(["unicast", "blackhole"])), max_size=12),
    st.lists(st.tuples(prefixes, st.sampled_from(["local", "broadcast"])), max_size=4),
    st.sets(prefixes, max_size=40),
    st.booleans(),
)
def test_destinations_share_an_answer_only_where_each_would_get_the_same(
    main: list[tuple[str, str]], local: list[tuple[str, str]], destinations: set[str], default: bool
) -> None:
    own = [route(text, kind=kind, head=f"way {number}") for number, (text, kind) in enumerate(main)]
    if default:
        own += parse_routes("default via 192.0.2.1 dev up0", 4)
    tables = Index(own), Index([route(text, kind=kind) for text, kind in local])
    wanted = [Destination(text, parse_prefix(text), 20) for text in sorted(destinations, key=parse_prefix)]
    routes, refused = {}, {}
    for destination in wanted:
        try:
            routes[destination.text] = find_next_hop(destination.prefix, *tables).way.arguments(20)
        except ValueError as reason:
            refused[destination.text] = str(reason)
    assert plan_routes(wanted, {4: tables[0]}, {4: tables[1]}) == Plan(routes, refused)


def test_one_refused_destination_does_not_hold_up_the_others() -> None:
    plan = plan_routes(
        [Destination(text, parse_prefix(text), 20) for text in ("10.1.2.0/24", "172.16.0.0/12", "fd00::/48")],
        {4: Index([route("10.0.0.0/8")])},
        {4: Index([])},
    )
    assert plan.routes == {"10.1.2.0/24": "dev up0 scope 253 initcwnd 20"}
    assert list(plan.refused) == ["172.16.0.0/12", "fd00::/48"]
    assert plan.refused["fd00::/48"] == "this host has no IPv6"


# --- what the kernel prints


@pytest.mark.parametrize(
    ("version", "line", "arguments"),
    [
        (4, "10.0.0.0/8 via 192.0.2.1 dev up0", "via 192.0.2.1 dev up0 scope 0 initcwnd 7"),
        (4, "10.0.0.1 dev via scope 253 src 192.0.2.1", "dev via scope 253 src 192.0.2.1 initcwnd 7"),
        (4, "1 10.0.0.0/8 via inet6 fe80::1 dev up0 proto 4", "via inet6 fe80::1 dev up0 scope 0 initcwnd 7"),
        (4, "default via 192.0.2.1 dev up0 onlink linkdown", "via 192.0.2.1 dev up0 onlink scope 0 initcwnd 7"),
        (
            4,
            "10.0.0.0/8 via 192.0.2.1 dev a mtu lock 1400 initcwnd 30 rto_min lock 300ms initrwnd 9 congctl lock bbr",
            "via 192.0.2.1 dev a scope 0 mtu lock 1400 rto_min 300ms initrwnd 9 congctl lock bbr initcwnd 7",
        ),
        (
            4,
            "10.0.0.0/8 proto 3 \\\tnexthop via 192.0.2.1 dev a weight 2 linkdown \\\tnexthop dev b weight 1 onlink ",
            "scope 0 initcwnd 7 nexthop via 192.0.2.1 dev a weight 2 nexthop dev b weight 1 onlink",
        ),
        (4, "10.0.0.0/8 nhid 7 via 192.0.2.1 dev a", "nhid 7 scope 0 initcwnd 7"),
        (
            6,
            "fd00::/48 via fe80::1 dev a metric 1024 expires 1700sec mtu 1400 pref medium",
            "via fe80::1 dev a mtu 1400 initcwnd 7",
        ),
        (6, "fd00::/48 nhid 7 metric 1024 pref high\\ nexthop via fe80::1 dev a weight 1", "nhid 7 initcwnd 7"),
    ],
)
def test_a_route_is_copied_with_everything_but_its_window(version: int, line: str, arguments: str) -> None:
    (read,) = parse_routes(line, version)
    assert (read.way.obstacle, read.way.arguments(7)) == ("", arguments)


@pytest.mark.parametrize(
    "line",
    [
        "10.0.0.0/8 encap mpls 100 via 192.0.2.1 dev a",
        "10.0.0.0/8 dev a realm 3",
        "10.0.0.0/8 dev a metric 17 5",
        "10.0.0.0/8 dev a features 0x2",
        "10.0.0.0/8 dev a initrwnd lock 9",
        "10.0.0.0/8 dev a rto_min 300ms",
        "10.0.0.0/8 via",
        "10.0.0.0/8 dev a metric x",
    ],
)
def test_what_is_not_understood_is_an_obstacle_not_a_guess(line: str) -> None:
    (read,) = parse_routes(line, 4)
    assert read.way.obstacle


def test_table_201_is_ours_only_where_we_would_have_written_it() -> None:
    ours = "10.1.0.0/16 dev a proto 201 scope 253 initcwnd 20"
    foreign = [
        "10.2.0.0/16 dev a proto 3 scope 253 initcwnd 20",
        "10.3.0.0/16 dev a proto 201 scope 253",
        "10.4.0.0/16 dev a proto 201 scope 253 metric 7 initcwnd 20",
        "10.5.0.0/16 tos 0x10 dev a proto 201 scope 253 initcwnd 20",
        "6 10.6.0.0/16 proto 201",
        "10.1.0.0/16 dev b proto 201 scope 253 initcwnd 20",
    ]
    table = sort_own_table("\n".join([ours, *foreign]), 4)
    assert table.routes == {"10.1.0.0/16": "dev a scope 253 initcwnd 20"}
    assert table.foreign == foreign


# --- rules

LOCAL = {"priority": 0, "src": "all", "table": "255"}
OURS = {"priority": 1000, "src": "all", "table": "201", "protocol": "201"}
MAIN = {"priority": 32766, "src": "all", "table": "254"}
DEFAULT = {"priority": 32767, "src": "all", "table": "253"}


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ([], None),
        ([OURS], None),
        ([{"priority": 500, "src": "all", "fwmark": "0x1", "table": "100"}], None),
        ([{"priority": 32800, "src": "10.0.0.1", "table": "100"}], None),
        ([{"priority": 1000, "src": "all", "l3mdev": None}], "stands where"),
        ([{"priority": 1000, "src": "all", "table": "201"}], "stands where"),
        ([OURS, {"priority": 1000, "src": "10.0.0.1", "table": "100"}], "stands where"),
        ([{"priority": 2000, "src": "10.0.0.1", "srclen": 32, "table": "100"}], "would be bypassed"),
        ([{"priority": 32764, "src": "all", "table": "254", "suppress_prefixlen": 0}], "would be bypassed"),
    ],
)
def test_our_rule_is_set_only_where_it_bypasses_nothing(extra: list[dict[str, Any]], problem: str | None) -> None:
    found = rule_problem([LOCAL, *extra, MAIN, DEFAULT], 4)
    assert (found is None) == (problem is None)
    assert problem is None or (found is not None and problem in found)


def test_without_a_lookup_of_main_there_is_nothing_to_fall_through_to() -> None:
    assert "none after 1000" in (rule_problem([LOCAL], 4) or "")


# --- expiry

APPLIED = {"expires_at": 1000, "boot_id": "this", "boottime_expires": 500.0}


@pytest.mark.parametrize(
    ("clock", "over"),
    [
        (Clock(999.0, 499.0, "this"), False),
        (Clock(1000.0, 100.0, "this"), True),
        (Clock(100.0, 500.0, "this"), True),  # the wall clock was set back; the time since boot was not
        (Clock(999.0, 9000.0, "other"), False),  # after a reboot only the wall clock is left
    ],
)
def test_routes_expire_by_whichever_clock_is_first(clock: Clock, over: bool) -> None:
    assert expired(APPLIED, clock) is over
