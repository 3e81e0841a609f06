"""Checks what the play that fetches spool files lets one edge leave on the disk. rsync only writes down its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ANSIBLE = Path(__file__).resolve().parents[1]
FLEET = """\
version: 1
pops:
  ams:
    prefixes: [10.77.1.0/24]
    edges: {ams-1: {address: 10.77.1.1}, ams-2: {address: 10.77.1.2}}
"""
RSYNC = """\
#!/bin/sh
for last; do :; done
printf '%s\\n' "$@" > "$last/called"
"""


def fetch(folder: Path, waiting_bytes: int) -> tuple[str, dict[str, list[str] | None]]:
    """Ansible's output, and by edge the arguments of rsync, None where it was not called."""
    (folder / "fleet.yaml").write_text(FLEET)
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
    called = {}
    for edge in ("ams-1", "ams-2"):
        file = folder / "spool" / edge / "called"
        called[edge] = file.read_text().splitlines() if file.exists() else None
    return done.stdout + done.stderr, called


@pytest.mark.parametrize(
    ("name", "files", "size"),
    [("7.spool", 1, 30_000), (".7.spool", 1, 30_000), ("rejected/7.bad", 1, 30_000), ("{}.spool", 30, 1)],
    ids=["a file", "a hidden one", "one kept aside", "many small ones"],
)
def test_an_edge_that_has_enough_waiting_sends_no_more_and_the_others_do(
    tmp_path: Path, name: str, files: int, size: int
) -> None:
    for number in range(files):
        path = tmp_path / "spool/ams-1" / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    said, called = fetch(tmp_path, 20_000)
    assert called["ams-1"] is None, said
    assert "springtide_spool_waiting_bytes" in said
    assert called["ams-2"] is not None, said


def test_a_file_that_is_hidden_is_not_fetched(tmp_path: Path) -> None:
    """The first rule that fits counts."""
    said, called = fetch(tmp_path, 20_000)
    assert called["ams-1"] is not None, said
    rules = [one for one in called["ams-1"] if one.startswith(("--include", "--exclude"))]
    assert rules == ["--exclude=.*", "--include=*.spool", "--exclude=*"]
