"""Work that jobs do again after a kill, or for rounds that were missed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from springtide import instants
from springtide.fleet import load_fleet
from springtide.jobs import due as due_rounds
from springtide.jobs import publish as publishing
from springtide.jobs.decide import decide, report
from springtide.laws.registry import LAWS
from springtide.observe.rollup import rollup
from springtide.policy import Policy, load_policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.store.base import Store

from testkit.history import INTERVAL, lived
from testkit.home import ROUND, Home

NOW = ROUND + 90


def catch_up(store: Store, policy: Policy, newest: int) -> tuple[list[int], list[int]]:
    """The rounds that were rolled up, and those that were decided."""
    missing = due_rounds.due(store, policy, newest).to_roll_up
    for moment in missing:
        rollup(store, moment, INTERVAL, NOW)
    waiting = due_rounds.undecided(store, policy, newest)
    for moment in waiting:
        for law in LAWS:
            decide(law, store, policy, moment, NOW)
    return missing, waiting


@pytest.fixture(scope="module")
def shared(history: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home in which nothing is decided, and three rounds have no tables."""
    home = lived(history, tmp_path_factory.mktemp("jobs"))
    home.open().execute(f"delete from rollups where round > fromUnixTimestamp({ROUND - 3 * INTERVAL})")
    yield home
    home.release()


@pytest.fixture(scope="module")
def caught_up(shared: Home) -> list[tuple[list[int], list[int]]]:
    """Rounds rolled up and rounds decided, by three runs: up to the round before ROUND, up to ROUND, and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "now", lambda: NOW)
        store, policy = shared.open(), Policy()
        due = due_rounds.due(store, policy, ROUND)
        assert (due.hosts_seen, due.hosts_expected) == (3, 3)
        return [catch_up(store, policy, newest) for newest in (ROUND - INTERVAL, ROUND, ROUND)]


def test_missed_rounds_are_done_in_their_order_and_once(caught_up: list[tuple[list[int], list[int]]]) -> None:
    missed = list(range(ROUND - 5 * INTERVAL, ROUND, INTERVAL))
    first, *then = caught_up
    assert first == (missed[-2:], missed)
    assert then == [([ROUND], [ROUND]), ([], [])]


@pytest.mark.usefixtures("caught_up", "settled")
def test_a_job_writes_the_gauges_that_the_command_writes(shared: Home, tmp_path: Path) -> None:
    shared.run("decide", "all", "--metrics-dir", tmp_path / "command")
    store, known, policy, said = shared.open(), load_fleet(shared.fleet), load_policy(shared.policy), list[str]()
    (tmp_path / "file").touch()
    for law in LAWS:
        outcome = decide(law, store, policy, ROUND, NOW)
        report(law, outcome, known, policy, {"SPRINGTIDE_METRICS_DIR": str(tmp_path / "job")})
        report(law, outcome, known, policy, {"SPRINGTIDE_METRICS_DIR": ""})
        report(law, outcome, known, policy, {"SPRINGTIDE_METRICS_DIR": str(tmp_path / "file")}, said.append)
        name = f"springtide-{law.name}.prom"
        assert (tmp_path / "job" / name).read_text() == (tmp_path / "command" / name).read_text()
        assert said.pop().endswith("the round is decided all the same")


@pytest.mark.usefixtures("caught_up", "settled")
def test_publishing_again_after_a_kill_changes_nothing(shared: Home, tmp_path: Path) -> None:
    folder, policy, known = PublishFolder(tmp_path / "publish"), Policy(), load_fleet(shared.fleet)
    store = shared.open()
    first, moment = publishing.render(store, known, policy, None, NOW)
    assert moment == ROUND
    path, _ = publishing.publish(folder, first.documents, None, policy, NOW, once=True)
    (folder.path / journal.FILE).unlink()  # as a kill between the publication and its line leaves it
    later, _ = publishing.render(store, known, policy, None, NOW + 20)
    assert later.documents != first.documents, "nothing is new, so this shows nothing"
    assert publishing.publish(folder, later.documents, None, policy, NOW + 20, once=True)[0] == path
    assert publishing.publish(folder, later.documents, None, policy, NOW + 30, once=True)[0] == path
    assert folder.rounds() == [path.name]
    [event], _, _ = journal.read(folder.path)
    assert (event.publication, event.digest) == (path.name, publishing.digest_of(first.documents))
    assert publishing.publish(folder, later.documents, None, policy, NOW + 40)[0] != path, "without once it is anew"
