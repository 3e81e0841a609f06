"""What a bundle must be before an edge looks at its kernel."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from deploy.ansible.plugins.module_utils.springtide_routes import (
    MAX_BUNDLE_BYTES,
    MAX_ROUTES,
    RefusedError,
    parse_bundle,
)
from hypothesis import given
from hypothesis import strategies as st
from testkit.edge import NAME, bundle, instant, sealed

NOW = 1_767_323_222.0
GOOD = bundle({"10.77.2.0/24": 83, "10.77.3.7/32": 12, "fd77:2::/48": 40}, now=NOW)

CHOICE = {"prefix": "192.0.2.0/24", "algorithm": "bbr", "min_object_bytes": 100_000}


def encoded(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def refusal(raw: bytes, now: float = NOW) -> str:
    with pytest.raises(RefusedError) as caught:
        parse_bundle(raw, "b.json", NAME, now)
    message = str(caught.value)
    assert message.startswith("b.json: ")
    assert "; " in message, "an error must contain what to do"
    assert "\n" not in message
    assert message.isascii()
    return message


def test_a_good_bundle_is_read_whole() -> None:
    read = parse_bundle(encoded(GOOD), "b.json", NAME, NOW)
    assert [(route.text, route.initcwnd) for route in read.routes] == [
        ("10.77.2.0/24", 83),
        ("10.77.3.7/32", 12),
        ("fd77:2::/48", 40),
    ]
    assert (instant(read.round), instant(read.created_at)) == (GOOD["round"], GOOD["created_at"])
    assert (read.edge, read.pop, read.digest) == (NAME, "ams", GOOD["digest"])


def test_congestion_control_is_read_where_a_bundle_has_it() -> None:
    assert parse_bundle(encoded(GOOD), "b.json", NAME, NOW).congestion == ()
    document = sealed(
        {**GOOD, "congestion": [CHOICE, CHOICE | {"prefix": "2001:db8:0:100::/56", "algorithm": "cubic"}]}
    )
    read = parse_bundle(encoded(document), "b.json", NAME, NOW)
    assert [(choice.text, choice.algorithm, choice.min_object_bytes) for choice in read.congestion] == [
        ("192.0.2.0/24", "bbr", 100_000),
        ("2001:db8:0:100::/56", "cubic", 100_000),
    ]
    assert read.raw == encoded(document)
    # The digest covers it: it cannot be taken out.
    altered = {name: value for name, value in document.items() if name != "congestion"}
    assert "digest: does not match" in refusal(encoded(altered))


def test_layout_of_the_json_does_not_matter_only_its_content_does() -> None:
    assert parse_bundle(json.dumps(GOOD, indent=2).encode() + b"\n", "b.json", NAME, NOW).digest == GOOD["digest"]


def test_an_empty_bundle_is_good() -> None:
    assert parse_bundle(encoded(bundle({}, now=NOW)), "b.json", NAME, NOW).routes == ()


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"schema_version": 2}, "schema_version", "reads 1"),
        ({"schema_version": True}, "schema_version", "reads 1"),
        ({"edge": "ams-2"}, "edge", "is for ams-2, this is ams-1"),
        ({"edge": "../ams-1"}, "edge", "does not look like"),
        ({"edge": ["ams-1"]}, "edge", "does not look like"),
        ({"pop": "AMS"}, "pop", "does not look like"),
        ({"policy_version": "12"}, "policy_version", "does not look like"),
        ({"policy_version": 123456789012}, "policy_version", "does not look like"),
        ({"round": "2026-01-02 03:05:00"}, "round", "is not an instant"),
        ({"round": 1767323100}, "round", "is not an instant"),
        ({"round": instant(NOW + 2 * 3600)}, "round", "after created_at"),
        ({"created_at": "2026-13-02T03:05:00Z"}, "created_at", "month"),
        ({"created_at": instant(NOW + 301), "expires_at": instant(NOW + 600)}, "created_at", "in the future"),
        ({"expires_at": instant(NOW)}, "expires_at", "not after created_at"),
        ({"expires_at": instant(NOW + 8 * 86400)}, "expires_at", "more than"),
        ({"created_at": instant(NOW - 600), "expires_at": instant(NOW - 7)}, "expires_at", "expired 7 s ago"),
        ({"congestion": None}, "congestion", "is not a list"),
        ({"congestion": [None]}, "congestion[0]", "exactly the fields"),
        ({"congestion": [{"prefix": "192.0.2.0/24", "algorithm": "bbr"}]}, "congestion[0]", "exactly the fields"),
        ({"congestion": [CHOICE | {"via": "x"}]}, "congestion[0]", "exactly the fields"),
        ({"congestion": [CHOICE | {"prefix": 7}]}, "congestion[0].prefix", "7 is not a prefix"),
        ({"congestion": [CHOICE | {"prefix": "192.0.2.1/24"}]}, "congestion[0].prefix", "beyond its length"),
        ({"congestion": [CHOICE | {"prefix": "0.0.0.0/0"}]}, "congestion[0].prefix", "neither an IPv4 /24 nor"),
        ({"congestion": [CHOICE | {"prefix": "2001:db8::/48"}]}, "congestion[0].prefix", "nor an IPv6 /56"),
        ({"congestion": [CHOICE, CHOICE]}, "congestion[1].prefix", "occurs twice"),
        ({"congestion": [CHOICE, CHOICE | {"prefix": "192.0.1.0/24"}]}, "congestion[1].prefix", "out of order"),
        ({"congestion": [CHOICE | {"algorithm": "../bbr"}]}, "congestion[0].algorithm", "no name of"),
        ({"congestion": [CHOICE | {"algorithm": "b" * 16}]}, "congestion[0].algorithm", "no name of"),
        ({"congestion": [CHOICE | {"min_object_bytes": True}]}, "congestion[0].min_object_bytes", "whole number"),
        ({"congestion": [CHOICE | {"min_object_bytes": -1}]}, "congestion[0].min_object_bytes", "whole number"),
        ({"routes": {}}, "routes", "is not a list"),
        ({"routes": [["10.0.0.0/8", 10]]}, "routes[0]", "exactly the fields"),
        ({"routes": [{"prefix": "10.0.0.0/8"}]}, "routes[0]", "exactly the fields"),
        ({"routes": [{"prefix": "10.0.0.0/8", "initcwnd": 9, "via": "x"}]}, "routes[0]", "exactly the fields"),
        ({"surprise": 1}, "'surprise'", "is not a field"),
        ({"\u202e\n": 1}, r"'\u202e\n'", "is not a field"),
    ],
)
def test_each_field_is_checked_and_named(changes: dict[str, Any], field: str, problem: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    message = refusal(encoded(sealed(body | changes)))
    assert message.startswith(f"b.json: {field}: ")
    assert problem in message


@pytest.mark.parametrize("field", sorted(GOOD))
def test_no_field_may_be_missing(field: str) -> None:
    document = {key: value for key, value in GOOD.items() if key != field}
    if field != "digest":
        document = sealed({key: value for key, value in document.items() if key != "digest"})
    assert refusal(encoded(document)).startswith(f"b.json: {field}: is missing")


@pytest.mark.parametrize(
    "prefix",
    [
        "0.0.0.0/0",
        "::/0",
        "0.0.0.0/1",
        "128.0.0.0/1",
        "10.0.0.0/7",
        "2000::/3",
        "127.0.0.0/8",
        "224.0.0.0/4",
        "240.0.0.0/8",
        "169.254.0.0/16",
        "ff02::/16",
        "fe80::/64",
        "::1/128",
        "::ffff:10.0.0.0/104",
        "10.77.2.1/24",
        "10.77.2.0/33",
        "10.77.2.0/024",
        "10.77.2.0/-1",
        "10.77.2.0/٢٤",
        "10.77.2.0",
        "10.77.02.0/24",
        "10.77.2/24",
        "FD77:2::/48",
        "fd77:2:0::/48",
        "fd77:2::%eth0/48",
        "default",
        "",
        "10.77.2.0/24 via 192.0.2.1",
        "10.77.2.0/24\nflush",
        "\x00",
        None,
        7,
        ["10.0.0.0/8"],
    ],
)
def test_a_destination_that_every_edge_refuses(prefix: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    message = refusal(encoded(sealed(body | {"routes": [{"prefix": prefix, "initcwnd": 10}]})))
    assert message.startswith("b.json: routes[0].prefix: ")


@pytest.mark.parametrize("initcwnd", [0, -1, 1001, 10**30, 10.0, 1e400, True, "10", None, []])
def test_a_window_out_of_bounds(initcwnd: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    document = body | {"routes": [{"prefix": "10.0.0.0/8", "initcwnd": initcwnd}]}
    if initcwnd == 1e400:  # Infinity in canonical form; a sender could write 1e400, which means the same
        refusal(encoded(sealed(document)).replace(b"Infinity", b"1e400"))
    else:
        assert "routes[0].initcwnd: " in refusal(encoded(sealed(document)))


@pytest.mark.parametrize("initcwnd", [1, 1000])
def test_the_bounds_themselves_are_good(initcwnd: int) -> None:
    document = bundle({"10.0.0.0/8": initcwnd}, now=NOW)
    assert parse_bundle(encoded(document), "b.json", NAME, NOW).routes[0].initcwnd == initcwnd


@pytest.mark.parametrize(
    ("prefixes", "problem"),
    [
        (["10.2.0.0/16", "10.1.0.0/16"], "out of order"),
        (["10.1.0.0/24", "10.1.0.0/16"], "out of order"),
        (["fd00::/48", "10.1.0.0/16"], "out of order"),
        (["10.1.0.0/16", "10.1.0.0/16"], "occurs twice"),
    ],
)
def test_routes_are_sorted_and_unique(prefixes: list[str], problem: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    routes = [{"prefix": prefix, "initcwnd": 10} for prefix in prefixes]
    message = refusal(encoded(sealed(body | {"routes": routes})))
    assert message.startswith("b.json: routes[1].prefix: ")
    assert problem in message


def test_number_of_routes_and_size_are_capped() -> None:
    routes = {f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/32": 10 for i in range(MAX_ROUTES + 1)}
    assert f"more than the {MAX_ROUTES}" in refusal(encoded(bundle(routes, now=NOW)))
    assert refusal(b" " * (MAX_BUNDLE_BYTES + 1)).startswith("b.json: size: ")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"edge":' * 50_000,
        b'{"schema_version":' + b"9" * 10_000 + b"}",
        b'{"edge":"\\ud800"}',
    ],
)
def test_what_is_not_a_json_object_is_refused_not_a_crash(raw: bytes) -> None:
    refusal(raw)


@given(st.data())
def test_a_truncated_bundle_is_refused(data: st.DataObject) -> None:
    raw = encoded(GOOD)
    refusal(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(st.data())
def test_a_bundle_with_one_byte_altered_is_refused(data: st.DataObject) -> None:
    raw = bytearray(encoded(GOOD))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[position]))
    refusal(bytes(raw))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(set(GOOD) - {"digest"})), _JSON)
def test_any_value_anywhere_is_good_or_a_refusal(field: str, value: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    try:
        document = sealed(body | {field: value})
    except UnicodeEncodeError:
        return
    with contextlib.suppress(RefusedError):  # any other exception fails the test
        parse_bundle(encoded(document), "b.json", NAME, NOW)


@pytest.mark.parametrize(
    ("hours", "problem"), [(2, "it expired 6600 s ago"), (-2, "in the future of this edge's clock")]
)
def test_an_edge_whose_clock_is_two_hours_off_refuses_bundles(hours: int, problem: str) -> None:
    raw = json.dumps(bundle({"10.0.0.0/24": 20}, now=NOW)).encode()
    with pytest.raises(RefusedError, match=problem):
        parse_bundle(raw, "ams-1.json", "ams-1", NOW + 3600 * hours)
