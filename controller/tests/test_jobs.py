"""What jobs do again after a kill, or for rounds that were missed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from springtide.fleet import load_fleet
from springtide.jobs import due as due_rounds
from springtide.jobs import publish as publishing
from springtide.jobs.decide import decide
from springtide.laws.registry import LAWS
from springtide.observe.rollup import rollup
from springtide.policy import Policy
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from springtide.store.base import Store

from testkit.history import INTERVAL, fill
from testkit.home import ROUND, Home

NOW = ROUND + 90


@pytest.fixture
def filled(home: Home, clock: None) -> Home:
    fill(home)
    return home


@pytest.fixture
def store(filled: Home) -> Iterator[Store]:
    opened = filled.open()
    yield opened
    opened.close()


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


def test_missed_rounds_are_done_in_their_order_and_once(store: Store) -> None:
    policy = Policy()
    missed = list(range(ROUND - 5 * INTERVAL, ROUND, INTERVAL))
    due = due_rounds.due(store, policy, ROUND)
    assert (due.hosts_seen, due.hosts_expected) == (3, 3)
    rolled, decided = catch_up(store, policy, ROUND - INTERVAL)
    assert (rolled[-5:], decided) == (missed, missed)
    assert catch_up(store, policy, ROUND) == ([ROUND], [ROUND])
    assert catch_up(store, policy, ROUND) == ([], [])


def test_publishing_again_after_a_kill_changes_nothing(filled: Home, store: Store) -> None:
    folder, policy, known = PublishFolder(filled.path / "publish"), Policy(), load_fleet(filled.fleet)
    catch_up(store, policy, ROUND)
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
