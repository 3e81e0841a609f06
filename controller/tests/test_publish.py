"""`springtide bundle`: one valid document for each edge, or none at all."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from springtide import instants
from springtide.bundles import model, validate
from springtide.bundles.model import Document, parse
from springtide.bundles.validate import Context, problems
from springtide.errors import InputError
from springtide.fleet import Fleet
from springtide.frame import Frame
from springtide.jobs import publish as jobs
from springtide.laws.congestion import rows as congestion_rows
from springtide.laws.congestion.law import DECIDED
from springtide.laws.holdout import held_out_edges
from springtide.laws.initcwnd.decision import Decision
from springtide.laws.initcwnd.edges import EdgeDecision
from springtide.laws.initcwnd.rows import WINDOWS
from springtide.policy import Policy, load_policy
from springtide.publication.folder import PublishFolder

from testkit.decided import DECISIONS, but, decision
from testkit.home import FLEET, ROUND, Home
from testkit.pairs import Reason, decided_table
from testkit.published import render

NOW = ROUND

pytestmark = pytest.mark.usefixtures("clock")


def decided(home: Home, decisions: list[Decision]) -> Home:
    store = home.open()
    WINDOWS.write_round(store, NOW, decided_table(decisions), decisions[0].policy_version)
    store.close()
    return home


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_every_edge_gets_its_routes_and_their_absence(home: Home) -> None:
    out = home.path / "out"
    decided(home, DECISIONS).run("bundle", "--out", out)
    assert sorted(path.name for path in out.iterdir()) == ["ams-1.json", "ams-2.json", "fra-1.json", "nyc-1.json"]
    ams = read(out / "ams-1.json")
    assert ams["entries"] == [{"prefix": "10.77.2.0/24", "initcwnd": 42}, {"prefix": "fd77:2::/48", "initcwnd": 77}]
    assert read(out / "ams-2.json")["entries"] == ams["entries"]
    assert read(out / "fra-1.json")["entries"] == [{"prefix": "10.77.1.0/24", "initcwnd": 30}]
    assert read(out / "nyc-1.json")["entries"] == []
    assert (ams["edge"], ams["pop"], ams["schema_version"]) == ("ams-1", "ams", 1)
    assert ams["round"] == instants.show(NOW)
    assert ams["expires_at"] == instants.show(NOW + 900)
    assert ams["policy_version"] == load_policy(home.policy).version
    rest = {name: value for name, value in ams.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    assert ams["digest"] == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    home.run("validate", *out.glob("*.json"))
    home.run("validate", out / "ams-1.json", "--edge", "ams-1")


def test_no_value_is_published_beyond_its_evidence(home: Home) -> None:
    aged = decision("ams", "nyc", 4, 50, evidence=NOW - 1200)
    answer = decided(home, [DECISIONS[0], aged]).json("bundle", "--out", home.path / "out")
    assert answer["left_out"] == ["ams to nyc (IPv4)"]
    document = read(home.path / "out" / "ams-1.json")
    assert [route["prefix"] for route in document["entries"]] == ["10.77.2.0/24"]
    assert document["expires_at"] == instants.show(NOW + 900)
    # Wherever the decision is shown.
    output = home.run("explain", "ams", "nyc").stdout
    assert "decided       50 segments\n" in output
    assert "left out      of bundles: they would expire at " in output
    assert "set, left out" in output
    steps = home.json("status", "--publish-dir", home.path / "publish", code=1)["steps"]
    [law] = [step for step in steps if step["what"] == "initcwnd"]
    assert "1 left out of bundles" in law["text"]


def test_a_round_without_decisions_publishes_nothing(home: Home) -> None:
    [line] = home.refused("bundle", "--out", home.path / "out")
    assert "no round has decisions; run `springtide decide initcwnd` first" in line
    decided(home, DECISIONS)
    [line] = home.refused("bundle", "--out", home.path / "out", "--round", instants.show(NOW - 300))
    assert "has no decisions" in line
    assert not (home.path / "out").exists()


def test_an_old_round_is_not_published(home: Home) -> None:
    store = home.open()
    old = NOW - 3600
    earlier = Decision(**{**vars(DECISIONS[0]), "round": old, "last_evidence": old, "expires_at": NOW})
    WINDOWS.write_round(store, old, decided_table([earlier]), earlier.policy_version)
    store.close()
    lines = home.refused("bundle", "--out", home.path / "out")
    assert len(lines) == 4
    assert all("expires_at" in line and "is not after created_at; publish a newer round" in line for line in lines)
    assert not (home.path / "out").exists()


def test_one_bad_bundle_keeps_all_back_and_what_was_there_stays(home: Home) -> None:
    out = home.path / "out"
    decided(home, DECISIONS).run("bundle", "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    home.policy.write_text("bundle: {max_routes: 1}\n")
    lines = home.refused("bundle", "--out", out)
    assert all("entries: 2 with a window are over bundle.max_routes = 1 (rule size)" in line for line in lines)
    assert [line.split(": ")[1] for line in lines] == ["ams-1.json", "ams-2.json"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_prefix_that_no_bundle_may_name_is_left_out_and_named(home: Home) -> None:
    decided(home, DECISIONS)
    home.fleet.write_text(FLEET.replace("10.77.2.0/24", "11.0.0.0/8"))
    answer = home.json("bundle", "--out", home.path / "out")
    assert answer["unusable"] == ["ams: 11.0.0.0/8 is wider than bundle.min_prefix_length_ipv4 = 16"]
    assert [one["prefix"] for one in read(home.path / "out" / "ams-1.json")["entries"]] == ["fd77:2::/48"]


def test_a_folder_that_cannot_be_written_is_an_error_message(home: Home) -> None:
    (home.path / "out").write_text("a file")
    result = decided(home, DECISIONS).run("bundle", "--out", home.path / "out" / "deeper", code=1)
    assert result.stderr.count("\n") == 1
    assert "bundles cannot be written" in result.stderr


def key_pair(folder: Path, name: str) -> Path:
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    return key


def test_signed_bundles_are_checked_and_changed_or_unknown_ones_reported(home: Home) -> None:
    out, key = home.path / "out", key_pair(home.path, "publisher")
    signers = home.path / "allowed_signers"
    signers.write_text(f"springtide {key.with_suffix('.pub').read_text()}")
    answer = decided(home, DECISIONS).json("bundle", "--out", out, "--sign-key", key)
    assert answer["signed"] is True
    assert sorted(path.name for path in out.glob("*.sig")) == [
        f"{name}.json.sig" for name in ("ams-1", "ams-2", "fra-1", "nyc-1")
    ]
    files = sorted(out.glob("*.json"))
    home.run("validate", *files, "--allowed-signers", signers)

    (out / "ams-1.json.sig").write_bytes((out / "ams-2.json.sig").read_bytes())
    (out / "fra-1.json.sig").unlink()
    lines = home.refused("validate", *files, "--allowed-signers", signers)
    assert [line.split("out/")[1].split(";")[0] for line in lines] == [
        "ams-1.json.sig: signature: does not match this content (Signature verification failed: incorrect signature)",
        "fra-1.json.sig: signature: is missing",
    ]
    signers.write_text(f"springtide {key_pair(home.path, 'unknown').with_suffix('.pub').read_text()}")
    [line] = home.refused("validate", out / "nyc-1.json", "--allowed-signers", signers)
    assert "its key is not in" in line


def test_validation_warns_of_receivers_that_cannot_take_the_window(home: Home) -> None:
    out = home.path / "out"
    narrow = but(DECISIONS[0], receiver_cwnd=30.0)
    held = but(DECISIONS[3], receiver_cwnd=30.4, smoothed_cwnd=83.2, reason=Reason.RECEIVER_LIMITED)
    wide = but(DECISIONS[1], receiver_cwnd=77.0)
    decided(home, [narrow, wide, DECISIONS[2], held]).run("bundle", "--out", out)
    files = sorted(out.glob("*.json"))
    assert home.json("validate", *files)["warnings"] == []
    output = home.run("validate", *files, "--receivers")
    lines = [line for line in output.stderr.splitlines() if line.startswith("warning: ")]
    assert lines == [
        "warning: ams to fra (IPv4): receivers advertise 30 segments, 42 are wanted: set"
        " edge_receive_buffer_bytes=122640 of the role edge on fra's edges",
        "warning: fra to ams (IPv4): receivers advertise 30 segments, 84 are wanted: set"
        " edge_receive_buffer_bytes=245280 of the role edge on ams's edges",
    ]


def test_an_unsigned_rendering_removes_the_old_signatures_with_a_warning(home: Home) -> None:
    out, key = home.path / "out", key_pair(home.path, "publisher")
    decided(home, DECISIONS).run("bundle", "--out", out, "--sign-key", key)
    result = home.run("bundle", "--out", out)
    assert "unsigned: edges refuse these bundles" in result.stderr
    assert list(out.glob("*.sig")) == []


@pytest.mark.parametrize("protected", [True, False])
def test_a_key_that_cannot_sign_publishes_nothing(home: Home, protected: bool) -> None:
    key = home.path / "publisher"
    if protected:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a secret", "-f", str(key)], check=True)
    lines = decided(home, DECISIONS).refused("bundle", "--out", home.path / "out", "--sign-key", key)
    assert len(lines) == 1
    assert f"{key}: signing key: " in lines[0]
    assert not (home.path / "out").exists()


SCHEMA = Path(__file__).parents[2] / "docs/reference/bundle.schema.json"


def test_the_published_schema_takes_what_is_rendered(home: Home) -> None:
    decided(home, DECISIONS).run("bundle", "--out", home.path / "out")
    document = read(home.path / "out" / "ams-1.json")
    check = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    check.validate(document)
    for broken in (
        {name: value for name, value in document.items() if name != "digest"},
        document | {"next_hop": "10.0.0.1"},
        document | {"schema_version": 2},
        document | {"entries": [{"prefix": "10.77.2.0/24", "initcwnd": "42"}]},
    ):
        assert not check.is_valid(broken)


def chosen(home: Home, moment: int, **columns: object) -> None:
    """Three prefixes of ams: one on BBR, one held out, one left in this round; one of fra on BBR, IPv6."""
    table = np.zeros(4, DECIDED)
    table["src_pop"] = [b"ams", b"ams", b"ams", b"fra"]
    table["destination"] = [b"192.0.2.0/24", b"192.0.3.0/24", b"192.0.4.0/24", b"2001:db8:0:100::/56"]
    table["ip_version"] = [4, 4, 4, 6]
    table["algorithm"], table["held_out"] = [1, 0, 0, 1], [0, 1, 0, 0]
    table["action"] = [2, 2, 3, 1]
    for name in DECIDED.names or ():
        if DECIDED[name].kind == "f" and name != "penalty":
            table[name] = np.nan
    store = home.open()
    congestion_rows.PREFIXES.write_round(store, moment, Frame.of(table), Policy().version)
    store.close()


def test_bundles_carry_who_uses_bbr_and_never_who_is_held_out(home: Home) -> None:
    chosen(decided(home, DECISIONS), NOW)
    home.policy.write_text("congestion: {min_object_bytes: 250000}\n")
    out = home.path / "out"
    answer = home.json("bundle", "--out", out)
    assert [(one["edge"], one["congestion"]) for one in answer["bundles"]] == [
        ("ams-1", 1),
        ("ams-2", 1),
        ("fra-1", 1),
        ("nyc-1", 0),
    ]
    bbr = {"algorithm": "bbr", "from_bytes": 250_000}
    bundles = {edge: read(out / f"{edge}.json") for edge in ("ams-1", "ams-2", "fra-1", "nyc-1")}
    switched = {edge: [one for one in found["entries"] if "congestion" in one] for edge, found in bundles.items()}
    assert switched == {
        "ams-1": [{"prefix": "192.0.2.0/24", "congestion": bbr}],
        "ams-2": [{"prefix": "192.0.2.0/24", "congestion": bbr}],
        "fra-1": [{"prefix": "2001:db8:0:100::/56", "congestion": bbr}],
        "nyc-1": [],
    }
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(read(out / "ams-1.json"))
    home.run("validate", *sorted(out.glob("*.json")))


@pytest.mark.parametrize(
    ("age_s", "carried", "there"), [(600, "true", True), (900, "true", False), (0, "false", False)]
)
def test_what_was_decided_a_bundles_life_ago_or_is_not_wanted_is_not_carried(
    home: Home, age_s: int, carried: str, there: bool
) -> None:
    chosen(decided(home, DECISIONS), NOW - age_s)
    home.policy.write_text(f"bundle: {{congestion: {carried}}}\n")
    home.run("bundle", "--out", home.path / "out")
    entries = read(home.path / "out" / "ams-1.json")["entries"]
    assert any("congestion" in one for one in entries) is there


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Fleets with disjoint prefixes of both versions, some PoPs without edges."""
    count = draw(st.integers(1, 6))
    pops = {}
    for n in range(count):
        four = [str(ip_network((f"10.{n}.{k * 8}.0", 21))) for k in draw(st.sets(st.integers(0, 31), max_size=4))]
        six = [f"fd{n:02x}:{k:x}::/48" for k in draw(st.sets(st.integers(1, 0xFFFF), max_size=3))]
        edges = {f"e{n}-{k}": {"address": "10.0.0.1"} for k in range(draw(st.integers(0, 3)))}
        pops[f"p{n}"] = {"prefixes": (four + six) or [f"172.16.{n}.0/24"], "edges": edges}
    return Fleet.model_validate({"version": 1, "pops": pops})


@given(fleets(), st.data())
def test_every_rendered_bundle_is_valid(fleet: Fleet, data: st.DataObject) -> None:
    names = list(fleet.pops)
    pairs = [(a, b, v) for a in [*names, "gone"] for b in [*names, "gone"] if a != b for v in (4, 6)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    ages = st.integers(0, 1800)
    decisions = [decision(*pair, data.draw(st.integers(10, 100)), NOW - data.draw(ages)) for pair in chosen]
    rendered = render(fleet, Policy(), NOW, decisions, NOW)
    assert set(rendered.documents) == set(fleet.edges())
    for edge, document in rendered.documents.items():
        assert problems(edge, document, Context(fleet, Policy(), NOW, edge)) == []
        # A document that was never parsed is what parsing would give, to the byte.
        found = json.loads(document.content)
        assert parse(edge, document.content) == document
        assert json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == document.content
        values = {d.pair: d for d in decisions}
        for item in found["entries"]:
            prefix = ip_network(item["prefix"])
            owner = next(pop for known, pop in fleet.prefixes() if known == prefix)
            made = values[fleet.edges()[edge], owner, prefix.version]
            assert item["initcwnd"] == made.initcwnd
            assert made.expires_at is not None
            assert made.expires_at >= NOW + Policy().bundle.ttl_s


def test_a_held_out_edge_gets_an_empty_bundle_and_the_others_theirs() -> None:
    edges = {f"ams-{n}": {"address": "10.77.1.1"} for n in range(5)}
    pops = {"ams": {"prefixes": ["10.77.1.0/24"], "edges": edges}, "fra": {"prefixes": ["10.77.2.0/24"]}}
    fleet = Fleet.model_validate({"version": 1, "pops": pops})
    documents = render(fleet, Policy(), NOW, DECISIONS, NOW).documents
    assert sorted(len(document.bundle.entries) for document in documents.values()) == [0, 1, 1, 1, 1]


def test_an_override_of_a_held_out_edge_precedes_the_holdout() -> None:
    edges = {f"ams-{n}": {"address": "10.77.1.1"} for n in range(5)}
    pops = {"ams": {"prefixes": ["10.77.1.0/24"], "edges": edges}, "fra": {"prefixes": ["10.77.2.0/24"]}}
    fleet = Fleet.model_validate({"version": 1, "pops": pops})
    [held] = held_out_edges(fleet, Policy().holdout)
    overridden = [EdgeDecision(held, "ams", "fra", 4, 55, NOW + 999, "trial")]
    documents = render(fleet, Policy(), NOW, DECISIONS, NOW, of_edges=overridden).documents
    assert json.loads(documents[held].content)["entries"] == [{"prefix": "10.77.2.0/24", "initcwnd": 55}]


def test_no_bundle_is_parsed_twice_on_its_way_from_rendering_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, policy = Fleet.model_validate(yaml.safe_load(FLEET)), Policy()
    folder = PublishFolder(tmp_path)
    parsed: Counter[bytes] = Counter()

    def counted(where: str, content: bytes) -> Document:
        parsed[content] += 1
        return parse(where, content)

    for module in (model, validate):
        monkeypatch.setattr(module, "parse", counted)
    for number in range(3):
        parsed.clear()
        there = Counter(file.read_bytes() for file in tmp_path.rglob("*.json"))
        rendered = render(fleet, policy, NOW, DECISIONS, NOW + 10 * number)
        assert jobs.wrong(rendered.documents, Context(fleet, policy, NOW + 60)) == []
        path, documents = jobs.publish(folder, rendered.documents, None, policy, NOW + 60)
        assert parsed <= there, "more often than there are files of it"
        new = {document.content for document in documents.values()}
        assert new.isdisjoint(parsed), "what was rendered here was parsed"
        assert {file.read_bytes() for file in (path / "edges").glob("*.json")} == new
        # As while its rollout is under way: all that can be read is read with the next.
        folder.point("current", path / "back")
    assert sorted(part.name for part in path.iterdir()) == ["back", "back-if-done", "edges", "off"]
    assert parsed.total() == 4 * len(new), "of the publication before: each part"


def test_the_steps_of_a_job_hand_bundles_over_as_they_are(tmp_path: Path) -> None:
    fleet, policy = Fleet.model_validate(yaml.safe_load(FLEET)), Policy()
    rendered = render(fleet, policy, NOW, DECISIONS, NOW)
    jobs.stage(tmp_path, rendered.documents)
    jobs.validate_staged(tmp_path, fleet, policy, NOW + 60)
    assert jobs.staged(tmp_path) == rendered.documents
    path, _ = jobs.publish(PublishFolder(tmp_path), jobs.staged(tmp_path), None, policy, NOW + 60, once=True)
    assert len(list((path / "back").glob("*.json"))) == len(rendered.documents)
    (tmp_path / jobs.STAGED / "ams-1.json").write_bytes(b'{"edge": 1}')
    for step in (lambda: jobs.validate_staged(tmp_path, fleet, policy, NOW + 60), lambda: jobs.staged(tmp_path)):
        with pytest.raises(InputError, match=r"^ams-1.json: edge: invalid type: integer"):
            step()
