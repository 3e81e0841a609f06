"""Checks what the play that fetches spool files lets one edge leave on the disk. rsync only writes down its words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ANSIBLE = Path(__file__).resolve().parents[1]
# Files that wait at the publisher, of each edge that has enough there: names, how many, and the bytes of each.
WAITING = {
    "a-file": ("7.spool", 1, 30_000),
    "a-hidden-one": (".7.spool", 1, 30_000),
    "one-kept-aside": ("rejected/7.bad", 1, 30_000),
    "many-small-ones": ("{}.spool", 30, 1),
}
EMPTY = "nothing"
RSYNC = """\
#!/bin/sh
for last; do :; done
printf '%s\\n' "$@" > "$last/called"
"""


class Fetched(NamedTuple):
    """Ansible's output, and by edge the arguments of rsync, None where it was not called."""

    said: str
    called: dict[str, list[str] | None]


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    """One fetch from all edges."""
    folder = tmp_path_factory.mktemp("fetched")
    for edge, (name, files, size) in WAITING.items():
        for number in range(files):
            path = folder / "spool" / edge / name.format(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(size))
    edges = {edge: {"address": f"10.77.1.{number}"} for number, edge in enumerate([*WAITING, EMPTY], 1)}
    fleet = {"version": 1, "pops": {"ams": {"prefixes": ["10.77.1.0/24"], "edges": edges}}}
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    said = fetch(folder, 20_000)
    called = {}
    for edge in edges:
        file = folder / "spool" / edge / "called"
        called[edge] = file.read_text().splitlines() if file.exists() else None
    return Fetched(said, called)


def fetch(folder: Path, waiting_bytes: int) -> str:
    """Ansible's output."""
    (folder / "bin").mkdir()
    (folder / "bin/rsync").write_text(RSYNC)
    (folder / "bin/rsync").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible/tmp"),
        "ANSIBLE_NOCOLOR": "1",
    }
    values = f"springtide_spool_dir={folder / 'spool'} springtide_spool_waiting_bytes={waiting_bytes}"
    values += f" ansible_python_interpreter={sys.executable}"
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "fleet.yaml"), "-e", values]
    command.append(str(ANSIBLE / "playbooks/spools.yml"))
    # The bound on the play is only for a machine that stands still.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("edge", WAITING)
def test_an_edge_that_has_enough_waiting_sends_no_more_and_the_others_do(fetched: Fetched, edge: str) -> None:
    assert fetched.called[edge] is None, fetched.said
    refusal = rf"^fatal: \[{edge}\]: .*springtide_spool_waiting_bytes"
    assert re.search(refusal, fetched.said, re.MULTILINE), fetched.said
    assert fetched.called[EMPTY] is not None, fetched.said


def test_a_file_that_is_hidden_is_not_fetched(fetched: Fetched) -> None:
    """The first rule that fits counts."""
    called = fetched.called[EMPTY]
    assert called is not None, fetched.said
    rules = [one for one in called if one.startswith(("--include", "--exclude"))]
    assert rules == ["--exclude=.*", "--include=*.spool", "--exclude=*"]
