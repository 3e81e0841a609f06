"""The worked example of a rule of the law of starts, decided with and without it in a copy of the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testkit import worked
from testkit.start_law import Loop, policy, row

PAGE = (worked.ROOT / "docs/how-to/add-a-rule.md").read_text()
MANY, FEW = 100, 30
# Two rounds of a path that proves more than the default, with many connections and with few.
SCRIPT = """
import json
from springtide import _core
from testkit import start_law

def decided(connections, *without):
    start_law.WITHOUT[:] = without
    loop = start_law.Loop(start_law.policy())
    for _ in range(2):
        found = loop.round(start_law.row(connections=connections, reached_rate=4e5, reached_connections=30))
    return start_law.reason(found), repr(found.tolist())

print(json.dumps({
    "rules": _core.rules(),
    "many": decided(MANY), "few": decided(FEW), "without": decided(FEW, "few_began"),
}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = ("controller/springtide", "testkit", *worked.CRATES)
    return worked.copy(tmp_path_factory.mktemp("tree"), folders, PAGE)


def as_before(connections: int) -> str:
    """By our own code."""
    loop = Loop(policy())
    for _ in range(2):
        found = loop.round(row(connections=connections, reached_rate=4e5, reached_connections=30))
    decided: Any = found.tolist()
    return repr(decided)


def test_it_is_two_files(tree: Path) -> None:
    assert len(worked.files(PAGE)) <= 2
    assert all((tree / name).read_text() != (worked.ROOT / name).read_text() for name in worked.files(PAGE))


@pytest.mark.proof
def test_it_decides_and_can_be_left_out(tree: Path) -> None:
    worked.build(tree, "springtide-native")
    script = SCRIPT.replace("MANY", str(MANY)).replace("FEW", str(FEW))
    found = json.loads(worked.run(tree, script))
    assert found["rules"][-1] == ["few_began", "A trial among few connections would last for hours."]
    assert found["many"] == ["trial_proved", as_before(MANY)]
    assert found["few"][0] != "trial_proved"
    assert found["without"] == ["trial_proved", as_before(FEW)]
