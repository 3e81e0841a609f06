"""Shares the machine's two cores among the tests."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["testkit.spent"]

# Tests compile as set-up did.
for line in (Path(__file__).parent / "tools/checked").read_text().splitlines():
    if not line.startswith("#"):
        os.environ.setdefault(*line.split("=", 1))

# A loaded machine is not a fault of what is tested.
settings.register_profile("springtide", deadline=None)
settings.load_profile("springtide")

# One after another, in one worker: each fills emulated links, and asserts how long that takes or what they drop. Two at
# once share the processors that emulate them.
ALONE = {
    "lab/tests/test_canary.py": "a wave whose windows overflow a path",
    "lab/tests/test_clients.py": "clients that lose, and the brake that must find it",
    "lab/tests/test_estimate.py": "answers, within 15 % of what clients wait",
    "lab/tests/test_network.py": "round trips, rates and losses of links",
    "lab/tests/test_probe_program.py": "probes, beside their path's round trip",
    "lab/tests/test_start.py": "starts, within half a round trip of the path's limit",
    "lab/tests/test_truth.py": "what the emulator carried, beside what was counted",
    "lab/tests/test_wan_crossing.py": "packets that a link delays and drops",
    "tests/test_closed_loop.py": "the demo, before and after",
}


class OneAtATime(LoadScopeScheduling):
    """The files of ALONE go to one worker; the others fill the other ones, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "alone" if file in ALONE else file


def pytest_sessionstart(session: pytest.Session) -> None:
    def end(_: int, __: FrameType | None) -> None:
        # Things that tests have made are removed on the way, as after Ctrl-C; a second signal does not interrupt that.
        # Commands in this process take the exception for their own: then it ends after that test.
        signal.signal(signal.SIGTERM, lambda *_: None)
        session.shouldstop = "ended by SIGTERM"
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    if os.geteuid() == 0 and not hasattr(session.config, "workerinput"):
        from testkit.leftovers import sweep

        sweep()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The files of ALONE take one worker longest, so they begin first.
    items.sort(key=lambda item: item.nodeid.split("::", 1)[0] not in ALONE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAtATime:
    return OneAtATime(config, log)


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first process makes that asks for it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    folder.mkdir(exist_ok=True)
    with (folder.parent / f"{name}.made").open("a+") as made:
        fcntl.flock(made, fcntl.LOCK_EX)
        # Its end now: another process may have written since it was opened.
        if made.seek(0, os.SEEK_END) == 0:
            make(folder)
            made.write("yes")
    return folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated store for copies."""
    from testkit.home import migrated

    return made_once(tmp_path_factory, "template", migrated) / "store"


@pytest.fixture(scope="session")
def history(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that has testkit.history and the tables of its rounds, for copies."""
    from testkit.history import live

    return made_once(tmp_path_factory, "history", partial(live, template))
