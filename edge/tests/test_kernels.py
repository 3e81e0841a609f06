"""An old and a new kernel of Debian's, booted by emulation: the edge's programs do there what they do here."""

from __future__ import annotations

import json
import socket
import subprocess
import time

import pytest

from testkit.bpf import ROOT
from testkit.kernels import table
from testkit.kernels.__main__ import run
from testkit.kernels.compare import as_ss, fields

COLLECTOR = ROOT / "target/release/springtide-collector"
LOCKED = {"lockdown_integrity", "lockdown_confidentiality"}
NAMED = {name for names in table.LINES.values() for name in names}


@pytest.mark.root
@pytest.mark.parametrize("series", ["5.10", pytest.param("7.3", marks=pytest.mark.proof)])
def test_every_check_passes_on_the_oldest_and_the_newest_kernel(series: str) -> None:
    row = run(series, lockdowns=())
    assert row["wrong"] == {}, row["version"]
    assert row["loads"]
    assert set(row["checks"]) == NAMED - LOCKED, "every line of the documentation's table is checked, and no more"


def test_the_documentation_says_what_the_kept_result_says() -> None:
    result = json.loads(table.TABLE.kept.read_text())
    assert table.TABLE.page.read_text() == table.TABLE.text(), (
        "run `make kernels` and `python -m testkit.kernels --docs`"
    )
    assert result["fields"] == fields()
    for row in result["kernels"]:
        assert set(row["checks"]) == NAMED, "a check was added since: run `make kernels` again"


def test_a_check_that_failed_or_was_not_made_is_not_called_passed() -> None:
    result = json.loads(table.TABLE.kept.read_text())
    first = result["kernels"][0]
    lines = table.table(result).splitlines()
    [at] = [number for number, line in enumerate(lines) if "BBR" in line]
    first["checks"]["opens_by_bbr"] = False
    assert table.table(result).splitlines()[at].split(" | ")[1] == "no"
    del first["checks"]["opens_by_bbr"]
    assert table.table(result).splitlines()[at].split(" | ")[1] == "-"
    lines[at] = ""
    assert [line for line in table.table(result).splitlines() if "BBR" not in line] == [line for line in lines if line]


def test_every_compared_field_is_found_where_it_differs_from_ss() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as opened:
        port, accepted = server.getsockname()[1], server.accept()[0]
        opened.sendall(b"x" * 1000)
        accepted.recv(1000)
        time.sleep(0.3)  # until nothing is on its way
        ss = subprocess.run(["ss", "-tinmeHO", f"sport = :{port} or dport = :{port}"], capture_output=True, text=True)
        once = [
            str(COLLECTOR),
            "once",
            "--format",
            "json",
            "--netns",
            "own",
            "--filter",
            f"port {port} and not dport 0",
        ]
        samples = subprocess.run(once, capture_output=True, text=True, check=True).stdout.splitlines()
        accepted.close()
    lines = [f"ss {line}" for line in ss.stdout.splitlines() if line.startswith("ESTAB")]
    said = "\n".join(lines + [f"sample {line}" for line in samples])
    assert len(fields()) > 50
    assert as_ss(said) == ""
    for field in fields():
        wrong = json.loads(samples[0])
        value = wrong.get(field, 0)
        wrong[field] = (
            not value if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else value + 50_000
        )
        found = as_ss("\n".join([*lines, f"sample {json.dumps(wrong)}", *(f"sample {line}" for line in samples[1:])]))
        assert found.startswith(f"{field} is "), (field, found)
