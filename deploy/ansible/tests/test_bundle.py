"""Demands on a bundle before an edge looks at its kernel."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.edge import NAME, PROGRAM, Outcome, bundle, enforcement, instant, sealed

MAX_BUNDLE_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 100_000
NOW = 1_767_323_222.0
GOOD = bundle({"10.77.2.0/24": 83, "10.77.3.7/32": 12, "fd77:2::/48": 40}, now=NOW)


# Each example is a process.
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def encoded(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundle") / "b.json"


def verified(place: Path, raw: bytes, now: float = NOW) -> Outcome:
    place.write_bytes(raw)
    command = [str(PROGRAM), "verify", "b.json", "--unsigned", "--edge", NAME, "--at", str(now), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=place.parent)
    warning, _, errors = done.stderr.partition("\n")
    assert "no signature is checked" in warning
    return Outcome(done.returncode, json.loads(done.stdout), errors)


def refusal(place: Path, raw: bytes, now: float = NOW) -> str:
    outcome = verified(place, raw, now)
    assert outcome.code in (2, 12, 13, 15), outcome
    message = str(outcome.report["error"])
    assert outcome.errors == f"{message}\n", "one line"
    assert message.startswith("b.json: ")
    assert "; " in message, "an error must contain what to do"
    assert message.isascii()
    return message


def test_a_good_bundle_is_read_whole(place: Path) -> None:
    outcome = verified(place, encoded(GOOD))
    assert outcome.code == 0
    counts = {"entries": 3, "windows": 3, "start_rates": 0, "congestion_controls": 0, "signed": False}
    kept = ("edge", "pop", "round", "created_at", "expires_at", "policy_version", "digest")
    expected = {key: GOOD[key] for key in kept} | counts
    assert {key: outcome.report[key] for key in expected} == expected


def test_layout_of_the_json_does_not_matter_only_its_content_does(place: Path) -> None:
    assert verified(place, json.dumps(GOOD, indent=2).encode() + b"\n").report["digest"] == GOOD["digest"]


def test_an_empty_bundle_is_good(place: Path) -> None:
    assert verified(place, encoded(bundle({}, now=NOW))).report["entries"] == 0


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"schema_version": 3}, "schema_version", "reads 1"),
        ({"schema_version": True}, "schema_version", "invalid type: boolean `true`"),
        ({"edge": "ams-2"}, "edge", "is for ams-2, this is ams-1"),
        ({"edge": "../ams-1"}, "edge", "does not look like"),
        ({"edge": ["ams-1"]}, "edge", "invalid type: sequence"),
        ({"pop": "AMS"}, "pop", "does not look like"),
        ({"policy_version": "12"}, "policy_version", "does not look like"),
        ({"policy_version": 123456789012}, "policy_version", "invalid type: integer"),
        ({"round": "2026-01-02 03:05:00"}, "round", "is not an instant"),
        ({"round": 1767323100}, "round", "invalid type: integer"),
        ({"round": instant(NOW + 2 * 3600)}, "round", "after created_at"),
        ({"created_at": "2026-13-02T03:05:00Z"}, "created_at", "is not an instant"),
        ({"created_at": instant(NOW + 301), "expires_at": instant(NOW + 600)}, "created_at", "in the future"),
        ({"expires_at": instant(NOW)}, "expires_at", "not after created_at"),
        ({"expires_at": instant(NOW + 8 * 86400)}, "expires_at", "more than"),
        ({"created_at": instant(NOW - 600), "expires_at": instant(NOW - 7)}, "expires_at", "expired 7 s ago"),
        ({"routes": []}, "routes", "unknown field `routes`"),
        ({"entries": {}}, "entries", "invalid type: map, expected a sequence"),
        ({"entries": [["10.0.0.0/8", 10]]}, "entries[0]", "invalid type: sequence, expected an object"),
        ({"surprise": 1}, "surprise", "unknown field `surprise`"),
        ({"\u202e\n": 1}, r"\u{202e}\n", r"unknown field `\u{202e}\n`"),
    ],
)
def test_each_field_is_checked_and_named(place: Path, changes: dict[str, Any], field: str, problem: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    message = refusal(place, encoded(sealed(body | changes)))
    assert message.startswith(f"b.json: {field}: ")
    assert problem in message


@pytest.mark.parametrize("field", sorted(GOOD))
def test_no_field_may_be_missing(place: Path, field: str) -> None:
    document = {key: value for key, value in GOOD.items() if key != field}
    if field != "digest":
        document = sealed({key: value for key, value in document.items() if key != "digest"})
    assert refusal(place, encoded(document)).startswith(f"b.json: document: missing field `{field}` ")


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
def test_a_destination_that_every_edge_refuses(place: Path, prefix: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    message = refusal(place, encoded(sealed(body | {"entries": [{"prefix": prefix, "initcwnd": 10}]})))
    assert message.startswith("b.json: entries[0].prefix: ")


@pytest.mark.parametrize("initcwnd", [0, -1, 1001, 10**30, 10.0, 1e400, True, "10", None, []])
def test_a_window_out_of_bounds(place: Path, initcwnd: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    document = body | {"entries": [{"prefix": "10.0.0.0/8", "initcwnd": initcwnd}]}
    if initcwnd == 1e400:  # Infinity in canonical form; a sender could write 1e400, which means the same
        refusal(place, encoded(sealed(document)).replace(b"Infinity", b"1e400"))
    else:
        assert "entries[0].initcwnd: " in refusal(place, encoded(sealed(document)))


@pytest.mark.parametrize("initcwnd", [1, 1000])
def test_the_bounds_themselves_are_good(place: Path, initcwnd: int) -> None:
    document = bundle({"10.0.0.0/8": initcwnd}, now=NOW)
    assert verified(place, encoded(document)).report["windows"] == 1


@pytest.mark.parametrize(
    ("prefixes", "problem"),
    [
        (["10.2.0.0/16", "10.1.0.0/16"], "out of order"),
        (["10.1.0.0/24", "10.1.0.0/16"], "out of order"),
        (["fd00::/48", "10.1.0.0/16"], "out of order"),
        (["10.1.0.0/16", "10.1.0.0/16"], "occurs twice"),
    ],
)
def test_routes_are_sorted_and_unique(place: Path, prefixes: list[str], problem: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    routes = [{"prefix": prefix, "initcwnd": 10} for prefix in prefixes]
    message = refusal(place, encoded(sealed(body | {"entries": routes})))
    assert message.startswith("b.json: entries[1].prefix: ")
    assert problem in message


def test_number_of_routes_and_size_are_capped(place: Path) -> None:
    routes = {f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/32": 10 for i in range(MAX_ENTRIES + 1)}
    assert f"more than the {MAX_ENTRIES}" in refusal(place, encoded(bundle(routes, now=NOW)))
    assert refusal(place, b" " * (MAX_BUNDLE_BYTES + 1)).startswith("b.json: size: ")


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
def test_what_is_not_a_json_object_is_refused_not_a_crash(place: Path, raw: bytes) -> None:
    refusal(place, raw)


@FEW
@given(data=st.data())
def test_a_truncated_bundle_is_refused(place: Path, data: st.DataObject) -> None:
    raw = encoded(GOOD)
    refusal(place, raw[: data.draw(st.integers(0, len(raw) - 1))])


@FEW
@given(data=st.data())
def test_a_bundle_with_one_byte_altered_is_refused(place: Path, data: st.DataObject) -> None:
    raw = bytearray(encoded(GOOD))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[position]))
    refusal(place, bytes(raw))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@FEW
@given(st.sampled_from(sorted(set(GOOD) - {"digest"})), _JSON)
def test_any_value_anywhere_is_good_or_a_refusal(place: Path, field: str, value: object) -> None:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    try:
        document = sealed(body | {field: value})
    except UnicodeEncodeError:
        return
    assert verified(place, encoded(document)).code in (0, 2, 12, 13, 15)


@pytest.mark.parametrize(
    ("hours", "problem"), [(2, "it expired 6600 s ago"), (-2, "in the future of this edge's clock")]
)
def test_an_edge_whose_clock_is_two_hours_off_refuses_bundles(place: Path, hours: int, problem: str) -> None:
    raw = json.dumps(bundle({"10.0.0.0/24": 20}, now=NOW)).encode()
    assert problem in refusal(place, raw, NOW + 3600 * hours)


# --- every field

ENTRY = {
    "prefix": "10.77.2.0/24",
    "initcwnd": 100,
    "start_rate": 6_250_000,
    "connection_rate": 3_000_000,
    "congestion": {"algorithm": "bbr", "from_bytes": 100_000, "always": True},
    "receive_window": 200,
    "trial": {"permille": 100, "initcwnd": 10},
    "default_resent": 7500,
}
LONE = {key: value for key, value in ENTRY.items() if key != "start_rate"}
ENFORCE: dict[str, Any] = {
    "by": "bpf",
    "otherwise": "routes",
    "live": "restore",
    "excluded": ["10.0.0.0/8"],
    "lift_bytes": 60_000,
    "lift_round_trips": 4,
    "brake": {"lost_permille": 200, "connections": 20, "half_life_s": 60},
    "record_permille": 1000,
}


# As a fleet with tenants that opted out has it.
ALONE: dict[str, Any] = {
    "by": "bpf",
    "opted_out": [{"prefix": "fd00::/8"}, {"port": 25}, {"port": 25, "prefix": "10.0.0.0/8"}],
}


def switched(**changes: object) -> dict[str, Any]:
    congestion = {"algorithm": "bbr", "from_bytes": 100_000} | changes
    return {"prefix": "192.0.2.0/24", "congestion": congestion}


def whole(changes: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in GOOD.items() if key != "digest"}
    found = body | {"enforce": ENFORCE, "entries": [ENTRY]} | changes
    if isinstance(found["enforce"], dict):
        found["enforce"] = enforcement(**found["enforce"])
    return sealed(found)


def test_every_field_is_read(place: Path) -> None:
    only = {"prefix": "fd77:2::/48", "congestion": {"algorithm": "bbr", "from_bytes": 0}}
    report = verified(place, encoded(whole({"entries": [ENTRY, only]}))).report
    counts = ("entries", "windows", "start_rates", "congestion_controls")
    assert [report[key] for key in counts] == [2, 1, 1, 2]
    assert verified(place, encoded(whole({"enforce": {}, "entries": []}))).code == 0
    assert verified(place, encoded(whole({"enforce": ALONE}))).code == 0


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"enforce": []}, "enforce", "invalid type: sequence, expected an object"),
        ({"enforce": {"by": "magic"}}, "enforce.by", "unknown variant `magic`, expected `routes` or `bpf`"),
        ({"enforce": {"how": "bpf"}}, "enforce.how", "unknown field `how`"),
        ({"enforce": {"excluded": ["10.0.0.0/8", "10.0.0.0/8"]}}, "enforce.excluded[1]", "occurs twice"),
        ({"enforce": {"brake": [20, 60, 400]}}, "enforce.brake", "invalid type: sequence, expected an object"),
        ({"enforce": {"brake": {"connections": 5}}}, "enforce.brake", "missing field `half_life_s`"),
        (
            {"enforce": {"brake": ENFORCE["brake"] | {"half_life_s": 0}}},
            "enforce.brake.half_life_s",
            "0 is outside 1 to 86400",
        ),
        ({"enforce": {"record_permille": 1001}}, "enforce.record_permille", "1001 is outside 0 to 1000"),
        ({"enforce": ALONE | {"opted_out": 5}}, "enforce.opted_out", "invalid type: integer `5`, expected a sequence"),
        ({"enforce": ALONE | {"opted_out": [{}]}}, "enforce.opted_out[0]", "neither a port nor a prefix"),
        ({"enforce": ALONE | {"opted_out": [{"port": 0}]}}, "enforce.opted_out[0].port", "0 is outside 1 to 65535"),
        ({"enforce": ALONE | {"opted_out": [{"prefix": "10.0.0.1/8"}]}}, "enforce.opted_out[0].prefix", "10.0.0.1/8"),
        (
            {"enforce": ALONE | {"opted_out": [{"prefix": "::ffff:10.0.0.0/104"}]}},
            "enforce.opted_out[0].prefix",
            "IPv4",
        ),
        ({"enforce": {"excluded": ["::ffff:10.0.0.0/104"]}}, "enforce.excluded[0]", "write the IPv4 prefix"),
        ({"enforce": ALONE | {"opted_out": [{"port": 1}, {"port": 1}]}}, "enforce.opted_out[1]", "or twice"),
        (
            {"enforce": ALONE | {"opted_out": [{"port": 1}, {"prefix": "10.0.0.0/8"}]}},
            "enforce.opted_out[1]",
            "out of order",
        ),
        (
            {"enforce": ALONE | {"opted_out": [{"port": n} for n in range(1, 66)]}},
            "enforce.opted_out",
            "65 are more than the 64",
        ),
        ({"enforce": ALONE | {"by": "routes"}}, "enforce.opted_out", "by routes, which know destinations only"),
        ({"enforce": ALONE | {"otherwise": "routes"}}, "enforce.opted_out", "by routes, which know destinations only"),
        ({"entries": [{"initcwnd": 10}]}, "entries[0]", "missing field `prefix`"),
        ({"entries": [{"prefix": "10.0.0.0/8"}]}, "entries[0]", "has no value"),
        ({"entries": [ENTRY, ENTRY]}, "entries[1].prefix", "occurs twice"),
        ({"entries": [ENTRY | {"prefix": "0.0.0.0/0"}]}, "entries[0].prefix", "wider than /8"),
        ({"entries": [ENTRY | {"initcwnd": 0}]}, "entries[0].initcwnd", "0 is outside 1 to 1000"),
        ({"entries": [ENTRY | {"start_rate": 10.5}]}, "entries[0].start_rate", "floating point `10.5`"),
        ({"entries": [ENTRY | {"start_rate": 999}]}, "entries[0].start_rate", "999 is outside 1000 to 10000000000"),
        (
            {"entries": [ENTRY | {"connection_rate": 999}]},
            "entries[0].connection_rate",
            "999 is outside 1000 to 10000000000",
        ),
        ({"entries": [ENTRY | {"default_resent": 0}]}, "entries[0].default_resent", "0 is outside 1 to 200000"),
        ({"entries": [ENTRY | {"default_resent": 200_001}]}, "entries[0].default_resent", "is outside 1 to 200000"),
        ({"entries": [LONE]}, "entries[0].connection_rate", "is there without start_rate"),
        ({"entries": [ENTRY | {"surprise": 1}]}, "entries[0].surprise", "unknown field `surprise`"),
        (
            {"entries": [ENTRY | {"congestion": {"algorithm": "bbr"}}]},
            "entries[0].congestion",
            "missing field `from_bytes`",
        ),
        ({"entries": [switched(algorithm="../bbr")]}, "entries[0].congestion.algorithm", "is not a name of"),
        ({"entries": [switched(algorithm="b" * 16)]}, "entries[0].congestion.algorithm", "is not a name of"),
        ({"entries": [switched(from_bytes=True)]}, "entries[0].congestion.from_bytes", "boolean `true`"),
        ({"entries": [switched(from_bytes=-1)]}, "entries[0].congestion.from_bytes", "integer `-1`"),
        ({"entries": [switched(always=1)]}, "entries[0].congestion.always", "expected a boolean"),
        ({"entries": [switched(via="x")]}, "entries[0].congestion.via", "unknown field `via`"),
        ({"entries": [ENTRY | {"prefix": 7}]}, "entries[0].prefix", "invalid type: integer `7`"),
        ({"entries": [ENTRY | {"prefix": "192.0.2.1/24"}]}, "entries[0].prefix", "beyond its length"),
        ({"entries": [ENTRY | {"trial": {"initcwnd": 5}}]}, "entries[0].trial", "missing field `permille`"),
        (
            {"entries": [ENTRY | {"trial": {"permille": 1001}}]},
            "entries[0].trial.permille",
            "1001 is outside 1 to 1000",
        ),
    ],
)
def test_each_field_of_its_parts_is_checked_and_named(
    place: Path, changes: dict[str, Any], field: str, problem: str
) -> None:
    message = refusal(place, encoded(whole(changes)))
    assert message.startswith(f"b.json: {field}: ")
    assert problem in message
