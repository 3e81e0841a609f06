"""How the tests share the machine's two cores."""

from __future__ import annotations

import os
import signal
from types import FrameType

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A loaded machine is not a fault of what is tested.
settings.register_profile("springtide", deadline=None)
settings.load_profile("springtide")

# They fill emulated links, watch the whole machine's sockets or time what they see: one at a time. This chain takes
# longest of all; what is named below it is in these folders and does none of that.
ALONE = ("lab/tests/", "tests/")
BESIDE = (
    "lab/tests/test_demo_summary.py",
    "lab/tests/test_sizes.py",
    "lab/tests/test_topology.py",
    "lab/tests/test_wan_config.py",
    "tests/pipeline/test_chain.py",
    "tests/pipeline/test_consume.py",
    "tests/pipeline/test_memory.py",
    "tests/pipeline/test_poison.py",
    "tests/pipeline/test_same_decisions.py",
    "tests/pipeline/test_tail.py",
    "tests/pipeline/test_topics.py",
    "tests/test_add_a_field.py",
    "tests/test_add_a_law.py",
    "tests/test_architecture.py",
    "tests/test_bench_start.py",
    "tests/test_bench_traffic.py",
    "tests/test_benches.py",
    "tests/test_calm.py",
    "tests/test_calm_start.py",
    "tests/test_claims.py",
    "tests/test_completion.py",
    "tests/test_compose.py",
    "tests/test_docs_commands.py",
    "tests/test_docs_pages.py",
    "tests/test_edge_package.py",
    "tests/test_flights.py",
    "tests/test_gate_budget.py",
    "tests/test_install_steps.py",
    "tests/test_opted_out.py",
    "tests/test_package.py",
    "tests/test_push_how_to.py",
    "tests/test_reference.py",
    "tests/test_release.py",
    "tests/test_tutorial.py",
)


class OneAtATime(LoadScopeScheduling):
    """Tests that need the machine to themselves go to one worker; the others fill the other ones, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        alone = nodeid.startswith(ALONE) and not nodeid.startswith(BESIDE)
        return "alone" if alone else nodeid.split("::", 1)[0]


def pytest_sessionstart(session: pytest.Session) -> None:
    def end(_: int, __: FrameType | None) -> None:
        # What tests have made is removed on the way, as after Ctrl-C; a second signal does not interrupt that. Where
        # something takes the exception for its own, as commands do that run in this process, it ends after that test.
        signal.signal(signal.SIGTERM, lambda *_: None)
        session.shouldstop = "ended by SIGTERM"
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    if os.geteuid() == 0 and not hasattr(session.config, "workerinput"):
        from testkit.leftovers import sweep

        sweep()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAtATime:
    return OneAtATime(config, log)
