"""`springtide validate`: each rule finds what it is for, and nothing gets past all of them or crashes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from springtide import instants
from springtide.bundles.model import parse
from springtide.bundles.validate import Context, parsed_problems
from springtide.errors import InputError
from springtide.fleet import Fleet, load_fleet
from springtide.policy import Policy

from testkit.decided import DECISIONS
from testkit.home import FLEET, Home
from testkit.home import ROUND as NOW
from testkit.published import canonical, digest, render

pytestmark = pytest.mark.usefixtures("clock")

# Breaches of each rule: the change to a good bundle of ams-1, and what the line must contain.
Change = Callable[[dict[str, Any]], Any]


def route(document: dict[str, Any], index: int, **values: object) -> None:
    document["entries"][index].update(values)


def choose(document: dict[str, Any], *changes: dict[str, Any]) -> None:
    """Clients' entries in place of the others."""
    document["entries"] = [CHOICE | change for change in changes]


BBR: dict[str, Any] = {"algorithm": "bbr", "from_bytes": 100_000}
CHOICE = {"prefix": "192.0.2.0/24", "congestion": BBR}
BROKEN: dict[str, tuple[Change, str]] = {
    "congestion is nothing": (lambda d: choose(d, {"congestion": None}), "entries[0].congestion: invalid type: null"),
    "choice with a next hop": (lambda d: choose(d, {"via": "10.0.0.1"}), "entries[0].via: unknown field"),
    "choice without a condition": (
        lambda d: choose(d, {"congestion": {"algorithm": "bbr"}}),
        "entries[0].congestion: missing field `from_bytes`",
    ),
    "every client": (lambda d: choose(d, {"prefix": "0.0.0.0/0"}), "entries[0].prefix: 0.0.0.0/0 is wider than /8"),
    "wide client": (
        lambda d: choose(d, {"prefix": "192.0.0.0/16"}),
        "192.0.0.0/16 is neither a prefix of the fleet nor an IPv4 /24",
    ),
    "client's host bits": (
        lambda d: choose(d, {"prefix": "192.0.2.1/24"}),
        "has bits set beyond its length",
    ),
    "client twice": (lambda d: choose(d, {}, {}), "entries[1].prefix: 192.0.2.0/24 occurs twice"),
    "clients unsorted": (
        lambda d: choose(d, {"prefix": "192.0.3.0/24"}, {}),
        "entries[1].prefix: 192.0.2.0/24 is out of order",
    ),
    "another algorithm": (
        lambda d: choose(d, {"congestion": BBR | {"algorithm": "reno"}}),
        "entries[0].congestion.algorithm: is 'reno', not 'bbr'",
    ),
    "negative object": (
        lambda d: choose(d, {"congestion": BBR | {"from_bytes": -1}}),
        "from_bytes: invalid value: integer `-1`",
    ),
    "huge object": (
        lambda d: choose(d, {"congestion": BBR | {"from_bytes": 10**10}}),
        "from_bytes: 10000000000 is outside 0 to",
    ),
    "text object": (
        lambda d: choose(d, {"congestion": BBR | {"from_bytes": "1"}}),
        "from_bytes: invalid type: string",
    ),
    "schema version": (lambda d: d.update(schema_version=3), "schema_version: is 3, this Springtide reads 1"),
    "true version": (lambda d: d.update(schema_version=True), "schema_version: invalid type: boolean"),
    "missing key": (lambda d: d.pop("round"), "document: missing field `round`"),
    "unknown key": (lambda d: d.update(next_hop="10.0.0.1"), "next_hop: unknown field"),
    "text window": (lambda d: route(d, 0, initcwnd="42"), "entries[0].initcwnd: invalid type: string"),
    "fractional window": (lambda d: route(d, 0, initcwnd=42.5), "entries[0].initcwnd: invalid type: floating point"),
    "entries not a list": (lambda d: d.update(entries={}), "entries: invalid type: map"),
    "unknown edge": (lambda d: d.update(edge="lax-1"), "edge: 'lax-1' is not in the fleet (rule known_edge)"),
    "edge of another PoP": (lambda d: d.update(edge="nyc-1"), "pop: is 'ams', but nyc-1 is in nyc (rule known_edge)"),
    "duplicate": (
        lambda d: d["entries"].insert(1, d["entries"][0]),
        "entries[1].prefix: 10.77.2.0/24 occurs twice",
    ),
    "unsorted": (lambda d: d["entries"].reverse(), "entries[1].prefix: 10.77.2.0/24 is out of order"),
    "default route": (lambda d: route(d, 0, prefix="0.0.0.0/0"), "entries[0].prefix: 0.0.0.0/0 is wider than /8"),
    "too wide": (lambda d: route(d, 0, prefix="10.0.0.0/8"), "entries[0].prefix: 10.0.0.0/8 is wider than"),
    "unknown prefix": (lambda d: route(d, 0, prefix="10.99.0.0/24"), "10.99.0.0/24 is not a prefix of the fleet"),
    "narrower than the fleet's": (lambda d: route(d, 0, prefix="10.77.2.0/25"), "is not a prefix of the fleet"),
    "own PoP": (lambda d: route(d, 0, prefix="10.77.1.0/24"), "belongs to the edge's own PoP ams"),
    "no prefix": (lambda d: route(d, 0, prefix="fra"), "entries[0].prefix: 'fra' is not a prefix like"),
    "host bits": (lambda d: route(d, 0, prefix="10.77.2.1/24"), "has bits set beyond its length"),
    "long form": (lambda d: route(d, 1, prefix="fd77:0002::/48"), "is not in canonical form"),
    "above cmax": (lambda d: route(d, 0, initcwnd=101), "entries[0].initcwnd: 101 is outside initcwnd.cmin = 10"),
    "below cmin": (lambda d: route(d, 0, initcwnd=9), "entries[0].initcwnd: 9 is outside initcwnd.cmin = 10"),
    "lives too long": (lambda d: d.update(expires_at=instants.show(NOW + 901)), "expires_at: "),
    "expired": (lambda d: d.update(expires_at=instants.show(NOW + 20)), "has passed (rule times)"),
    "made before its round": (lambda d: d.update(created_at=instants.show(NOW - 1)), "created_at: "),
    "made in the future": (lambda d: d.update(created_at=instants.show(NOW + 800)), "is in the future (rule times)"),
    "not an instant": (lambda d: d.update(round="today"), "round: 'today' is not an instant like"),
    "a leap second": (lambda d: d.update(created_at="2026-01-02T03:05:60Z"), "Z' is not an instant like"),
    "not a round": (lambda d: d.update(round=instants.show(NOW - 7)), "is not a multiple of round.interval_s"),
    "policy version": (lambda d: d.update(policy_version="v1"), "policy_version: 'v1' does not look like"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_rule_finds_what_it_is_for(bare_home: Home, case: str) -> None:
    change, message = BROKEN[case]
    document = json.loads(render(load_fleet(bare_home.fleet), Policy(), NOW, DECISIONS, NOW).documents["ams-1"].content)
    change(document)
    path = bare_home.path / "ams-1.json"
    # Its digest is right: only the rule refuses it.
    path.write_bytes(canonical({**document, "digest": digest(document)}))
    lines = bare_home.refused("validate", path)
    assert any(line.startswith(f"springtide: {path}: ") and message in line for line in lines), lines
    assert all("; " in line for line in lines)


def test_a_bundle_for_another_edge_is_refused(bare_home: Home) -> None:
    path = bare_home.path / "b.json"
    path.write_bytes(render(load_fleet(bare_home.fleet), Policy(), NOW, DECISIONS, NOW).documents["ams-1"].content)
    [line] = bare_home.refused("validate", path, "--edge", "ams-2")
    assert line == (f"springtide: {path}: edge: is 'ams-1', not 'ams-2' (rule for_this_edge); use the bundle of ams-2")


BROKEN_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "changed": (lambda b: b.replace(b'"initcwnd":42', b'"initcwnd":43'), "digest: does not match the content"),
    "truncated": (lambda b: b[:-20], "JSON: "),
    "empty": (lambda _: b"", "JSON: "),
    "utf-16": (lambda b: b.decode().encode("utf-16"), "JSON: "),
    "utf-16 without a mark": (lambda b: b.decode().encode("utf-16-le"), "JSON: "),
    "utf-32": (lambda b: b.decode().encode("utf-32"), "JSON: "),
    "a byte order mark": (lambda b: b"\xef\xbb\xbf" + b, "JSON: "),
    "binary": (lambda _: b"\xff\xfe\x00", "JSON: "),
    "a list": (lambda _: b"[]", "document: invalid type: sequence"),
    "repeated key": (lambda b: b[:-1] + b',"edge":"ams-2"}', "document: duplicate field `edge`"),
    "not a number": (lambda b: b.replace(b":42", b":NaN"), "JSON: expected value"),
    "deep": (lambda _: b"[" * 100_000, "invalid type: sequence"),
    "huge": (lambda b: b + b" " * 1_000_000, "file: is larger than bundle.max_bytes = 1000000"),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_files_that_are_not_bundles_are_refused_with_a_message(bare_home: Home, case: str) -> None:
    change, message = BROKEN_FILES[case]
    path = bare_home.path / "b.json"
    good = render(load_fleet(bare_home.fleet), Policy(), NOW, DECISIONS, NOW).documents["ams-1"]
    path.write_bytes(change(good.content))
    [line] = bare_home.refused("validate", path)
    assert message in line


def test_many_keys_are_refused_at_once() -> None:
    """Not in the square of their number."""
    pairs = ",".join(f'"{n}":1' for n in (*range(30_000), 29_999))
    content = f"{{{pairs}}}".encode()
    began = time.process_time()
    with pytest.raises(InputError, match="unknown field `0`"):
        parse("b.json", content)
    # Its own processor time, which is half a millisecond: nothing else on the machine counts.
    assert time.process_time() - began < 2


GOOD = render(Fleet.model_validate(yaml.safe_load(FLEET)), Policy(), NOW, DECISIONS, NOW).documents["ams-1"].content
CONTEXT = Context(Fleet.model_validate(yaml.safe_load(FLEET)), Policy(), NOW + 1)


@given(st.data())
def test_no_damage_passes_and_none_crashes(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, min(len(GOOD), start + 20)))
    middle = data.draw(
        st.binary(max_size=20) | st.sampled_from([b"\\ud800", b"1e999", b"[" * 999, b"9" * 5000, b"null"])
    )
    damaged = GOOD[:start] + middle + GOOD[end:]
    _, found = parsed_problems("b.json", damaged, CONTEXT)
    try:
        same = json.loads(damaged) == json.loads(GOOD)
    except (ValueError, RecursionError):
        same = False
    assert bool(found) is not same
    assert all("\n" not in str(problem) for problem in found)


def test_validate_reports_all_files_and_all_problems(bare_home: Home) -> None:
    documents = render(load_fleet(bare_home.fleet), Policy(), NOW, DECISIONS, NOW).documents
    good, bad = bare_home.path / "good.json", bare_home.path / "bad.json"
    good.write_bytes(documents["ams-1"].content)
    bad.write_bytes(documents["ams-1"].content.replace(b":42", b":500").replace(b"10.77.2.0/24", b"10.77.1.0/24"))
    missing = bare_home.path / "missing.json"
    lines = bare_home.refused("validate", good, bad, missing)
    assert len(lines) == 4
    assert str(good) not in "".join(lines)


def test_routes_over_the_cap_are_refused(bare_home: Home) -> None:
    bare_home.policy.write_text("bundle: {max_routes: 1}\n")
    policy = Policy.model_validate({"bundle": {"max_routes": 1}})
    path = bare_home.path / "b.json"
    path.write_bytes(render(load_fleet(bare_home.fleet), policy, NOW, DECISIONS, NOW).documents["ams-1"].content)
    [line] = bare_home.refused("validate", path)
    assert "entries: 2 with a window are over bundle.max_routes = 1 (rule size)" in line


def test_choices_over_the_cap_are_refused(bare_home: Home) -> None:
    bare_home.policy.write_text("bundle: {max_congestion: 1}\n")
    policy = Policy.model_validate({"bundle": {"max_congestion": 1}})
    clients = {"ams": [ip_network("192.0.2.0/24"), ip_network("192.0.3.0/24")]}
    path = bare_home.path / "b.json"
    rendered = render(load_fleet(bare_home.fleet), policy, NOW, DECISIONS, NOW, clients)
    path.write_bytes(rendered.documents["ams-1"].content)
    [line] = bare_home.refused("validate", path)
    assert "entries: 2 with a congestion control are over bundle.max_congestion = 1 (rule congestion_size)" in line
