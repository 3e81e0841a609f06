"""Dead routes, future rounds, pipes and missing readers block no edge, lock none out and keep none busy."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from deploy.ansible.tests.test_watch import copied, eventually, watching
from testkit.edge import PROGRAM, Edge, at_once, bundle, instant, remount_read_only

pytestmark = pytest.mark.root

LONG = 120  # seconds that a run takes only where it hangs, or on a machine that stands still
DESTINATION = "10.77.2.0/24"


# --- next hops that run out


def test_a_route_that_runs_out_is_left_when_it_does(edge: Edge) -> None:
    """The kernel shows it until it has cleaned up, and sends no event. It is followed to before it has a lifetime: four
    seconds bound nothing."""
    edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
    subprocess.run(
        ["ip", "netns", "exec", edge.name, "sysctl", "-q", "-w", "net.ipv6.route.gc_interval=3600"], check=True
    )
    assert edge.run("apply", edge.write(bundle({"fd77:0:2::/48": 40}))).code == 0
    with watching(edge):
        edge.ip("-6", "route", "add", "fd77::/32", "via", "fd00:1::2")
        eventually(lambda: "via fd00:1::2" in edge.table(6)[0], "the copy did not follow to the route")
        edge.ip("-6", "route", "replace", "fd77::/32", "via", "fd00:1::2", "expires", "4")
        eventually(lambda: "via fd00::2" in edge.table(6)[0], "the copy did not leave the dead route")
        eventually(lambda: bool(edge.status()["in_sync"]), "the copy of what is left is not in sync")
    dead = [line for line in edge.table(6, "main") if line.startswith("fd77::/32")]
    assert len(dead) == 1, "the kernel has cleared up: this tested nothing"


def test_status_is_in_sync_only_with_next_hops_that_are_in_main(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({"10.1.0.0/16": 50, "10.2.0.0/16": 50})
    assert edge.run("status").code == 0
    edge.ip("route", "replace", "default", "via", "192.168.1.2")
    moved = edge.run("status")
    assert (moved.code, moved.report["in_sync"], len(moved.report["drift"])) == (3, False, 2)
    assert "via 192.168.1.2" in moved.report["drift"][0]["wanted"]
    assert "via 192.168.0.2" in moved.report["drift"][0]["found"]
    edge.ip("route", "add", "10.2.9.0/24", "via", "192.168.0.2")
    hidden = edge.status()
    assert [entry["prefix"] for entry in hidden["refused"]] == ["10.2.0.0/16"]
    assert edge.run("follow").code == 3
    assert edge.status()["in_sync"] is True
    edge.ip("rule", "add", "pref", "2000", "fwmark", "7", "lookup", "99")
    assert edge.status()["in_sync"] is False
    edge.ip("rule", "del", "pref", "2000")
    [kept] = edge.state_dir.glob("bundle-*.json")
    kept.write_text("{}")
    assert edge.status()["in_sync"] is False


# --- rounds


def test_a_round_far_ahead_locks_out_until_root_forgets_it_and_old_bundles_stay_out(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    now = time.time()

    def written(created: float, ahead: int, window: int) -> str:
        return edge.write(bundle({DESTINATION: window}, now=created, round=instant(created + ahead)))

    older, ahead = written(now - 60, 0, 20), written(now, 3500, 30)
    unused = written(now - 1, 3550, 31)
    assert edge.run("apply", ahead).code == 0
    assert edge.run("apply", written(time.time(), 0, 40)).code == 14
    assert edge.run("withdraw").code == 0
    assert edge.run("apply", written(time.time(), 0, 41)).code == 14, "a withdrawal alone forgets nothing"
    assert edge.run("withdraw", "--forget-round").report["changed"] is True
    for path in (older, ahead, unused):
        outcome = edge.run("apply", path)
        assert (outcome.code, ": created_at: " in outcome.errors) == (14, True), (
            "what was signed before may be a replay"
        )
    assert edge.windows() == {}
    new = written(time.time() + 2, 0, 50)
    assert edge.run("apply", new).code == 0
    for path in (older, ahead, unused):
        assert edge.run("apply", path).code == 14, "not even with a round that is ahead of the new one"
    assert edge.windows() == {DESTINATION: 50}
    assert edge.run("apply", new).code == 0, "the same again is not one of these"


def test_a_round_is_not_forgotten_where_that_cannot_be_recorded(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.state_dir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "springtide-test", str(edge.state_dir)], check=True)
    try:
        assert edge.apply({DESTINATION: 20}).code == 0
        remount_read_only(edge.state_dir)
        assert edge.run("withdraw", "--forget-round").code == 1
    finally:
        subprocess.run(["umount", str(edge.state_dir)], check=True)


# --- pipes in place of files


@pytest.mark.parametrize("which", ["bundle", "signature", "allowed_signers", "edge"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(edge: Edge, which: str) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    bundle_file = Path(edge.write(bundle({DESTINATION: 83})))
    etc_edge = edge.directory / "pipe"
    place = {
        "bundle": bundle_file,
        "signature": bundle_file.with_name(f"{bundle_file.name}.sig"),
        "allowed_signers": edge.allowed_signers,
        "edge": etc_edge,
    }[which]
    place.unlink(missing_ok=True)
    os.mkfifo(place, 0o600)
    command = edge.command("apply", str(bundle_file))
    if which == "edge":
        at = command.index("--edge")
        command[at : at + 2] = []
        mounted = f'mount -t tmpfs none /etc && mkdir /etc/springtide && ln -s {etc_edge} /etc/springtide/edge && "$@"'
        at = command.index(str(PROGRAM))
        command = [*command[:at], "unshare", "--mount", "sh", "-c", mounted, "sh", *command[at:], "--unsigned"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, "is not a regular file" in done.stderr) == (2, True)
    assert edge.windows() == {}


@pytest.mark.parametrize("name", ["state.json", "intent.json"])
def test_a_pipe_in_the_state_directory_is_damage(edge: Edge, name: str) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    (edge.state_dir / name).unlink(missing_ok=True)
    os.mkfifo(edge.state_dir / name)
    done = subprocess.run(edge.command("expire"), check=False, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stderr) == (0, "")
    assert edge.windows() == {}


# --- a watch without a reader


def busy_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


STREAMS = ["a pipe without a reader", "closed", "a full device"]


def test_a_watch_without_a_reader_goes_on_and_does_not_spin(tmp_path: Path) -> None:
    def goes_on(stream: str) -> None:
        directory = tmp_path / stream
        directory.mkdir()
        with Edge.made(directory) as edge:
            watch_goes_on(edge, stream)

    at_once(goes_on, STREAMS)


def watch_goes_on(edge: Edge, stream: str) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    # The tests' caller may ignore SIGHUP, as nohup does, and a child then ignores it too.
    command = ["env", "--default-signal=HUP", *edge.command("watch", "--interval", "3600")]
    if stream == "closed":
        command = ["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *command]
    out = subprocess.PIPE
    with Path(os.devnull if stream == "closed" else "/dev/full").open("w") as device:
        process = subprocess.Popen(
            command,
            stdout=out if stream == "a pipe without a reader" else device,
            stderr=subprocess.STDOUT,
        )
    try:
        if process.stdout is not None:
            process.stdout.close()
        for via in ("192.168.1.2", "192.168.0.2", "192.168.1.2"):
            # Not before the watch listens: until then nothing is followed at all.
            eventually(
                lambda: Path(f"/proc/{process.pid}/comm").read_text().startswith("springtide-edge"), "it did not start"
            )
            edge.ip("route", "replace", "default", "via", via)
            eventually(copied(edge, via), "the copy did not follow")
        time.sleep(0.7)  # for events that the last change causes
        # No load of others' is a part of its own processor time: it took none of the half second, 75 times of 75 and
        # beside two busy processes.
        begin, used = time.monotonic(), busy_s(process.pid)
        time.sleep(1.5)
        assert busy_s(process.pid) - used < (time.monotonic() - begin) / 3, "it spins"
        process.send_signal(signal.SIGHUP)
        assert process.wait(LONG) == -signal.SIGHUP
    finally:
        process.kill()
        process.wait()


def test_a_withdrawal_needs_no_reader_of_its_output(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.apply({DESTINATION: 83})
    with Path("/dev/full").open("w") as device:
        done = subprocess.run(edge.command("withdraw"), check=False, stdout=device, stderr=device, timeout=LONG)
    assert (done.returncode, edge.windows()) == (0, {})
