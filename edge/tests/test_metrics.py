"""Metrics that the edge's program writes for node_exporter's textfile collector."""

from __future__ import annotations

import fcntl
import re
import subprocess
import time
from pathlib import Path

import pytest

from lab.collector import wait_until
from testkit.bpf import ROOT, Program, binary
from testkit.edge import bundle
from testkit.host import Host

pytestmark = pytest.mark.root

PROMTOOL = ROOT / "target/tools/promtool"


def values(file: Path) -> dict[str, float]:
    """By name without the prefix, with labels; promtool takes the file."""
    text = file.read_text()
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("springtide_edge_"): float(value) for name, value in rows}


def measured(host: Host, file: Path, *, later: int = 0) -> dict[str, float]:
    host.run("follow", "--metrics", str(file), later=later)
    return values(file)


def test_what_routes_enforce_is_measured(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "edge.prom"
    nothing = measured(host, file)
    assert (nothing["applied"], nothing["in_sync"], nothing["routes"], nothing["pass_succeeded"]) == (0, 1, 0, 1)
    document = bundle({"10.77.2.0/24": 30, "fd77:2::/48": 30, "203.0.113.0/24": 20})
    assert host.run("apply", host.edge.write(document)).code == 3, "there is no route to the last one"
    found = measured(host, file)
    shown = {name: found[name] for name in ("applied", "in_sync", "entries", "routes", "refused_destinations")}
    assert shown == {"applied": 1, "in_sync": 1, "entries": 2, "routes": 2, "refused_destinations": 1}
    assert [found[f'enforced{{by="{by}"}}'] for by in ("routes", "bpf", "nothing")] == [1, 0, 0]
    assert found["expires_time_seconds"] - found["created_time_seconds"] == 600
    assert abs(found["applied_time_seconds"] - time.time()) < 60
    [info] = [name for name in found if name.startswith("info")]
    assert f'edge="{document["edge"]}",pop="{document["pop"]}"' in info
    assert "attached" not in found, "there is no program"
    assert file.stat().st_mode & 0o777 == 0o644
    over = measured(host, file, later=700)
    assert (over["applied"], over["in_sync"], over["routes"]) == (0, 1, 0)
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["edge.prom"]


def test_what_the_program_has_done_is_measured(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "edge.prom"
    assert host.run("apply", host.document()).code == 0
    assert host.windows() == [60, 40]
    found = measured(host, file)
    assert found['enforced{by="bpf"}'] == found["attached"] == found["in_sync"] == 1
    names = ("entries", "routes", "started_total", "switched_total", "prefixes", "prefixes_limit")
    assert [found[name] for name in names] == [2, 0, 2, 1, 2, 262144]
    assert found['refused_total{what="window"}'] == found['braked_entries{arm="entry",step="half"}'] == 0
    assert found["brake_steps_total"] == found["brake_excused_total"] == 0
    # Another program over the same connections, and a map that is full.
    other = Program(binary(), host.cgroup, host.pins.with_name(f"{host.pins.name}-other"))
    try:
        other.apply({"entries": [{"prefix": "203.0.113.0/24", "initcwnd": 20}]})
        assert measured(host, file)["other_programs"] == 1
    finally:
        other.withdraw()


def test_drift_is_measured_where_the_pass_cannot_mend_it(host: Host, tmp_path: Path) -> None:
    """Somebody keeps the lock: the pass fails, and says nothing of what it has not seen."""
    file = tmp_path / "edge.prom"
    assert host.run("apply", host.edge.write(bundle({"10.77.2.0/24": 30}))).code == 0
    with (host.edge.state_dir / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        host.edge.batch(["route del 10.77.2.0/24 table 201"])
        assert host.run("follow", "--lock-wait", "0.1", "--metrics", str(file)).code != 0
    found = values(file)
    assert (found["pass_succeeded"], found["in_sync"], found["routes"]) == (0, 0, 0)
    found = measured(host, file)
    assert (found["pass_succeeded"], found["in_sync"], found["routes"]) == (1, 1, 1)


def test_a_directory_that_is_not_there_stops_nothing_and_is_said_once(host: Host, tmp_path: Path) -> None:
    assert host.run("apply", host.document()).code == 0
    folder = tmp_path / "absent"
    command = host.command("watch", "--interval", "1", "--metrics", str(folder / "edge.prom"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stderr is not None
            said = watching.stderr.readline()
            assert re.fullmatch(
                r"springtide-edge: .*/absent/edge.prom: cannot be written: .*; it goes on without\n", said
            )
            # It mends what others do all the while, also a second time.
            for _ in range(2):
                (host.pins / "v6/link").unlink()
                wait_until("link that is mended", (host.pins / "v6/link").exists)
            folder.mkdir()
            wait_until("file of metrics", (folder / "edge.prom").exists)
            assert values(folder / "edge.prom")["files_missed_total"] >= 2
        finally:
            watching.kill()
        assert watching.stderr.read() == "", "once"
