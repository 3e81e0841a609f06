"""The order of a rollout, the publisher's lock, and fleet.yaml as an inventory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from deploy.ansible.plugins.inventory.fleet import NAME, InventoryModule, edges, read
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError
from springtide import fleet as controller_fleet
from springtide.errors import InputError
from springtide.fleet import load_fleet
from springtide.publication.folder import PublishFolder
from springtide.publication.lock import give_lock_back, take_lock
from springtide.publication.waves import (
    LEAST_TRIES,
    MOST_GROWTH,
    Candidate,
    fitting_growth,
    gate_tries,
    life_s,
    read_publication,
    waves,
)
from testkit.edge import bundle
from testkit.published import publish

ROOT = Path(__file__).resolve().parents[3]
POP = "version: 1\npops: {a: {prefixes: [10.1.0.0/16], "

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.text("abcdef", min_size=1, max_size=4),
        st.sampled_from(["europe", "asia", "america"]),
        st.integers(0, 3),
    ),
    unique_by=lambda candidate: candidate.name,
    max_size=40,
)


@given(CANDIDATES, st.integers(1, 5), st.text(max_size=5))
def test_every_edge_is_in_one_wave_and_each_region_has_one_canary(
    candidates: list[Candidate], growth: int, salt: str
) -> None:
    planned = waves(candidates, growth, salt)
    assert sorted(name for wave in planned for name in wave) == sorted(c.name for c in candidates)
    if not candidates:
        return
    region = {c.name: c.region for c in candidates}
    assert sorted(region[name] for name in planned[0]) == sorted(set(region.values()))
    for number, wave in enumerate(planned[1:], start=1):
        assert len(wave) <= len(planned[0]) * growth**number
        if number < len(planned) - 1:
            assert len(wave) == len(planned[0]) * growth**number


def test_a_canary_has_routes_to_try() -> None:
    edges = [Candidate(f"e{number}", "europe", 5 if number == 3 else 0) for number in range(8)]
    assert {waves(edges, 2, str(salt))[0][0] for salt in range(20)} == {"e3"}


@given(st.floats(-1e4, 1e6), st.integers(1, 9), st.integers(1, 20), st.integers(1, 600))
def test_gates_never_wait_for_more_than_half_of_a_bundles_life(life: float, count: int, tries: int, delay: int) -> None:
    allowed = gate_tries(life, count, tries, delay)
    assert 0 <= allowed <= tries
    assert allowed == 0 or count * allowed * delay <= life / 2
    assert allowed == tries or count * (allowed + 1) * delay > life / 2


@given(CANDIDATES.filter(bool), st.integers(1, 5), st.floats(-1e4, 1e5), st.integers(1, 20), st.integers(1, 600))
def test_waves_grow_more_only_where_their_gates_have_no_time_otherwise(
    candidates: list[Candidate], growth: int, life: float, tries: int, delay: int
) -> None:
    regions = len({candidate.region for candidate in candidates})

    def enough(one: int) -> bool:
        return gate_tries(life, len(waves(candidates, one, "")), tries, delay) >= min(tries, LEAST_TRIES)

    taken = fitting_growth(len(candidates), regions, growth, life, tries, delay)
    assert growth <= taken <= MOST_GROWTH
    assert taken == growth or (enough(taken) and not any(enough(one) for one in range(growth, taken)))
    assert taken > growth or enough(growth) or not any(enough(one) for one in range(growth, MOST_GROWTH + 1))


@pytest.mark.parametrize(
    ("life", "sizes", "tries"),
    [
        # bundle.ttl_s of 900, and two minutes from the round to the rollout.
        (780, [5, 120, 2875], 2),
        # Four rounds longer there is time for all.
        (1980, [5, 15, 45, 135, 405, 1215, 1180], 2),
        (3480, [5, 15, 45, 135, 405, 1215, 1180], 4),
    ],
)
def test_three_thousand_edges_in_five_regions_fit_into_their_bundles_life(
    life: float, sizes: list[int], tries: int
) -> None:
    """Growing by 3 there are seven waves: in 780 s not even one of their gates could be tried again."""
    assert gate_tries(780, 7, 10, 60) == 0
    edges = [Candidate(f"e{number}", f"r{number % 5}", 5) for number in range(3000)]
    growth = fitting_growth(3000, 5, 3, life, 10, 60)
    planned = waves(edges, growth, "x")
    assert [len(wave) for wave in planned] == sizes
    assert gate_tries(life, len(planned), 10, 60) == tries


def test_the_bundle_that_expires_first_counts(tmp_path: Path) -> None:
    for name, text in (("a", "2026-01-02T03:05:00Z"), ("b", "2026-01-02T03:04:30Z")):
        (tmp_path / f"{name}.json").write_text(f'{{"expires_at": "{text}"}}')
    (tmp_path / "c.json").write_text("no bundle")
    assert life_s(tmp_path, ["a", "b", "c"], 1767323000.0) == 1767323070 - 1767323000
    assert life_s(tmp_path, ["c"], 0.0) == 0


def test_the_first_host_varies() -> None:
    edges = [Candidate(f"e{number}", "europe", 5) for number in range(8)]
    assert len({waves(edges, 2, str(salt))[0][0] for salt in range(50)}) > 3


def test_a_publication_without_a_bundle_for_an_edge_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"routes": [1, 2]}')
    assert read_publication(tmp_path, [("a", "x")]) == [Candidate("a", "x", 2)]
    with pytest.raises(ValueError, match="no bundle for b"):
        read_publication(tmp_path, [("a", "x"), ("b", "x")])


def test_the_lock_is_held_as_long_as_its_process_runs(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert take_lock(tmp_path, other.pid, "a rollout") is None
    holder = take_lock(tmp_path, os.getpid(), "a rollout")
    assert holder is not None
    assert str(other.pid) in holder
    give_lock_back(tmp_path, os.getpid())  # not ours to give
    assert take_lock(tmp_path, os.getpid(), "a rollout") is not None
    other.kill()
    other.wait()
    assert take_lock(tmp_path, os.getpid(), "a rollout") is None
    give_lock_back(tmp_path, os.getpid())
    assert (tmp_path / "rollout.lock").read_text() == ""


def inventory(tmp_path: Path, text: str) -> InventoryData:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    data = InventoryData()
    plugin = InventoryModule()
    assert plugin.verify_file(str(path))
    assert not plugin.verify_file(str(tmp_path / "hosts.yaml"))
    plugin.parse(data, DataLoader(), str(path))
    data.reconcile_inventory()
    return data


def test_the_fleet_is_the_inventory(tmp_path: Path) -> None:
    data = inventory(
        tmp_path,
        """
version: 1
pops:
  ams-x:
    region: Western Europe
    prefixes: [10.77.1.0/24]
    edges:
      ams-1: {address: 10.77.1.1}
      ams-2: {address: ams-2.example.net, push: false}
  nyc: {prefixes: [10.77.2.0/24], edges: {nyc-1: {address: "fd77::1"}}}
  empty: {prefixes: [10.77.3.0/24]}
tenants: {shop: {ports: [443]}}
""",
    )
    groups = data.get_groups_dict()
    assert groups["edges"] == ["ams-1", "ams-2", "nyc-1"]
    assert groups["not_pushed"] == ["ams-2"]
    assert groups["pop_ams_x"] == groups["region_western_europe"] == ["ams-1", "ams-2"]
    assert groups["region_default"] == ["nyc-1"]
    host = data.get_host("nyc-1")
    assert (host.vars["ansible_host"], host.vars["springtide_region"]) == ("fd77::1", "default")


def test_the_copy_beside_a_publication_is_an_inventory(tmp_path: Path) -> None:
    text = POP + "edges: {x: {address: h}}}}"
    publish(PublishFolder(tmp_path / "publish"), {"x": bundle({}, edge="x")}, fleet=text.encode())
    copy = tmp_path / "publish/candidate/fleet.yaml"
    assert InventoryModule().verify_file(str(copy))
    assert inventory(tmp_path, copy.read_text()).get_groups_dict()["edges"] == ["x"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "it is not a mapping"),
        ("version: 1\npops: {a: 3}", "pops.a is not a mapping"),
        (POP + "edges: {'x y': {address: h}}}}", "'x y' is not a name"),
        (POP + "edges: {x: {}}}}", "the edge x is without address"),
        (
            POP + "edges: {x: {address: h}}}, b: {prefixes: [10.2.0.0/16], edges: {x: {address: h}}}}",
            "x is there twice",
        ),
        (POP + "edges: {x: {address: h}, x: {address: i}}}}", "'x' is there twice"),
        (POP + "edges: {x: {address: '-oProxyCommand=touch /tmp/x'}}}}", "is not the address of x"),
        (POP + "edges: {x: {address: '10.0.0.1:22'}}}}", "is not the address of x"),
        (POP + "edges: {x: {address: &a h}, y: {address: *a}}}}", "uses a YAML alias"),
        (POP + "edges: {x: {address: h, push: 'no'}}}}", "push of x is neither true nor false"),
        (POP + "edges: {localhost: {address: h}}}}", "'localhost' is not a name for an edge"),
        (POP + "edges: {rejected: {address: h}}}}", "'rejected' is not a name for an edge"),
        (POP + 'region: "{{ x }}", edges: {}}}', "is not a region"),
        ("version: [", "while parsing"),
    ],
)
def test_a_broken_fleet_is_an_error_with_its_cause(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(AnsibleParserError, match=problem):
        inventory(tmp_path, text)


ODD = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=70)
ODDITIES = """
a 0 -a a- a_b A all edges localhost ungrouped rejected 127.0.0.1 ::1 fd77::1 10.0.0.1 a.b.example -oProxyCommand=x
root@h h;id $(id) `id` {{x}} {%x%} h,i a:22 10.0.0.1:22 10.0.0.300 010.0.0.1 fd77:1 a/b ä Ω1 ../x x=y #x *
"""
LONG = ["a" * length for length in (63, 64, 253, 254)]
WORDS = st.sampled_from([*ODDITIES.split(), *LONG, "", " ", "a b", "a\n", "\na", "a\t", "{{ lookup('pipe', 'id') }}"])
NAMES = WORDS | ODD | st.from_regex(NAME, fullmatch=True)
OTHERS = st.none() | st.booleans() | st.integers(-9, 9) | st.lists(st.text("a", max_size=2), max_size=2)
ADDRESSES = WORDS | ODD | OTHERS
HOSTS = st.fixed_dictionaries({"address": ADDRESSES}) | st.fixed_dictionaries(
    {"address": st.just("h")}, optional={"push": st.booleans() | OTHERS}
)
POPS = st.fixed_dictionaries(
    {},
    optional={"edges": st.dictionaries(NAMES, HOSTS | OTHERS, max_size=3) | OTHERS, "region": NAMES | OTHERS},
)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(NAMES, POPS, max_size=3), st.just(1) | OTHERS, st.booleans())
def test_the_inventory_accepts_exactly_what_check_accepts(
    tmp_path_factory: pytest.TempPathFactory, pops: dict[str, Any], version: object, more: bool
) -> None:
    given_pops = {name: {"prefixes": [f"10.{n}.0.0/16"], **pop} for n, (name, pop) in enumerate(pops.items())}
    document = {"version": version, "pops": given_pops, **({"more": 1} if more and len(pops) == 3 else {})}
    path = tmp_path_factory.getbasetemp() / "fleet.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    try:
        checked = {
            (edge, name, pop.region, host.address, host.push)
            for name, pop in load_fleet(path).pops.items()
            for edge, host in pop.edges.items()
        }
    except InputError:
        with pytest.raises((ValueError, yaml.YAMLError)):
            edges(read(path.read_text(encoding="utf-8")))
    else:
        assert set(edges(read(path.read_text(encoding="utf-8")))) == checked


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_both_sides_accept_the_same_values(words: list[tuple[str, str]]) -> None:
    """One edge at a time, so that most are refused for one thing or for none."""
    for name, address in words:
        rules = (controller_fleet._edge_name, name), (controller_fleet._address, address)
        refused = False
        for rule, value in rules:
            try:
                rule(value)
            except PydanticCustomError:
                refused = True
        document = {"version": 1, "pops": {"p": {"prefixes": ["10.0.0.0/8"], "edges": {name: {"address": address}}}}}
        if refused:
            with pytest.raises(ValueError, match="is not"):
                edges(document)
        else:
            assert edges(document) == [(name, "p", "default", address, True)]


BAD_FLEETS = {
    "an option for ssh": POP + "edges: {x: {address: '-oProxyCommand=touch %s'}}}}",
    "one name among good ones": POP + "edges: {x: {address: 192.0.2.1}, 'Y': {address: 192.0.2.2}}}}",
    "no edges": POP + "edges: {}}}",
    "what ansible's own YAML plugin takes": "pops: {ams: {edges: {x: {address: 192.0.2.1}}}}",
}


@pytest.mark.parametrize("text", BAD_FLEETS.values(), ids=BAD_FLEETS.keys())
def test_withdraw_reports_that_it_did_nothing(tmp_path: Path, text: str) -> None:
    touched = tmp_path / "touched"
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(text.replace("%s", str(touched)))
    # As an operator in another folder, who has the collection installed: no ansible.cfg of ours is read.
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "deploy"), "ANSIBLE_HOME": str(tmp_path)}
    environment |= {"SPRINGTIDE_PUBLISH_DIR": f"{tmp_path}/publish"}
    environment.pop("ANSIBLE_CONFIG", None)
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(fleet)]
    command += [str(ROOT / "deploy/ansible/playbooks/withdraw.yml")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "NOTHING was done" in done.stdout
    assert (tmp_path / "publish/withdrawn").exists(), "what is running was not stopped"
    assert not touched.exists()
