"""fleet.yaml and policy.yaml: each fault is reported in one line with file, line, field and fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from springtide.errors import InputError
from springtide.fleet import load_fleet
from springtide.policy import Policy, default_yaml, load_policy

from testkit.home import FLEET, Home

BAD_FLEETS = {
    "malformed": ("version: 1\npops: [\n", ":3: document: is not YAML"),
    "tab": ("version: 1\n\tpops: {}\n", ":2: document: is not YAML"),
    "not a mapping": ("- ams\n", ":1: document: is not a mapping; begin with `key: value`"),
    "empty": ("", ":1: version: is missing; add it"),
    "wrong version": (FLEET.replace("version: 1", "version: 2"), ":1: version: is 2; should be 1"),
    "version as text": (FLEET.replace("version: 1", "version: '1'"), ":1: version: is '1'; should be 1"),
    "unknown key": (FLEET.replace("region:", "regoin:"), ":4: pops.ams.regoin: unknown key; did you mean region?"),
    "unknown key of an edge": (
        FLEET.replace("{address: 10.77.1.2}", "{address: 10.77.1.2, user: root}"),
        ":8: pops.ams.edges.ams-2.user: unknown key; known keys: address",
    ),
    "duplicate key": (
        FLEET + "  ams:\n    prefixes: [10.9.0.0/24]\n",
        ":17: pops.ams: is given twice (first on line 3)",
    ),
    "overlap within a PoP": (
        FLEET.replace('"fd77:2::/48"', "10.77.2.128/25"),
        ":10: pops.fra.prefixes[1]: 10.77.2.128/25 overlaps 10.77.2.0/24 of pop fra (line 10)",
    ),
    "overlap across PoPs": (
        FLEET.replace("10.77.3.0/24", "10.0.0.0/8"),
        ":5: pops.ams.prefixes[0]: 10.77.1.0/24 overlaps 10.0.0.0/8 of pop nyc (line 14)",
    ),
    "same prefix twice": (
        FLEET.replace("10.77.3.0/24", "10.77.2.0/24"),
        ":14: pops.nyc.prefixes[0]: 10.77.2.0/24 overlaps 10.77.2.0/24 of pop fra (line 10)",
    ),
    "IPv6 overlap": (
        FLEET.replace("fd77:2::/48", "fd77:1:0:8000::/49"),
        ":10: pops.fra.prefixes[1]: fd77:1:0:8000::/49 overlaps fd77:1::/48 of pop ams (line 5)",
    ),
    "host bits": (
        FLEET.replace("10.77.3.0/24", "10.77.3.1/24"),
        ":14: pops.nyc.prefixes[0]: 10.77.3.1/24 has bits set after its length; write 10.77.3.0/24",
    ),
    "default route": (
        FLEET.replace("10.77.3.0/24", "0.0.0.0/0"),
        ":14: pops.nyc.prefixes[0]: 0.0.0.0/0 is a default route",
    ),
    "IPv6 default route": (FLEET.replace("fd77:2::/48", "::/0"), ":10: pops.fra.prefixes[1]: ::/0 is a default route"),
    "mapped IPv4": (
        FLEET.replace("fd77:2::/48", "::ffff:10.0.0.0/104"),
        ":10: pops.fra.prefixes[1]: ::ffff:10.0.0.0/104 covers IPv4-mapped addresses",
    ),
    **{
        f"not for bundles: {prefix}": (
            FLEET.replace("10.77.3.0/24", f"'{prefix}'"),
            f": pops.nyc.prefixes[0]: {prefix} is {what}",
        )
        for prefix, what in (
            ("127.0.0.0/24", "loopback, link-local, multicast or reserved space; name prefixes that others reach"),
            ("169.254.0.0/16", "loopback, link-local, multicast or reserved space"),
            ("224.0.0.0/24", "loopback, link-local, multicast or reserved space"),
            ("fe80::/32", "loopback, link-local, multicast or reserved space"),
        )
    },
    "a zone": (
        FLEET.replace("10.77.3.0/24", "'2001:db8::%1/64'"),
        ":14: pops.nyc.prefixes[0]: '2001:db8::%1/64' has a zone, which is of one host",
    ),
    "not a prefix": (
        FLEET.replace("10.77.3.0/24", "10.77.3/24"),
        ":14: pops.nyc.prefixes[0]: '10.77.3/24' is not an IPv4 or IPv6 prefix; write it as 10.77.1.0/24",
    ),
    "number for a prefix": (FLEET.replace("10.77.3.0/24", "7"), ":14: pops.nyc.prefixes[0]: 7 is not a prefix"),
    "no prefixes": (FLEET.replace("[10.77.3.0/24]", "[]"), ":14: pops.nyc.prefixes: is []"),
    "prefixes not a list": (
        FLEET.replace("[10.77.3.0/24]", "10.77.3.0/24"),
        ":14: pops.nyc.prefixes: is '10.77.3.0/24'",
    ),
    "bad PoP name": (FLEET.replace("  nyc:", "  NYC:"), ":13: pops.NYC: 'NYC' is not a name; use 1 to 63 lower-case"),
    "a PoP that YAML takes for a boolean": (FLEET.replace("  nyc:", "  no:"), ":13: pops: the key no is not text"),
    "edge in two PoPs": (
        FLEET.replace("nyc-1:", "ams-1:"),
        ":16: pops.nyc.edges.ams-1: is also an edge of pop ams (line 7); rename one of them",
    ),
    "address with a port": (
        FLEET.replace("{address: 10.77.3.1}", "{address: '10.77.3.1:22'}"),
        ":16: pops.nyc.edges.nyc-1.address: '10.77.3.1:22' is not an address",
    ),
    "name with a port": (
        FLEET.replace("{address: 10.77.3.1}", "{address: 'nyc-1.example:22'}"),
        ":16: pops.nyc.edges.nyc-1.address: 'nyc-1.example:22' is not an address",
    ),
    "address with too much": (
        FLEET.replace("{address: 10.77.3.1}", "{address: 10.77.3.1.22}"),
        ":16: pops.nyc.edges.nyc-1.address: '10.77.3.1.22' is not an address",
    ),
    "edge without address": (
        FLEET.replace("{address: 10.77.3.1}", "{}"),
        ":16: pops.nyc.edges.nyc-1.address: is missing",
    ),
    "alias": (
        FLEET.replace("version: 1", "version: &a 1\nx: *a"),
        ":2: document: uses a YAML alias; write the value out",
    ),
    "deep nesting": ("version: " + "[" * 5000, ": document: "),
    "impossible date": (FLEET.replace("region: europe", "region: 2026-13-45"), "document: holds an impossible value"),
    "python object": ("version: !!python/object/apply:os.getcwd []\n", "document: is not YAML"),
}

BAD_POLICIES = {
    "malformed": ("initcwnd: {cmax: 5\n", ":2: document: is not YAML"),
    "unknown section": ("initcwd: {}\n", ":1: initcwd: unknown key; did you mean initcwnd?"),
    "unknown key": ("initcwnd:\n  cmaxx: 5\n", ":2: initcwnd.cmaxx: unknown key; did you mean cmax?"),
    "wrong type": ("initcwnd:\n  cmax: '50'\n", ":2: initcwnd.cmax: is '50'; should be a valid integer"),
    "fraction": ("initcwnd:\n  cmin: 10.5\n", ":2: initcwnd.cmin: is 10.5; should be a valid integer"),
    "above range": ("initcwnd:\n  cmax: 5000\n", ":2: initcwnd.cmax: is 5000; should be less than or equal to 1000"),
    "below range": ("round:\n  interval_s: 0\n", ":2: round.interval_s: is 0; should be greater than or equal to 5"),
    "not a number": ("initcwnd:\n  history_weight: .nan\n", ":2: initcwnd.history_weight: is nan"),
    "unknown combiner": ("initcwnd:\n  combiner: median\n", ":2: initcwnd.combiner: is 'median'; should be 'mean'"),
    "section without keys": ("initcwnd:\n", ":1: initcwnd: is None; should be a mapping"),
    "cmin above cmax": (
        "initcwnd:\n  cmin: 60\n  cmax: 50\n",
        ":2: initcwnd.cmin: initcwnd.cmin = 60 is above initcwnd.cmax = 50; lower initcwnd.cmin or raise initcwnd.cmax",
    ),
    "default cmin above cmax": ("initcwnd:\n  cmax: 5\n", ":2: initcwnd.cmax: initcwnd.cmin = 10 is above"),
    "bundle outlives its decisions": (
        "bundle: {ttl_s: 3700}\n",
        ":1: bundle.ttl_s: bundle.ttl_s = 3700 is above initcwnd.ttl_s = 3600",
    ),
    "bundle expires before the next round": (
        "round: {interval_s: 1000}\n",
        ":1: round.interval_s: round.interval_s = 1000 is above bundle.ttl_s = 900",
    ),
    "duplicate key": ("initcwnd: {cmax: 50}\ninitcwnd: {cmax: 60}\n", ":2: initcwnd: is given twice (first on line 1)"),
}


WORD = "until: '2030-01-01T00:00:00Z', reason: incident"
# Lines below `start_overrides:` but for WORD, the policy's other lines, and the error from the key on.
BAD_WORDS = {
    "window below the kernel's": ("to: fra, initcwnd: 5", "initcwnd: is 5; should be greater than or equal to 10"),
    "window above cmax": ("to: fra, initcwnd: 500", "initcwnd: is 500, above start.cmax 400; lower it"),
    "wider than a client prefix": ("to: 198.51.100.0/23, initcwnd: 20", "to: '198.51.100.0/23' is neither a PoP's"),
    "host bits": ("to: 198.51.100.7/24, initcwnd: null", "to: '198.51.100.7/24' is neither a PoP's name nor a client"),
    "nothing": ("to: '', initcwnd: null", "to: '' is neither a PoP's name nor a client prefix; name a PoP, or write"),
    "no name": ("to: Fra, initcwnd: null", "to: 'Fra' is neither a PoP's name nor a client prefix"),
    "a zone": ("to: '2001:db8::%1/56', initcwnd: null", "to: '2001:db8::%1/56' is neither a PoP's name"),
    "loopback": ("to: 127.0.1.0/24, initcwnd: 20", "to: '127.0.1.0/24' is neither a PoP's name nor a client prefix"),
    "no such PoP": ("to: lon, initcwnd: null", "to: 'lon' is not a PoP of the fleet; name it as in fleet.yaml"),
    "the src's own": ("to: 10.77.1.0/24, initcwnd: 20", "to: 10.77.1.0/24 is in 10.77.1.0/24 of the src itself"),
    "within the src's own": ("to: 'fd77:1:0:100::/56', initcwnd: null", "to: fd77:1:0:100::/56 is in fd77:1::/48 of"),
    "default within another's": (
        "to: 'fd77:2:0:100::/56', initcwnd: null",
        "to: fd77:2:0:100::/56 is in fd77:2::/48 of fra, and would start as that does; name fra, or give a window",
    ),
}


@pytest.mark.parametrize("case", BAD_WORDS)
def test_an_override_of_starts_that_could_not_be_kept_is_refused(bare_home: Home, case: str) -> None:
    """It would stop all bundles, or be lost without a word."""
    text, expected = BAD_WORDS[case]
    bare_home.policy.write_text(f"enforce: {{by: bpf}}\nstart_overrides:\n- {{src: ams, {text}, {WORD}}}\n")
    [line] = bare_home.refused("check")
    assert line.startswith(f"springtide: {bare_home.policy}:3: start_overrides[0].{expected}"), line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to: fra", ": names neither handshake_timeout_ms nor copied_bytes; name one of them"),
        ("to: ams, copied_bytes: 0", ".to: is also the src; name another PoP"),
        ("to: fra, handshake_timeout_ms: 20", ".handshake_timeout_ms: is 20; the least is 50; raise it, or give 0"),
        ("to: fra, handshake_timeout_ms: 2000", ".handshake_timeout_ms: is 2000; should be less than or equal to 1000"),
        ("to: fra, copied_bytes: 1", ".copied_bytes: is 1; the least is 1460; raise it, or give 0 for no copies"),
        ("to: fra, copied_bytes: 65536", ".copied_bytes: is 65536; should be less than or equal to 65535"),
        ("to: 192.0.2.0/24, ip_version: 6, copied_bytes: 0", ".ip_version: is 6, and 192.0.2.0/24 is of IPv4"),
        ("to: 10.77.2.0/24, copied_bytes: 0", ".to: 10.77.2.0/24 is in 10.77.2.0/24 of fra, and recovers as that does"),
        ("to: lon, copied_bytes: 0", ".to: 'lon' is not a PoP of the fleet"),
    ],
)
def test_an_override_of_recovery_that_could_not_be_kept_is_refused(bare_home: Home, text: str, expected: str) -> None:
    bare_home.policy.write_text(f"recovery_overrides:\n- {{src: ams, {text}, {WORD}}}\n")
    [line] = bare_home.refused("check")
    assert line.startswith(f"springtide: {bare_home.policy}:2: recovery_overrides[0]{expected}"), line


@pytest.mark.parametrize(
    ("section", "item", "key"),
    [
        ("overrides", "src: amz, dst: fra, initcwnd: 20", "src: 'amz'"),
        ("overrides", "src: ams, dst: lon, initcwnd: null", "dst: 'lon'"),
        ("start_overrides", "src: amz, to: fra, initcwnd: null", "src: 'amz'"),
        ("congestion_overrides", "pop: amz, prefix: 192.0.2.0/24, algorithm: default", "pop: 'amz'"),
        ("enforce_overrides", "pop: amz, by: bpf", "pop: 'amz'"),
    ],
)
def test_an_override_of_a_pop_that_is_not_in_the_fleet_is_refused(
    bare_home: Home, section: str, item: str, key: str
) -> None:
    bare_home.policy.write_text(f"{section}:\n- {{{item}, {WORD}}}\n")
    [line] = bare_home.refused("check")
    assert line.startswith(f"springtide: {bare_home.policy}:2: {section}[0].{key} is not a PoP of the fleet;"), line


@pytest.mark.parametrize("window", [5, 500])
def test_a_pairs_window_that_edges_by_bpf_do_not_take_is_refused_there(bare_home: Home, window: int) -> None:
    text = f"initcwnd: {{cmin: 1, cmax: 1000}}\noverrides:\n- {{src: ams, dst: fra, initcwnd: {window}, {WORD}}}\n"
    bare_home.policy.write_text(text)
    bare_home.run("check")
    bare_home.policy.write_text(f"{text}enforce: {{by: bpf}}\n")
    [line] = bare_home.refused("check")
    assert f":3: overrides[0].initcwnd: is {window}, and edges by bpf take the kernel's 10 to start.cmax = 400" in line


def test_an_override_of_an_edge_by_bpf_is_noted(bare_home: Home) -> None:
    """Such an edge starts as decided for its PoP; by routes it will have the word."""
    bare_home.policy.write_text(
        f"overrides: [{{src: ams, dst: fra, edges: [ams-1, ams-2], initcwnd: null, {WORD}}}]\n"
        "enforce_overrides: [{edges: [ams-2], by: bpf, reason: first edge}]\n"
    )
    [note] = bare_home.json("check")["notes"]
    assert note.startswith("overrides[0].edges[1]: ams-2 enforces by bpf, where the windows of single edges")


def test_an_overrides_client_prefix_is_taken_in_its_shortest_form(bare_home: Home) -> None:
    bare_home.policy.write_text(
        f"start_overrides: [{{src: ams, to: '2001:DB8:0:0100::/56', initcwnd: null, {WORD}}}]\n"
    )
    bare_home.run("check")
    assert [one.to for one in load_policy(bare_home.policy).start_overrides] == ["2001:db8:0:100::/56"]


@pytest.mark.parametrize("case", BAD_FLEETS)
def test_bad_fleet_is_one_line_with_place_and_fix(bare_home: Home, case: str) -> None:
    text, expected = BAD_FLEETS[case]
    bare_home.fleet.write_text(text)
    lines = bare_home.refused("check")
    assert any(f"{bare_home.fleet}" in line and expected in line for line in lines), lines
    assert all(line.startswith("springtide: ") and line.count("; ") >= 1 for line in lines), lines


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_bad_policy_is_one_line_with_place_and_fix(bare_home: Home, case: str) -> None:
    text, expected = BAD_POLICIES[case]
    bare_home.policy.write_text(text)
    lines = bare_home.refused("check")
    assert any(f"{bare_home.policy}{expected}" in line for line in lines), lines


def test_all_problems_of_both_files_are_reported_at_once(bare_home: Home) -> None:
    bare_home.fleet.write_text(FLEET.replace("region", "regio").replace("10.77.3.0/24", "10.77.3.9/24"))
    bare_home.policy.write_text("x: 1\nround: {interval_s: 1}\n")
    assert len(bare_home.refused("check")) == 4


def test_missing_and_binary_files_are_refused(bare_home: Home) -> None:
    bare_home.fleet.write_bytes(b"version: 1\npops: \xff\xfe\n")
    bare_home.policy.unlink()
    fleet, policy = bare_home.refused("check")
    assert fleet.endswith("fleet.yaml:2: document: is not UTF-8; save it as UTF-8")
    assert "policy.yaml: file: cannot be read: No such file or directory" in policy


def test_a_prefix_too_wide_for_any_bundle_is_found_beforehand(bare_home: Home) -> None:
    bare_home.fleet.write_text(FLEET.replace("10.77.3.0/24", "11.0.0.0/8"))
    [line] = bare_home.refused("check")
    assert "pops.nyc.prefixes[0]: 11.0.0.0/8 is wider than bundle.min_prefix_length_ipv4 = 16" in line


@pytest.mark.parametrize(
    ("command", "broken"),
    [
        ("ingest {spool}", "fleet"),
        ("decide initcwnd", "fleet"),
        ("decide initcwnd", "policy"),
        ("bundle --out {out}", "fleet"),
        ("bundle --out {out}", "policy"),
        ("explain ams fra", "fleet"),
        ("explain ams fra", "policy"),
    ],
)
def test_no_command_starts_with_bad_configuration(home: Home, command: str, broken: str) -> None:
    path = home.fleet if broken == "fleet" else home.policy
    path.write_text("oops: 1\n")
    arguments = command.format(spool=home.spool, out=home.path / "out").split()
    assert all(str(path) in line for line in home.refused(*arguments))
    assert not (home.path / "out").exists()


def test_check_counts_what_it_read(bare_home: Home) -> None:
    version = load_policy(bare_home.policy).version
    counts = {"pops": 3, "prefixes": 5, "edges": 4}
    assert bare_home.json("check") == {**counts, "policy_version": version, "mode": "act", "notes": []}


def test_default_policy_file_is_the_default_policy(bare_home: Home) -> None:
    text = bare_home.run("check", "--defaults").stdout
    bare_home.policy.write_text(text)
    assert load_policy(bare_home.policy) == Policy()
    assert text == default_yaml()
    written = yaml.safe_load(text)
    assert written.keys() == Policy.model_fields.keys()
    mode, *sections = Policy().model_dump().values()
    names = list(Policy.model_fields)[1:]
    assert (written["mode"], mode) == ("act", "act")
    assert all(written[name].keys() == keys.keys() for name, keys in zip(names, sections, strict=True) if written[name])
    assert text.count("Source:") == text.count("Range:") == 1 + sum(map(len, sections))


def test_policy_version_follows_what_is_in_force(bare_home: Home) -> None:
    def version(text: str) -> str:
        bare_home.policy.write_text(text)
        return str(bare_home.json("check")["policy_version"])

    assert version("{}") == version("initcwnd: {cmax: 100}") == version("# a comment\nround: {}")
    assert version("initcwnd: {cmax: 99}") != version("{}")
    assert version("mode: advise") == version("{}"), "it changes no decision"
    assert len(version("{}")) == 12


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_refused_with_a_message(tmp_path_factory: pytest.TempPathFactory, content: str | bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        load_fleet(path)


IMPOSSIBLE = ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp soon", "9" * 20_000, "0001-01-01 00:00:00+10:00"]


@pytest.mark.parametrize("value", [*IMPOSSIBLE, "0x" + "f" * 20_000])
def test_a_value_that_is_not_what_its_tag_says_is_refused_by_its_line(tmp_path: Path, value: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"pops: {{}}\nversion: {value}\n")
    with pytest.raises(InputError) as refused:
        load_fleet(path)
    assert any(str(one).startswith(f"{path}:2: ") for one in refused.value.problems), refused.value.problems


@pytest.mark.parametrize("text", ["? {}\n: 1\n", "? 1{}\n: 1\n", "version: 1\npops: {{ams: {{prefixes: ['{}']}}}}\n"])
def test_what_is_long_is_named_in_a_short_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text.format("0" * 300_000))
    with pytest.raises(InputError) as refused:
        load_fleet(path)
    assert max(len(str(one)) for one in refused.value.problems) < 1000


KEYS = st.sampled_from(["version", "pops", "ams", "prefixes", "edges", "region", "address", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_any_value_is_refused_with_a_message(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-value.yaml"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError):
        load_fleet(path)
