"""The publisher's folder: bundles that leave, ways back, and every kill in between.

Long: one folder's life, over one set of bundles.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from springtide import instants
from springtide.bundles.model import Document, Documents
from springtide.bundles.published import PublishedBundles, going_back, renewed
from springtide.errors import InputError, SpringtideError
from springtide.jobs import audit
from springtide.jobs import publish as jobs
from springtide.laws.initcwnd import rows as decisions
from springtide.policy import Policy
from springtide.publication import folder as publication
from springtide.publication import journal, ways
from springtide.publication.folder import PublishFolder

from testkit.decided import decision
from testkit.home import ROUND, Home
from testkit.pairs import decided_table
from testkit.published import changed, clients_of, digest, document

pytestmark = pytest.mark.usefixtures("clock")


def publish(folder: PublishFolder, documents: Documents, fleet: bytes = b"") -> Path:
    return PublishedBundles(folder).publish(documents, None, fleet)


WINDOWS = st.dictionaries(st.sampled_from([f"10.0.{n}.0/24" for n in range(9)]), st.integers(10, 100))


@given(WINDOWS, WINDOWS, st.integers(1, 10), st.integers(60, 5000))
def test_a_way_back_is_younger_and_never_outlives_its_expiry(
    old: dict[str, int], new: dict[str, int], rounds: int, ttl: int
) -> None:
    before, after = document(old, ROUND - 300 * rounds, ttl).bundle, document(new).bundle
    made = going_back(before, after)
    back = made.bundle
    assert back.digest == digest(json.loads(made.content))
    assert (back.round, back.created_at) > (after.round, after.created_at)
    if before.expires_at <= back.created_at:
        assert back.entries == []
    else:
        assert (back.entries, back.expires_at) == (before.entries, before.expires_at)
    assert going_back(None, after).bundle.entries == []


def test_renewed_values_are_younger_than_a_way_back() -> None:
    old, held = document({"10.0.1.0/24": 20}, ROUND - 300).bundle, document({"10.0.1.0/24": 50}).bundle
    undone = going_back(old, held).bundle
    again = renewed(old, held, ROUND + 30).bundle
    assert (again.round, again.created_at) > (undone.round, undone.created_at)
    assert (again.entries, again.expires_at) == (old.entries, old.expires_at)


@pytest.mark.parametrize("ahead", [0, 61, 299])
def test_renewed_values_come_after_what_edges_took_of_a_clock_that_was_ahead(ahead: int) -> None:
    now = ROUND + 30
    old = document({"10.0.1.0/24": 20}, ROUND - 300).bundle
    held = changed(document({"10.0.1.0/24": 50}), created_at=instants.show(now + ahead)).bundle
    again = renewed(old, held, now).bundle
    assert (again.round, again.created_at) > (held.round, held.created_at)
    # A bundle that no edge took orders nothing.
    refused = changed(document({"10.0.1.0/24": 50}), created_at=instants.show(now + instants.EDGE_TOLERANCE_S + 1))
    assert renewed(old, refused.bundle, now).bundle.created_at == instants.show(now)


def test_the_way_back_knows_what_edges_took_of_a_clock_that_was_ahead() -> None:
    now = ROUND + 30
    held = changed(document({"10.0.1.0/24": 50}, ROUND - 300), created_at=instants.show(now + 200))
    new = changed(document({"10.0.1.0/24": 60}), created_at=instants.show(now)).bundle
    assert going_back(held.bundle, new).bundle.entries == held.bundle.entries
    assert ways.given(json.loads(held.content), now) is not None


def test_no_round_is_published_that_is_older_than_what_edges_took_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    folder, now = PublishFolder(tmp_path), ROUND + 30
    held = changed(document({}), created_at=instants.show(now + 200))
    folder.point("current", publish(folder, {"ams-1": held}) / "edges")
    with pytest.raises(InputError, match="is older than"):
        jobs.publish(folder, {"ams-1": document({}, ROUND - 300)}, None, Policy(), now)


def test_the_way_back_knows_what_congestion_control_held() -> None:
    plain, after = document({}, ROUND - 300).bundle, clients_of(2)["ams-1"].bundle
    before = changed(clients_of(1, 7)["ams-1"], round=plain.round, expires_at=plain.expires_at).bundle
    assert going_back(before, after).bundle.congestion == before.congestion
    assert b"congestion" not in going_back(plain, after).content
    assert b"congestion" not in going_back(None, after).content
    assert renewed(before, after, ROUND + 30).bundle.congestion == before.congestion


def decide(home: Home, moment: int, values: dict[tuple[str, str], int]) -> None:
    rows = [decision(src, dst, 4, value, moment, moment) for (src, dst), value in values.items()]
    store = home.open()
    try:
        decisions.WINDOWS.write_round(store, moment, decided_table(rows), "0123456789ab")
    finally:
        store.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "publisher"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    (tmp_path / "allowed_signers").write_text(f"springtide {path.with_suffix('.pub').read_text()}")
    return path


def test_rounds_are_published_compared_forced_taken_back_and_remembered(
    home: Home, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long: one story, each step of which needs the one before."""
    home.policy.write_text("bundle: {caps_from_routes: 1}\n")
    folder = PublishFolder(home.path / "publish")
    where = ("--publish-dir", folder.path)
    signed = (*where, "--sign-key", key)
    decide(home, ROUND - 300, {("ams", "nyc"): 30, ("ams", "fra"): 40})
    first = home.json("publish", "--round", instants.show(ROUND - 300), *signed)
    assert (first["edges"], first["routes"]) == (4, 4)
    candidate = folder.resolved("candidate")
    assert candidate is not None
    assert (candidate / "fleet.yaml").read_bytes() == home.fleet.read_bytes()
    for part in ("edges", "back"):
        bundles = sorted((candidate / part).glob("*.json"))
        home.run("validate", *bundles, "--allowed-signers", key.with_name("allowed_signers"))
    folder.point("current", candidate / "edges")

    decide(home, ROUND, {("ams", "nyc"): 35, ("nyc", "ams"): 50})
    errors = home.refused("publish", *signed)
    assert any("cap max_changed_share: 4 of 4 routes are changed or withdrawn" in line for line in errors)
    assert any("cap max_withdrawn_share" in line for line in errors)
    assert "--reason TEXT" in home.refused("publish", *signed, "--force")[0]
    assert folder.resolved("candidate") == candidate, "a refused publication left something"
    home.run("publish", *signed, "--force", "--reason", "fra is leaving")

    changes = {(c["edge"], c["prefix"]): (c["before"], c["after"]) for c in home.json("diff", *where)["changes"]}
    assert changes["ams-1", "10.77.3.0/24"] == (30, 35)
    assert changes["ams-1", "10.77.2.0/24"] == (40, None)
    assert changes["nyc-1", "10.77.1.0/24"] == (None, 50)
    assert {edge for edge, _ in changes} == {"ams-1", "ams-2", "nyc-1"}
    assert {c["edge"] for c in home.json("diff", "nyc-1", *where)["changes"]} == {"nyc-1"}
    assert home.refused("diff", "2001-01-01T00:00:00Z", *where)[0].endswith(folder.rounds()[-1])

    now = folder.resolved("candidate")
    assert now is not None
    bundle_files = sorted((now / "edges").glob("*.json"))
    assert "cap max_changed_share" in home.refused("validate", *bundle_files, "--against", folder.path)[0]
    assert "--reason TEXT" in home.refused("validate", *bundle_files, "--against", folder.path, "--force")[0]
    assert "name the publisher's folder" in home.refused("validate", *bundle_files, "--force", "--reason", "x")[0]
    passed = home.json("validate", *bundle_files, "--against", folder.path, "--force", "--reason", "as agreed")
    assert passed["valid"]
    assert any("cap max_changed_share" in line for line in passed["forced"])
    folder.point("current", now / "edges")
    assert "older than" in home.refused("publish", "--round", instants.show(ROUND - 300), *signed)[0]

    home.run("rollback", instants.show(ROUND - 300), *signed, "--reason", "fra stays")
    third = folder.resolved("candidate")
    assert third is not None
    old = json.loads((candidate / "edges/ams-1.json").read_text())
    again = json.loads((third / "edges/ams-1.json").read_text())
    assert (again["entries"], again["round"]) == (old["entries"], instants.show(ROUND))
    home.run("validate", third / "edges/ams-1.json", "--allowed-signers", key.with_name("allowed_signers"))

    rows = home.json("history", *where)
    events = sorted((row["event"], row["verdict"], row["reason"]) for row in rows)
    assert events == [
        ("force", "forced", "as agreed"),
        ("force", "forced", "fra is leaving"),
        ("publish", "published", ""),
        ("publish", "published", "fra is leaving"),
        ("rollback", "published", "fra stays"),
    ]
    assert all(row["digest"].startswith("sha256:") and row["who"] for row in rows)
    # The round whose values it has, also where an earlier round's come again under a later one.
    again_of = next(event for event in journal.read(folder.path)[0] if event.event == "rollback").details["windows"]
    assert again_of == {"round": instants.show(ROUND - 300), "expires_at": old["expires_at"], "held_out": []}
    (folder.path / audit.SENT).unlink()
    assert len(home.json("history", *where)) == len(rows), "sent again, the events counted twice"
    assert "fra stays" in home.run("history", *where, "--event", "rollback").stdout


def test_publishing_keeps_no_more_than_the_option_allows(home: Home, key: Path) -> None:
    signed = ("--publish-dir", home.path / "publish", "--sign-key", key)
    folder = PublishFolder(home.path / "publish")
    for number, moment in enumerate((ROUND - 600, ROUND - 300, ROUND)):
        decide(home, moment, {("ams", "nyc"): 30 + number})
        home.run("publish", "--round", instants.show(moment), *signed, "--keep", "1")
        if number == 0:
            candidate = folder.resolved("candidate")
            assert candidate is not None
            folder.point("current", candidate / "edges")
    assert [name[:20] for name in folder.rounds()] == [instants.show(ROUND - 600), instants.show(ROUND)]


def test_pruning_keeps_what_links_lead_to(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    for number in range(5):
        path = publish(folder, {"ams-1": document({"10.0.1.0/24": 20}, ROUND + 300 * number)})
        if number == 1:
            folder.point("current", path / "edges")
    names = folder.rounds()
    assert folder.prune(2) == [names[0], names[2]]
    assert folder.rounds() == [names[1], names[3], names[4]]


def bundles_of(value: int, seconds: int) -> dict[str, Document]:
    """A round for one edge, published so many seconds after it."""
    return {"ams-1": document({"10.0.1.0/24": value}, created_s=seconds)}


def gives(part: Path) -> list[int]:
    return [route["initcwnd"] for route in json.loads((part / "ams-1.json").read_bytes())["entries"]]


def killed_before(call: int, work: Callable[[], object]) -> bool:
    """Run it in a process that is killed before its so many-th change of the file system; False where it has fewer."""
    process = os.fork()
    if process == 0:
        left = [call]

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            changes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if changes or event in ("os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir"):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
        except BaseException:  # pytest must not go on in this process
            os._exit(9)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_a_publish_that_is_killed_anywhere_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    calls = 1
    while True:
        folder = PublishFolder(tmp_path / str(calls))
        first = publish(folder, bundles_of(20, 10), b"fleet")
        folder.point("current", first / "edges")
        new = bundles_of(50, 20)
        killed = killed_before(calls, partial(publish, folder, new, b"fleet"))
        for name in folder.rounds():
            found = folder.publication(name)
            assert sorted(path.name for path in found.iterdir()) == ["back", "edges", "fleet.yaml", "off"]
            assert [path.name for part in ("back", "edges") for path in (found / part).iterdir()] == ["ams-1.json"] * 2
        candidate = folder.resolved("candidate")
        assert candidate is not None
        assert gives(candidate / "edges") in ([20], [50])
        assert PublishedBundles(folder).current() is not None
        # The same again, as a job's next try does, and then nothing is left of the killed one.
        if candidate == first:
            candidate = publish(folder, new, b"fleet")
        assert (gives(candidate / "edges"), gives(candidate / "back")) == ([50], [20])
        pruned = folder.prune(9)
        assert pruned == []
        assert {path.name for path in folder.path.iterdir()} - {".candidate.new"} == {
            "candidate",
            "current",
            "publish.lock",
            "rounds",
        }
        assert sorted(path.name for path in (folder.path / "rounds").iterdir()) == [first.name, candidate.name]
        if not killed:
            break
        calls += 1
    assert calls > 8, "the file system was not watched"


def test_a_pruning_that_is_killed_anywhere_leaves_whole_publications(tmp_path: Path) -> None:
    calls = 1
    while True:
        folder = PublishFolder(tmp_path / str(calls))
        for number in range(3):
            publish(folder, bundles_of(20 + number, 10 * number))
        killed = killed_before(calls, partial(folder.prune, 1))
        for name in folder.rounds():
            assert all((folder.publication(name) / part / "ams-1.json").exists() for part in ("edges", "back"))
        folder.prune(1)
        assert len(list((folder.path / "rounds").iterdir())) == 1
        if not killed:
            break
        calls += 1
    assert calls > 8, "the file system was not watched"


def test_a_second_content_for_a_moment_that_edges_may_know_is_refused(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    first = publish(folder, bundles_of(20, 10))
    # The way back is one second younger than what it undoes, and what ends both two.
    for seconds in (9, 10, 11, 12):
        with pytest.raises(SpringtideError, match="publish again"):
            publish(folder, bundles_of(50, seconds))
    folder.point("current", first / "back")
    publish(folder, bundles_of(50, 13))
    with pytest.raises(SpringtideError, match="wait three seconds"):
        publish(folder, bundles_of(60, 11))
    assert len(folder.rounds()) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "JSON: EOF while parsing"),
        (b"[]", "document: invalid type: sequence"),
        (b"[" * 100_000, "invalid type: sequence"),
        (b'{"edge": 1}', "edge: invalid type: integer"),
        (b'{"edge": "a", "edge": "b"}', "document: duplicate field `edge`"),
    ],
)
def test_a_published_bundle_that_is_damaged_is_one_line_wherever_it_is_read(
    tmp_path: Path, content: bytes, message: str
) -> None:
    folder = PublishFolder(tmp_path)
    path = publish(folder, bundles_of(20, 10))
    folder.point("current", path / "edges")
    (path / "edges/ams-1.json").write_bytes(content)
    for read in (PublishedBundles(folder).current, partial(publish, folder, bundles_of(30, 20))):
        with pytest.raises(SpringtideError) as raised:
            read()
        [line] = str(raised.value).splitlines()
        assert line.startswith(f"{path}/edges/ams-1.json: cannot be read: ")
        assert message in line
        assert line.endswith("; publish a round with --force --reason TEXT")


@pytest.mark.parametrize("part", ["edges", "back"])
def test_a_damaged_publication_is_replaced_by_one_that_is_forced(home: Home, part: str) -> None:
    folder = PublishFolder(home.publish_dir)
    for moment in (ROUND - 300, ROUND):
        decide(home, moment, {("ams", "nyc"): 30, ("ams", "fra"): 40})
    home.run("publish", "--round", instants.show(ROUND - 300))
    path = folder.resolved("candidate")
    assert path is not None
    folder.point("current", path / "edges")
    broken = path / part / "ams-1.json"
    broken.write_bytes(broken.read_bytes()[:100])
    again = ("publish", "--round", instants.show(ROUND))
    assert f"{broken}: cannot be read: " in home.run(*again, code=1).stderr
    home.run(*again, "--force", "--reason", "a disk lost it")
    new = folder.resolved("candidate")
    assert new is not None
    assert new != path
    events = journal.read(folder.path)[0]
    [force] = [event for event in events if event.event == "force"]
    assert (force.publication, force.reason) == (new.name, "a disk lost it")
    [line] = force.details["damaged"]
    assert line.startswith(f"{broken}: JSON: EOF while parsing")
    # The rollout finds its way back, and what holds then can be read.
    now = instants.now()
    folder.point("current", ways.way_back(new, folder.path, ["ams-1", "ams-2"], now).parent / "edges")
    home.run("status", code=1)
    home.run("publish", "--round", instants.show(ROUND), "--once")


def test_a_file_that_nfs_keeps_stops_no_publication(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    left = folder.path / "rounds/.killed/edges"
    left.mkdir(parents=True)
    (folder.path / "rounds/.nfs0001").write_bytes(b"")
    publish(folder, bundles_of(20, 10))
    assert not left.exists()
    assert (folder.path / "rounds/.nfs0001").exists()


def test_a_round_that_is_published_again_in_the_next_month_is_the_newest(tmp_path: Path) -> None:
    folder, moment = PublishFolder(tmp_path), instants.parse("2026-01-31T23:55:00Z")
    made = [publish(folder, {"ams-1": document({}, moment, created_s=after)}) for after in (70, 360)]
    assert folder.rounds() == [path.name for path in made]
    assert folder.publication("2026-01-31T23:55:00Z") == made[1]


def test_one_publish_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = PublishFolder(tmp_path)
    monkeypatch.setattr(publication, "LOCK_WAIT_S", 0)
    with folder.alone(), pytest.raises(SpringtideError, match="another `springtide publish`"):
        publish(folder, bundles_of(20, 10))
    publish(folder, bundles_of(20, 10))


def test_a_rollback_leaves_out_edges_that_have_left_the_fleet(home: Home) -> None:
    folder, moment = PublishFolder(home.publish_dir), instants.show(ROUND - 300)
    decide(home, ROUND - 300, {("ams", "fra"): 40})
    home.run("publish", "--round", moment)
    candidate = folder.resolved("candidate")
    assert candidate is not None
    folder.point("current", candidate / "edges")
    # One is gone, one is in another PoP now.
    text = home.fleet.read_text().replace("      ams-2: {address: 10.77.1.2}\n", "").replace("nyc-1:", "nyc-2:")
    home.fleet.write_text(text.replace("      fra-1:", "      nyc-1: {address: 10.77.2.9}\n      fra-1:"))
    done = home.run("rollback", moment, "--reason", "loss")
    assert done.stderr.splitlines()[:2] == [
        "left out: ams-2: is no longer an edge of ams in fleet.yaml",
        "left out: nyc-1: is no longer an edge of nyc in fleet.yaml",
    ]
    again = folder.resolved("candidate")
    assert again is not None
    assert sorted(path.stem for path in (again / "edges").glob("*.json")) == ["ams-1", "fra-1"]
    home.fleet.write_text(text.replace("ams-1:", "a:").replace("fra-1:", "f:"))
    [line] = home.refused("rollback", moment, "--reason", "loss")
    assert "edges: " in line
