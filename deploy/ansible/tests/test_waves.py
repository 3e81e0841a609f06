"""The order of a rollout, the publisher's lock, and fleet.yaml as an inventory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from deploy.ansible.plugins.inventory.fleet import InventoryModule
from deploy.ansible.plugins.module_utils.springtide_publisher import (
    Candidate,
    gate_tries,
    give_lock_back,
    life_s,
    read_publication,
    take_lock,
    waves,
)
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_bundle_that_expires_first_counts(tmp_path: Path) -> None:
    for name, text in (("a", "2026-01-02T03:05:00Z"), ("b", "2026-01-02T03:04:30Z")):
        (tmp_path / f"{name}.json").write_text(f'{{"expires_at": "{text}"}}')
    (tmp_path / "c.json").write_text("no bundle")
    assert life_s(tmp_path, ["a", "b", "c"], 1767323000.0) == 1767323070 - 1767323000
    assert life_s(tmp_path, ["c"], 0.0) == 0


def test_it_is_not_always_the_same_host_that_goes_first() -> None:
    edges = [Candidate(f"e{number}", "europe", 5) for number in range(8)]
    assert len({waves(edges, 2, str(salt))[0][0] for salt in range(50)}) > 3


def test_a_publication_without_a_bundle_for_an_edge_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"routes": [1, 2]}')
    assert read_publication(tmp_path, [("a", "x")]) == [Candidate("a", "x", 2)]
    with pytest.raises(ValueError, match="no bundle for b"):
        read_publication(tmp_path, [("a", "x"), ("b", "x")])


def test_the_lock_holds_while_its_process_lives_and_no_longer(tmp_path: Path) -> None:
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
      ams-2: {address: ams-2.example.net}
  nyc: {prefixes: [10.77.2.0/24], edges: {nyc-1: {address: "fd77::1"}}}
  empty: {prefixes: [10.77.3.0/24]}
""",
    )
    groups = data.get_groups_dict()
    assert groups["edges"] == ["ams-1", "ams-2", "nyc-1"]
    assert groups["pop_ams_x"] == groups["region_western_europe"] == ["ams-1", "ams-2"]
    assert groups["region_default"] == ["nyc-1"]
    host = data.get_host("nyc-1")
    assert (host.vars["ansible_host"], host.vars["springtide_region"]) == ("fd77::1", "default")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "not a fleet of version 1"),
        ("version: 1\npops: {a: 3}", "pops.a is not a mapping"),
        ("version: 1\npops: {a: {edges: {'x y': {address: h}}}}", "'x y' is not a name"),
        ("version: 1\npops: {a: {edges: {x: {}}}}", "the address of x"),
        ("version: 1\npops: {a: {edges: {x: {address: h}}}, b: {edges: {x: {address: h}}}}", "x is there twice"),
        ("version: [", "while parsing"),
    ],
)
def test_a_broken_fleet_is_an_error_that_says_what(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(AnsibleParserError, match=problem):
        inventory(tmp_path, text)
