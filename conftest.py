"""How the tests share the machine's two cores."""

from __future__ import annotations

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A loaded machine is no fault of what is tested.
settings.register_profile("springtide", deadline=None)
settings.load_profile("springtide")

# They fill emulated links, watch the whole machine's sockets or time what they see: one at a time.
ALONE = ("lab/tests/", "pipeline/tests/", "tests/")


class OneAtATime(LoadScopeScheduling):
    """Tests that need the machine to themselves go to one worker; the others fill the other one, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        return "alone" if nodeid.startswith(ALONE) else nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAtATime:
    return OneAtATime(config, log)
