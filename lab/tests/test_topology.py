"""Topology files: the demo's has the documented paths, and a wrong one is an error with place and cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError
from lab.topology import Topology, gateway, load_topology

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
DEMO = (TOPOLOGIES / "demo.yaml").read_text()


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_topology_that_comes_with_the_lab_is_valid(path: Path) -> None:
    assert load_topology(path).name == path.stem


def test_demo_has_the_promised_paths() -> None:
    demo = load_topology(TOPOLOGIES / "demo.yaml")
    assert len(demo.pops) == 4
    assert max(len(pop.edges) for pop in demo.pops.values()) >= 2
    assert {demo.rtt(*pair) for pair in demo.pairs()} == {20, 80, 150, 250}
    lossy = [pair for pair in demo.pairs() if demo.shape(*pair).loss]
    assert [demo.shape(*pair).loss for pair in lossy] == [0.02]
    assert all(demo.rtt(*pair) <= 80 for pair in lossy)
    assert len(demo.pairs()) - len(demo.busy_pairs()) == 1


def faults(text: str, directory: Path) -> list[str]:
    path = directory / "lab.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_topology(path)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{path}:", "").splitlines()


@pytest.mark.parametrize(
    ("right", "wrong", "field", "what"),
    [
        ("rate_mbit: 200", "rate_mbit: fast", "defaults.rate_mbit", "valid number"),
        ("rate_mbit: 200", "rate_mbti: 200", "defaults.rate_mbti", "not a key here"),
        ("seed: 20", "seed: -1", "seed", "greater than or equal to 0"),
        ("nyc: {sin: 250}", "nyc: {si: 250}", "rtt_ms.nyc.si", "no PoP 'si'"),
        ("nyc: {sin: 250}", "nyc: {nyc: 250}", "rtt_ms.nyc.nyc", "intra_rtt_ms"),
        ("fra: {nyc: 80, sin: 150}", "fra: {nyc: 80, sin: 150, ams: 1}", "rtt_ms.fra.ams", "keep one"),
        ("loss: 0.02", "loss: 2", "paths[0].loss", "less than or equal to 1"),
        ("loss: 0.02", "loss: {enter_bad: 0.1}", "paths[0].loss.leave_bad", "is missing"),
        ("src: nyc, dst: fra, loss", "src: nyc, dst: nyc, loss", "paths[0].dst", "two different"),
        ("src: nyc, dst: fra, loss", "src: nyk, dst: fra, loss", "paths[0].src", "no PoP 'nyk'"),
        ("[10.77.4.1,", "[10.77.4.300,", "pops.sin.edges.sin-1.addresses[0]", "10.77.4.300"),
        ("[10.77.4.1,", "[10.77.3.1,", "pops.sin.edges.sin-1.addresses[0]", "none of the PoP's prefixes"),
        ("[10.77.4.1,", "[10.77.4.254,", "pops.sin.edges.sin-1.addresses[0]", "gateway"),
        ('[10.77.4.1, "fd77:4::1"]', "[10.77.4.1]", "pops.sin.edges.sin-1.addresses", "other IP versions"),
        ("[10.77.1.2,", "[10.77.1.1,", "pops.ams.edges.ams-2.addresses[0]", "also an address of ams-1"),
        ("[10.77.4.0/24,", "[10.77.4.1/24,", "pops.sin.prefixes[0]", "host bits set"),
        ("[10.77.4.0/24,", "[10.77.0.0/16,", "pops.sin.prefixes[0]", "overlaps 10.77.1.0/24"),
        ("sin-1:", "Sin_1:", "pops.sin.edges.Sin_1", "is not a name"),
        ("sin-1:", "wan:", "pops.sin.edges.wan", "the emulator's own"),
        ("sin-1:", "ams-1:", "pops.sin.edges.ams-1", "PoP ams has an edge of this name"),
        ("  fra:\n    region", "  ams:\n    region", "pops.ams", "given twice"),
        ("seed: 20", "7: 20", "document", "not text"),
        ("queue_bytes: 4000000", "queue_packets: 0", "defaults.queue_packets", "greater than or equal to 1"),
        ("loss: 0.02", "queue_bytes: 4000, queue_packets: 9", "paths[0].queue_packets", "beside queue_bytes"),
        ("loss: 0.02", "policer: {rate_mbit: 5}", "paths[0].policer.burst_bytes", "is missing"),
        ("connections: 4", "servers: [ams, lon]", "traffic.servers[1]", "no PoP 'lon'"),
        ("rate_mbit: 200", "poisson: true", "defaults.poisson", "needs a rate_mbit"),
        ("seed: 20", "enforce: nft", "enforce", "'routes' or 'bpf'"),
        ("    region: europe", "    enforce: BPF", "pops.ams.enforce", "'routes' or 'bpf'"),
        ('"fd77:4::1"]', '"fd77:4::1"], enforce: yes', "pops.sin.edges.sin-1.enforce", "'routes' or 'bpf'"),
        ("connections: 4", "kind: web", "traffic.kind", "'mixed', 'bulk', 'chunks' or 'small'"),
    ],
)
def test_a_fault_is_named_with_its_line_and_field(
    tmp_path: Path, right: str, wrong: str, field: str, what: str
) -> None:
    assert_reported(tmp_path, right, wrong, wrong, f"{field}: ", what)


@pytest.mark.parametrize(
    ("right", "wrong", "at", "field", "what"),
    [
        ("{nyc: 80, sin: 150}\n  nyc", "{sin: 150}\n  nyc", "rtt_ms:", "rtt_ms", "no RTT between fra and nyc"),
        ("seed: 20", "seed: [", "  ams:\n    region", "document", "is not YAML"),
        ("seed: 20", "seed: &x 20\nintra_rtt_ms: *x", "intra_rtt_ms: *x", "document", "alias"),
    ],
)
def test_a_fault_that_shows_elsewhere_is_named_there(
    tmp_path: Path, right: str, wrong: str, at: str, field: str, what: str
) -> None:
    assert_reported(tmp_path, right, wrong, at, f"{field}: ", what)


def assert_reported(directory: Path, right: str, wrong: str, at: str, field: str, what: str) -> None:
    """`at` is text whose first line, where it stands last, is the line to be named."""
    assert right in DEMO
    text = DEMO.replace(right, wrong, 1)
    line = text[: text.rindex(at)].count("\n") + 1
    found = faults(text, directory)
    assert any(one.startswith(f"{line}: {field}") and what in one for one in found), found


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    found = faults(DEMO.replace("sin: 250", "sin: far").replace("seed: 20", "sed: 20"), tmp_path)
    assert [line.split(": ")[1] for line in found] == ["rtt_ms.nyc.sin", "sed"]


def test_an_empty_file_lacks_its_first_keys(tmp_path: Path) -> None:
    assert faults("", tmp_path) == ["1: name: is missing; add it", "1: pops: is missing; add it"]


@pytest.mark.parametrize("text", ["- a", "\0", "[" * 5000])
def test_what_is_not_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert len(faults(text, tmp_path)) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: file: cannot be read"):
        load_topology(tmp_path / "none.yaml")


def test_overrides_change_only_what_they_name(topology: Topology) -> None:
    slow = topology.shape("nyc", "ams")
    assert (slow.rate_mbit, slow.queue_bytes, slow.loss) == (5, 50_000, 0)
    assert topology.shape("ams", "nyc") == topology.defaults


def test_a_queue_is_counted_in_the_unit_of_the_nearest_key(topology: Topology) -> None:
    data = topology.model_dump(mode="json", exclude_none=True) | {"defaults": {"queue_packets": 41, "rate_mbit": 50}}
    counted = Topology.model_validate(data, strict=False)
    assert counted.shape("ams", "nyc").queue_packets == 41
    assert counted.shape("nyc", "ams").queue_packets is None  # its path names queue_bytes


def test_servers_alone_serve_and_pairs_without_an_rtt_have_the_default(topology: Topology) -> None:
    data = topology.model_dump(mode="json", exclude_none=True)
    data |= {"rtt_ms": {"ams": {"nyc": 20}}, "default_rtt_ms": 7.0}
    data["traffic"] |= {"servers": ["nyc"]}
    found = Topology.model_validate(data, strict=False)
    assert found.busy_pairs() == [("nyc", "sin")]
    assert (found.rtt("nyc", "ams"), found.rtt("sin", "ams")) == (20, 7)


def test_a_setting_of_null_is_left_to_the_kernel(topology: Topology) -> None:
    name = "net.ipv4.tcp_slow_start_after_idle"
    assert name in topology.sysctl_values()
    assert name not in topology.model_copy(update={"sysctls": {name: None}}).sysctl_values()


def test_gateways_are_inside_and_free(topology: Topology) -> None:
    for pop in topology.pops.values():
        for prefix in pop.prefixes:
            assert gateway(prefix) in prefix
            assert all(gateway(prefix) not in edge.addresses for edge in pop.edges.values())
