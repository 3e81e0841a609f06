"""Whatever is broken, withdraw, expire and follow end with the kernel's default, and nothing puts the routes back.

Long: every way back, over one set of edges.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from deploy.ansible.tests.test_faults import stopped_in_its_writes, with_killer
from deploy.ansible.tests.test_watch import eventually
from testkit.edge import Edge, Outcome, at_once, bundle, remount_read_only

pytestmark = pytest.mark.root

ROUTES = {"10.1.0.0/16": 20, "10.2.0.0/16": 30, "fd01::/32": 20}
LONG = 120  # seconds that a run takes only where it hangs, or on a machine that stands still
LATER = 700  # seconds after which every bundle of these tests has expired


def run(edge: Edge, command: str, *, later: int = 0, without_ip: bool = False) -> Outcome:
    """The command; its boot `later` seconds longer ago, or where no `ip` can be run."""
    inside = edge.command(command)
    at = inside.index(edge.name) + 1
    wrapper = ["unshare", "--time", f"--boottime={later}"] if later else []
    if without_ip:
        places = {str(Path(found).resolve()) for found in ("/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip")}
        hide = " && ".join(f"mount --bind /dev/null {place}" for place in sorted(places) if Path(place).exists())
        wrapper = ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh", *wrapper]
    inside[at:at] = wrapper
    done = subprocess.run(inside, check=False, capture_output=True, text=True, timeout=LONG)
    assert "panicked" not in done.stderr, done.stderr
    return Outcome(done.returncode, {}, done.stderr)


@contextmanager
def made(directory: Path) -> Iterator[Edge]:
    """With default routes of both families, and a small disk of its own."""
    directory.mkdir(exist_ok=True)
    with Edge.made(directory) as edge:
        edge.ip("route", "add", "default", "via", "192.168.0.2")
        edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
        edge.state_dir.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "springtide-test", str(edge.state_dir)], check=True)
        try:
            yield edge
        finally:
            subprocess.run(["umount", "-l", str(edge.state_dir)], check=True)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Edge]:
    with made(tmp_path) as edge:
        yield edge


# --- what is broken while the routes are to go


@contextmanager
def read_only_disk(edge: Edge) -> Iterator[None]:
    remount_read_only(edge.state_dir)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(edge.state_dir)], check=True)


@contextmanager
def full_disk(edge: Edge) -> Iterator[None]:
    """The last good bundle is all that a withdrawal can make room from."""
    filler = edge.state_dir / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


@contextmanager
def no_run_directory(edge: Edge) -> Iterator[None]:
    """Neither is there one, nor can one be made."""
    shutil.rmtree(edge.run_dir, ignore_errors=True)
    edge.run_dir.write_text("a file stands where the directory should")
    yield
    edge.run_dir.unlink()


@contextmanager
def neither_disk_nor_run_directory(edge: Edge) -> Iterator[None]:
    with read_only_disk(edge), no_run_directory(edge):
        yield


@contextmanager
def held_lock(edge: Edge) -> Iterator[None]:
    with (edge.state_dir / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def damaged_state(edge: Edge) -> Iterator[None]:
    (edge.state_dir / "state.json").write_bytes(b"x")
    yield


@contextmanager
def damaged_state_on_a_read_only_disk(edge: Edge) -> Iterator[None]:
    with damaged_state(edge), read_only_disk(edge):
        yield


@contextmanager
def deleted_state(edge: Edge) -> Iterator[None]:
    subprocess.run(["umount", str(edge.state_dir)], check=True)
    shutil.rmtree(edge.state_dir)
    yield
    subprocess.run(["mount", "-t", "tmpfs", "springtide-test", str(edge.state_dir)], check=True)


@contextmanager
def all_of_it(edge: Edge) -> Iterator[None]:
    with held_lock(edge), no_run_directory(edge):
        remount_read_only(edge.state_dir)
        yield
    subprocess.run(["mount", "-o", "remount,rw", str(edge.state_dir)], check=True)


TROUBLES = [
    read_only_disk,
    full_disk,
    no_run_directory,
    neither_disk_nor_run_directory,
    held_lock,
    damaged_state,
    damaged_state_on_a_read_only_disk,
    deleted_state,
    all_of_it,
]
UNREMEMBERED = (neither_disk_nor_run_directory, all_of_it)
WITHOUT_IP = (no_run_directory, all_of_it)


def test_whatever_is_broken_the_routes_go_and_stay_away(tmp_path: Path) -> None:
    """Each fault on an edge of its own: they wait for their locks at the same time."""

    def stays_away(fault: Callable[[Edge], AbstractContextManager[None]]) -> None:
        with made(tmp_path / fault.__name__) as routed:
            before = routed.picture()
            for command in ("withdraw", "expire", "follow"):
                assert routed.apply(ROUTES).code == 0, "an apply begins anew"
                assert routed.windows() == ROUTES
                with fault(routed):
                    later = 0 if command == "withdraw" else LATER
                    outcome = run(routed, command, later=later, without_ip=fault in WITHOUT_IP)
                    assert routed.picture() == before, outcome
                    # 1: they are gone, and the record of it is not written.
                    assert outcome.code in (0, 1), outcome
                    assert outcome.code == 0 or "are withdrawn, but the record is not written" in outcome.errors
                # The next `follow` meets the same bundle, valid by this clock, and a disk that works.
                assert routed.run("follow").code == 0
                assert routed.picture() == before, f"{command} was undone"
                # 3: what could only be seen by the missing rule may have been wanted by nobody.
                assert routed.run("status").code == (3 if fault in UNREMEMBERED else 0), command

    at_once(stays_away, TROUBLES)


@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="a disk that can be frozen takes a loop device")
def test_a_disk_that_hangs_holds_up_the_record_and_not_the_routes(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    edge.ip("-6", "route", "add", "default", "via", "fd00:0::2")
    before = edge.picture()
    image, disk = edge.directory / "image", str(edge.state_dir)
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    edge.state_dir.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), disk], check=True)
    try:
        for command in ("withdraw", "expire", "follow"):
            assert edge.apply(ROUTES).code == 0
            wrapped = edge.command(command)
            at = wrapped.index(edge.name) + 1
            wrapped[at:at] = [] if command == "withdraw" else ["unshare", "--time", f"--boottime={LATER}"]
            subprocess.run(["fsfreeze", "--freeze", disk], check=True)
            try:
                process = subprocess.Popen(wrapped, stdout=subprocess.DEVNULL)
                eventually(lambda: edge.picture() == before, f"{command} waits for the disk")
            finally:
                subprocess.run(["fsfreeze", "--unfreeze", disk], check=True)
            assert process.wait(LONG) == 0
            assert edge.run("follow").code == 0
            assert edge.picture() == before, f"{command} was undone"
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_routes_that_another_withdrawal_took_meanwhile_are_no_trouble(edge: Edge) -> None:
    """The kernel refuses each of so many deletions: none of the answers is lost or taken for that to something else."""
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    assert edge.apply({f"10.{n // 250}.{n % 250}.0/24": 30 for n in range(2000)}).code == 0
    # The rule is deleted, and it is about to delete the routes.
    command = with_killer(edge, 2, "withdraw", only="write", number=signal.SIGSTOP)
    with standing_still(command) as process:
        assert process is not None
        assert edge.windows() != {}, "it is stopped too late for this test to mean anything"
        assert edge.run("withdraw").code == 0
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (0, "")


def test_copies_do_not_become_stale_behind_a_lock_that_is_never_released(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    assert edge.apply(ROUTES | {"fd01::/32": 20}).code == 3, "nothing covers the IPv6 one"
    held = edge.windows()
    with held_lock(edge):
        busy = edge.run("follow", "--lock-wait", "0.5")
        assert (busy.code, edge.windows()) == (1, held), "the copies are as they should be: there is time"
        edge.ip("route", "replace", "default", "via", "192.168.1.2")
        assert edge.run("follow", "--lock-wait", "0.5").code == 0
        assert (edge.windows(), "lookup 201" in edge.ip("rule")) == ({}, False)
    assert edge.run("follow").code == 0
    assert edge.windows() == {}


@pytest.mark.parametrize("command", ["withdraw", "expire", "follow"])
def test_every_shape_of_route_goes_and_nothing_else(edge: Edge, command: str) -> None:
    """As FRR writes them: `ip route flush` answers EINVAL to these. And what our marks stand on by accident."""
    for number, gateway in enumerate(("192.168.0.2", "192.168.1.2", "fd00:0::2", "fd00:1::2"), 1):
        edge.ip("nexthop", "add", "id", str(number), "via", gateway, "dev", f"up{(number - 1) % 2}")
    for group, members in (("7", "1,3/2,2"), ("8", "3/4")):
        edge.ip("nexthop", "add", "id", group, "group", members)
    edge.ip("nexthop", "add", "id", "9", "blackhole")
    edge.ip("-6", "nexthop", "add", "id", "10", "blackhole")
    edge.batch(["route add 10.1.0.0/16 nhid 1", "route add 10.2.0.0/16 nhid 7", "route add default via 192.168.0.2"])
    edge.ip("-6", "route", "add", "fd01::/32", "nhid", "3")
    edge.ip("-6", "route", "add", "fd02::/32", "nhid", "8")
    assert edge.apply({"10.1.0.0/16": 20, "10.2.0.0/16": 30, "fd01::/32": 20, "fd02::/32": 30}).code == 0
    foreign = [("202", "201"), ("main", "bird"), ("201", "bird")]
    edge.batch([f"route add 10.9.0.0/16 via 192.168.0.2 table {table} proto {proto}" for table, proto in foreign])
    others = [edge.table(version, table) for version in (4, 6) for table in ("254", "255", "202")]
    odd = [
        "add blackhole 10.3.0.0/16",
        "add 10.1.0.0/16 via 192.168.1.2 metric 7",
        "append 10.1.0.0/16 via 192.168.1.2",
        "add 10.1.0.0/16 via 192.168.1.2 tos 0x10",
        "add 10.4.0.0/16 nexthop via 192.168.0.2 weight 3 nexthop via 192.168.1.2",
        "add 10.5.0.0/16 via inet6 fd00:1::2 dev up1",
        "add 10.6.0.0/16 via 192.168.0.2 mtu lock 1400 rtt 100ms congctl reno realms 7",
        "add 10.7.0.0/16 via 192.168.0.2 onlink dev up0 src 192.168.1.1",
        "add local 10.8.0.1 dev lo",
        "add default nhid 2",
        "add 10.10.0.0/16 nhid 9",
    ]
    edge.batch([ours(route) for route in odd])
    odd = [
        "add unreachable fd03::/32",
        "add fd01::/32 via fd00:1::2 metric 7",
        "add fd04::/32 nexthop via fd00:1::2 weight 2 nexthop via fd00:0::2 weight 3",
        "add fd05::/32 from fd06::/48 via fd00:1::2",
        "add fd07::/32 via fd00:1::2 expires 1000",
        "add default nhid 8",
        "add fd08::/32 nhid 10",
    ]
    for route in odd:
        edge.ip("-6", *ours(route).split())
    outcome = run(edge, command, later=0 if command == "withdraw" else LATER)
    assert outcome.code == 0, outcome
    assert [edge.table(version, table) for version in (4, 6) for table in ("254", "255", "202")] == others
    assert (edge.table(4), edge.table(6)) == (["10.9.0.0/16 via 192.168.0.2 dev up0 proto 12"], [])
    assert "lookup 201" not in edge.ip("rule") + edge.ip("-6", "rule")


def ours(route: str) -> str:
    """As arguments of `ip`, with our marks: they come before the hops."""
    head, hop, hops = route.partition(" nexthop ")
    return f"route {head} table 201 proto 201{hop}{hops}"


def test_a_withdrawal_that_only_run_remembers_holds_also_where_there_was_no_rule_to_take(routed: Edge) -> None:
    routed.ip("route", "del", "default")
    assert routed.apply({"10.1.0.0/16": 20}).code == 3, "no route of the edge's own covers it yet"
    with read_only_disk(routed):
        assert run(routed, "withdraw").code == 1
        assert routed.status()["withdrawn"]["reason"] == "withdrawn by command"
        routed.ip("route", "add", "default", "via", "192.168.0.2")
        assert routed.run("follow").code == 1, "it would be reported if it were recorded"
        assert routed.windows() == {}
    assert routed.run("follow").code == 0
    assert routed.windows() == {}
    shutil.rmtree(routed.run_dir)
    assert routed.status()["withdrawn"]["reason"] == "withdrawn by command", "now it is recorded"


def test_a_rule_removed_by_hand_is_a_withdrawal(routed: Edge) -> None:
    before = routed.picture()
    assert routed.apply(ROUTES).code == 0
    path = routed.write(bundle(ROUTES))
    assert routed.run("apply", path).code == 0
    routed.ip("rule", "del", "pref", "1000")
    assert routed.run("status").code == 3
    assert "IPv4 rule was taken away" in routed.run("follow").report["reason"]
    assert routed.picture() == before
    assert routed.run("follow").report["changed"] is False
    found = routed.run("status")
    assert (found.code, found.report["in_sync"]) == (3, False), "nobody requested it: it is reported"
    assert run(routed, "status", later=LATER).code == 0, "by then the bundle has expired anyway"
    assert routed.run("apply", path).code == 0, "the same bundle again"
    assert routed.windows() == ROUTES
    assert routed.run("status").code == 0


# --- a run that is stopped


@contextmanager
def stopped_before(edge: Edge, step: int, path: str) -> Iterator[subprocess.Popen[str] | None]:
    """An apply that is stopped just before its N-th step; None when it has fewer."""
    with standing_still(with_killer(edge, step, "apply", path, only="", number=signal.SIGSTOP)) as process:
        yield process


@contextmanager
def standing_still(command: list[str]) -> Iterator[subprocess.Popen[str] | None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
            time.sleep(0.005)
        yield process if process.poll() is None else None
    finally:
        process.kill()
        process.communicate()


def test_an_apply_stopped_at_any_step_restores_nothing_after_a_withdrawal(tmp_path: Path) -> None:
    """Each step on an edge of its own, so that all withdrawals wait for their locks at the same time."""
    seen = []

    def puts_nothing_back(step: int) -> None:
        directory = tmp_path / str(step)
        directory.mkdir()
        with Edge.made(directory) as edge:
            edge.ip("route", "add", "default", "via", "192.168.0.2")
            before = edge.picture()
            if step % 2 == 1:  # half of them have routes, and with them the rule, from before
                assert edge.apply({"10.1.0.0/16": 20, "10.3.0.0/16": 40}).code == 0
            path = edge.write(bundle({"10.1.0.0/16": 25, "10.2.0.0/16": 30}))
            with stopped_before(edge, step, path) as process:
                if process is None:
                    return
                seen.append(step)
                assert edge.run("withdraw").code == 0
                assert edge.picture() == before
                os.kill(process.pid, signal.SIGCONT)
                _, errors = process.communicate(timeout=LONG)
            assert edge.picture() == before, errors
            assert process.returncode in (0, 1), errors
            assert process.returncode == 0 or "another run withdrew every route meanwhile" in errors
            assert edge.run("follow").code == 0
            assert edge.picture() == before
            assert edge.run("status").code == 0

    at_once(puts_nothing_back, range(1, 46, 3))
    assert len(seen) > 6, "the hook saw too few steps to mean anything"


MANY = {f"10.{n // 250}.{n % 250}.0/24": 30 for n in range(2000)}


def test_late_writes_of_a_stopped_run_have_no_effect(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    assert edge.apply({"10.1.0.0/16": 20}).code == 0
    with stopped_in_its_writes(edge, MANY) as process:
        before = edge.table(table="254")
        expiry = run(edge, "expire")
        # The rule: of the routes the old ones may be gone already, and the new ones not be there yet.
        assert (expiry.code, "lookup 201" in edge.ip("rule")) == (0, True), "valid until its bundle's end"
        assert run(edge, "expire", later=LATER).code == 0
        assert (edge.windows(), "lookup 201" in edge.ip("rule")) == ({}, False)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert "another run withdrew every route meanwhile" in errors
    assert (edge.windows(), "lookup 201" in edge.ip("rule")) == ({}, False)
    assert edge.table(table="254") == before


def test_a_slow_apply_is_not_disturbed_by_what_looks_after_the_routes(edge: Edge) -> None:
    edge.ip("route", "add", "default", "via", "192.168.0.2")
    path = edge.write(bundle(MANY))
    with stopped_before(edge, 14, path) as process:
        assert process is not None
        assert run(edge, "expire").code == 0
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (0, "")
    assert edge.windows() == MANY
