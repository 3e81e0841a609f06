"""The publication package: the controller's and the plays' are one, and it needs nothing but Python."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import springtide.publication
from springtide.publication import journal
from springtide.publication.folder import PublishFolder
from testkit.edge import bundle
from testkit.published import publish

PACKAGE = Path(springtide.publication.__file__).parent
LINKED = Path(__file__).parents[1] / "plugins/module_utils/springtide"
# Neither site-packages nor the environment: what is imported comes from the collection or from Python itself.
ALONE = [sys.executable, "-S", "-I", "-B", "-c"]
RUN = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("springtide.publication", run_name="__main__", alter_sys=True)
"""


def test_the_plays_have_every_file_of_the_package_and_none_of_their_own() -> None:
    own = {path.name: path for path in PACKAGE.glob("*.py")}
    assert {path.name for path in (LINKED / "publication").iterdir()} - {"__pycache__"} == own.keys()
    for name, path in own.items():
        assert (LINKED / "publication" / name).samefile(path)
    for name in ("errors.py", "instants.py"):
        assert (LINKED / name).samefile(PACKAGE.parent / name)


@pytest.mark.parametrize("path", sorted(LINKED.rglob("*.py")), ids=lambda path: str(path.relative_to(LINKED)))
def test_it_imports_the_standard_library_and_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").partition(".")[0] in sys.stdlib_module_names


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [*ALONE, RUN, str(LINKED.parent), *map(str, arguments)]
    return subprocess.run(words, check=False, capture_output=True, text=True)


def test_the_command_moves_current_as_a_play_does_without_the_controller(tmp_path: Path) -> None:
    folder = PublishFolder(tmp_path)
    first = publish(folder, {"ams-1": bundle({"10.0.1.0/24": 20})})
    where = ("--publish-dir", tmp_path)
    named = (*where, "--publication", first.name, "--edges", "ams-1")

    def holds() -> str:
        held = folder.resolved("current")
        return "" if held is None else f"{held.parent.name}/{held.name}"

    for event, verdict, part, then in (
        ("rollout", "begun", "back", "back"),
        ("rollout", "done", "edges", "edges"),
        # Once more: until it fails, what holds is the round.
        ("rollout", "begun", "back", "edges"),
        ("rollback", "begun", "back", "back"),
        ("rollback", "done", "back", "back"),
    ):
        done = command("record", *named, "--event", event, "--verdict", verdict, "--holds", part, "--details", "{}")
        assert (done.returncode, done.stderr) == (0, "")
        assert holds() == f"{first.name}/{then}"
    assert command("withdraw", *where, "--reason", "loss").returncode == 0
    assert (tmp_path / "withdrawn").read_text().endswith(": loss\n")
    assert command("end-withdrawal", *where).returncode == 0
    assert not (tmp_path / "withdrawn").exists()

    events, _, damaged = journal.read(tmp_path)
    assert [event.verdict for event in events] == ["begun", "done", "begun", "begun", "done"]
    assert damaged == 0
    assert all(event.publication == first.name and list(event.edges) == ["ams-1"] for event in events)
    keys = {tuple(json.loads(line)) for line in (tmp_path / journal.FILE).read_text().splitlines()}
    assert keys == {
        ("at_unix_s", "details", "digest", "edges", "event", "id", "publication", "reason", "verdict", "who")
    }


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--publication", "../..", "--holds", "back"], 2, "is not a part of a publication"),
        (["--publication", "2026-01-02T03:05:00Z-1", "--holds", "edges"], 2, "is not a part of a publication"),
        (["--holds", "back"], 2, "is not a part of a publication"),
        (["--holds", "/etc"], 2, "invalid choice"),
        (["--details", "[]"], 2, "invalid"),
    ],
)
def test_what_is_not_part_of_a_publication_does_not_come_to_hold(
    tmp_path: Path, more: list[str], code: int, message: str
) -> None:
    publish(PublishFolder(tmp_path), {"ams-1": bundle({})})
    done = command("record", "--publish-dir", tmp_path, "--event", "rollout", "--verdict", "done", *more)
    assert done.returncode == code
    assert message in done.stderr
    assert not (tmp_path / "current").exists()
    assert not (tmp_path / journal.FILE).exists()
