"""The edge's program as an operator uses it, where bundles ask for enforcement per connection: from a signed bundle to
sockets, and back.

Long: one program under every use and fault, over one host.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.bpf import ROOT, Program, binary
from testkit.edge import PROGRAM, bundle, instant
from testkit.farm import wait_for
from testkit.host import ENTRIES, FAR, NO_CAP, Host

pytestmark = pytest.mark.root

LATER = 700  # seconds after which every bundle of these tests has expired


def test_a_signed_bundle_reaches_new_connections_and_a_withdrawal_leaves_nothing(host: Host) -> None:
    default = host.connections()
    assert [one[:2] for one in default] == [[10, NO_CAP]] * 2
    before = host.edge.picture()
    outcome = host.run("apply", host.document())
    assert (outcome.code, outcome.report["enforced_by"], outcome.report["routes"]) == (0, "bpf", 0)
    four, six = host.connections()
    assert (four[0], six) == (60, [40, NO_CAP, "reno"])
    assert 0 < four[1] <= 5_000_000
    assert host.connections(inside=False) == default, "only connections of the cgroup"
    assert host.edge.picture() == before, "no route is touched"
    status = host.run("status")
    assert (status.code, status.report["enforced_by"], status.report["drift"]) == (0, "bpf", [])
    assert status.report["program"]["totals"]["started"] == 2
    assert host.run("apply", host.document()).report["changed"] is True, "a newer round"
    assert host.run("follow").report["changed"] is False
    taken = host.run("withdraw").report
    assert (taken["changed"], taken["program"]) == (True, True)
    assert host.connections() == default
    assert not host.pins.exists()
    assert host.run("status").code == 0


def test_who_opted_out_keeps_the_default_and_status_counts_it(host: Host) -> None:
    default = host.connections()
    assert host.run("apply", host.document(opted_out=[{"prefix": "192.168.0.0/24"}])).code == 0
    four, six = host.connections()
    assert (four, six[0]) == (default[0], 40)
    assert host.run("status").report["program"]["totals"]["opted_out"] == 1
    words = [word for word in host.command("status") if word != "--json"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "1 connections of tenants that opted out were left at the kernel's default" in said
    # Routes know destinations only: such a bundle changes nothing.
    refused = host.run("apply", host.document(opted_out=[{"port": 25}], otherwise="routes"))
    assert (refused.code, host.connections()[0]) == (2, default[0])
    assert "enforce.opted_out: is there by routes" in refused.errors
    assert host.run("apply", host.document()).code == 0
    assert host.windows() == [60, 40]


def test_each_way_of_enforcing_replaces_the_other_without_a_gap(host: Host) -> None:
    routes = {"10.77.2.0/24": 30, "fd77:2::/48": 30}
    assert host.run("apply", host.document()).code == 0
    with host.load() as seen:
        for _ in range(3):
            assert host.run("apply", host.edge.write(bundle(routes))).code == 0
            assert not host.pins.exists()
            assert host.windows() == [30, 30]
            assert host.run("status").code == 0
            assert host.run("apply", host.document()).code == 0
            assert host.edge.windows() == {}
            assert "lookup 201" not in host.edge.ip("rule")
            assert host.windows() == [60, 40]
            assert host.run("status").code == 0
    assert [set(counter) for counter in seen] == [{"30", "60"}, {"30", "40"}], "one or the other, never the default"


def test_an_expired_bundle_acts_no_more_and_is_withdrawn(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    assert host.run("status", later=LATER).code == 3
    outcome = host.run("expire", later=LATER)
    assert (outcome.code, outcome.report["program"]) == (0, True)
    assert host.windows() == [10, 10]
    assert host.run("follow").report["changed"] is False


def test_past_its_time_a_bundle_does_nothing_though_no_command_runs(host: Host) -> None:
    """A turn in which a busy machine was slower than the bundle's time is done again, with four times as long. The last
    one fails only after a delay of 48 s."""
    for ttl in (3, 12, 48):
        ends = int(time.time()) + ttl
        document = bundle({}, expires_at=instant(ends), enforce={"by": "bpf"}, entries=ENTRIES)
        found = host.run("apply", host.edge.write(document)).code, host.windows()
        if time.time() < ends:
            break
        host.run("withdraw")
    assert found == (0, [60, 40])
    time.sleep(max(0.0, ends + 1 - time.time()))
    assert host.windows() == [10, 10]
    assert host.run("status").code == 3


def test_a_program_that_was_detached_is_drift_and_is_put_back(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    link = str(host.pins / "v6/link")
    for take, drift in (
        (["bpftool", "link", "detach", "pinned", link], "the program is not on the cgroup"),
        (["rm", link], "the program's link is gone"),
    ):
        subprocess.run(take, check=True)
        status = host.run("status")
        assert status.code == 3
        assert status.report["drift"][0]["prefix"] == "program"
        assert drift in status.report["drift"][0]["found"]
        wait_for(lambda: host.windows() == [10, 10], "the kernel did not detach the program")
        mended = host.run("follow")
        assert (mended.code, mended.report["changed"]) == (0, True)
        assert drift in mended.report["notes"][0]
        assert host.windows() == [60, 40]
        assert host.run("status").code == 0


def test_pins_that_are_gone_were_taken_away_and_only_an_apply_brings_them_back(host: Host) -> None:
    path = host.document()
    assert host.run("apply", path).code == 0
    shutil.rmtree(host.pins)
    assert host.run("status").code == 3
    # The kernel detaches a program that nobody holds in its own time, by a work queue.
    wait_for(lambda: host.windows() == [10, 10], "the kernel did not detach the program")
    assert "the program was taken away" in host.run("follow").report["reason"]
    assert host.run("apply", path).code == 0, "the same bundle again"
    assert host.windows() == [60, 40]


def test_a_set_of_another_version_is_replaced_without_a_gap(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    with host.load() as seen:
        (host.pins / "v6").rename(host.pins / "v0")
        assert host.run("status").code == 3
        assert host.run("follow").report["changed"] is True
        assert [path.name for path in host.pins.iterdir()] == ["v6"]
        assert host.run("status").code == 0
        assert host.windows() == [60, 40]
    assert [set(counter) for counter in seen] == [{"60"}, {"40"}]


def test_a_cgroup_that_was_removed_is_drift_and_the_program_comes_back_with_it(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    host.cgroup.rmdir()
    assert "the cgroup was removed" in host.run("status").report["drift"][0]["found"]
    notes = host.run("follow").report["notes"]
    assert f"not by bpf but the kernel's default: {host.cgroup} is no directory of cgroup2" in notes[0]
    assert not host.pins.exists()
    assert host.run("status").report["enforced_by"] == "nothing"
    host.cgroup.mkdir()
    back = host.run("follow").report
    assert (back["changed"], back["notes"]) == (True, ["by bpf, which this host can run now"])
    assert host.windows() == [60, 40]
    # Another cgroup of the same name is another one.
    host.cgroup.rmdir()
    host.cgroup.mkdir()
    assert host.run("status").code == 3
    assert host.run("follow").report["changed"] is True
    assert host.windows() == [60, 40]
    assert host.run("follow").report["changed"] is False


def test_routes_take_over_while_the_program_cannot_run(host: Host) -> None:
    assert host.run("apply", host.document(otherwise="routes")).code == 0
    cgroup, host.cgroup = host.cgroup, host.cgroup.with_name("none")
    assert host.run("follow").report["added"] == 2
    host.cgroup = cgroup
    assert host.edge.windows() == {"10.77.2.0/24": 60, "fd77:2::/48": 40}
    assert not host.pins.exists()
    assert host.run("follow").report["removed"] == 2
    status = host.run("status")
    assert (status.code, status.report["enforced_by"]) == (0, "bpf")


def test_what_somebody_else_keeps_among_the_pins_stops_nothing(host: Host) -> None:
    default = host.connections()
    assert host.run("apply", host.document()).code == 0
    (host.pins / "theirs").mkdir()
    for command in ("withdraw", "withdraw", "follow", "expire", "status"):
        assert host.run(command).code == 0, command
        assert host.connections() == default
    assert [path.name for path in host.pins.iterdir()] == ["theirs"]
    assert host.run("apply", host.document()).code == 0
    assert host.windows() == [60, 40]
    (host.pins / "theirs").rmdir()


def test_what_could_not_be_done_is_reported(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    (host.pins / "v6").rename(host.pins / "v0")
    # Another map under its name.
    (host.pins / "v0/about").unlink()
    subprocess.run(["bpftool", "map", "pin", "pinned", host.pins / "v0/totals", host.pins / "v0/about"], check=True)
    assert "cannot drain" in host.run("follow").report["notes"][0]
    assert host.run("status").code == 0


def test_other_programs_on_the_same_connections_are_named_and_noted(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    noted = ["bpftool", "-j", "map", "lookup", "pinned", str(host.pins / "v6/about"), "key", "0", "0", "0", "0"]

    def others() -> int:
        value = json.loads(subprocess.run(noted, check=True, capture_output=True, text=True).stdout)["value"]
        return int(value[20], 16)

    other = Program(binary(), host.cgroup, host.pins.with_name(f"{host.pins.name}-other"))
    try:
        other.apply({"entries": [{"prefix": "203.0.113.0/24", "initcwnd": 20}]})
        status = host.run("status")
        assert (status.code, len(status.report["program"]["others"]), others()) == (0, 1, 0)
        assert host.run("follow").report["changed"] is False
        assert others() == 1
    finally:
        other.withdraw()
    assert host.run("status").report["program"]["others"] == []


# A program that ends the callbacks of whoever was there before it.
CLEARS = """
#include <linux/bpf.h>
static long (*flags_set)(struct bpf_sock_ops *, int) = (void *)BPF_FUNC_sock_ops_cb_flags_set;
__attribute__((section("sockops"))) int clears(struct bpf_sock_ops *ctx)
{
	if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		flags_set(ctx, 0);
	return 1;
}
__attribute__((section("license"))) char LICENSE[] = "GPL";
"""
# A connection of which everything is acknowledged, and its cap: then, and for each line.
BUSY = """
import fcntl, socket, struct, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
one = socket.create_connection((sys.argv[2], 7000), 10)
one.sendall(bytes(60_000))
while struct.unpack("I", fcntl.ioctl(one, 0x5411, bytes(4)))[0]:
    time.sleep(0.01)
print(one.getsockopt(1, 47) & 0xFFFFFFFF, flush=True)
for line in sys.stdin:
    print(one.getsockopt(1, 47) & 0xFFFFFFFF, flush=True)
"""


@contextmanager
def clearing(host: Host, directory: Path) -> Iterator[None]:
    """Another sockops program on the same cgroup, which runs after ours."""
    source, pin = directory / "clears.c", host.pins.with_name(f"{host.pins.name}-clears")
    source.write_text(CLEARS)
    built = directory / "clears.o"
    include = ["-idirafter", f"/usr/include/{os.uname().machine}-linux-gnu"]
    subprocess.run(["clang", "-O2", "-target", "bpf", *include, "-c", source, "-o", built], check=True)
    subprocess.run(["bpftool", "prog", "load", built, pin, "type", "sockops"], check=True)
    which = [str(host.cgroup), "sock_ops", "pinned", str(pin)]
    subprocess.run(["bpftool", "cgroup", "attach", *which, "multi"], check=True)
    try:
        yield
    finally:
        subprocess.run(["bpftool", "cgroup", "detach", *which], check=True)
        pin.unlink()


@contextmanager
def busy(host: Host) -> Iterator[subprocess.Popen[str]]:
    command = [*host.inside(), sys.executable, "-c", BUSY, str(host.cgroup), FAR[0]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def cap(process: subprocess.Popen[str], *, again: bool = True) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    if again:
        process.stdin.write("\n")
        process.stdin.flush()
    return int(process.stdout.readline())


def test_a_program_that_ends_our_callbacks_leaves_no_cap_for_good(host: Host, tmp_path: Path) -> None:
    assert host.run("apply", host.document(lift_bytes=10_000)).code == 0
    with busy(host) as alone:
        assert cap(alone, again=False) == NO_CAP
    with clearing(host, tmp_path):
        status = host.run("status").report["program"]["others"]
        assert len(status) == 1
        with busy(host) as first, busy(host) as second:
            assert max(cap(one, again=False) for one in (first, second)) < NO_CAP, "nobody took our callbacks"
            assert host.run("follow").code == 0
            assert [cap(one) for one in (first, second)] == [NO_CAP, NO_CAP]
            taken = host.run("withdraw")
            assert (taken.code, taken.report["notes"]) == (0, [])


def test_a_host_that_cannot_run_it_does_what_the_bundle_says_instead(host: Host) -> None:
    elsewhere = host.cgroup.with_name("none")
    cgroup, host.cgroup = host.cgroup, elsewhere
    default = host.run("apply", host.document())
    assert (default.code, default.report["enforced_by"]) == (0, "nothing")
    assert f"not by bpf but the kernel's default: {elsewhere} is no directory" in default.report["notes"][0]
    assert default.report["not_enforced"]["program"] == 2
    routes = host.run("apply", host.document(otherwise="routes"))
    assert (routes.report["enforced_by"], routes.report["routes"]) == ("routes", 2)
    host.cgroup = cgroup
    assert host.windows() == [60, 40], "windows, without their rates"
    assert host.run("status").code == 0


def test_what_is_refused_changes_nothing(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    path = Path(host.document([{"prefix": "10.77.2.0/24", "initcwnd": 30}]))
    path.write_bytes(path.read_bytes().replace(b"30", b"31", 1))
    assert host.run("apply", str(path)).code == 12
    path.write_bytes(b"\0")
    assert host.run("apply", str(path)).code == 12
    # More congestion controls than the program has room for.
    many = [{"prefix": f"10.78.{n}.0/24", "congestion": {"algorithm": f"none{n}", "from_bytes": 0}} for n in range(200)]
    full = host.run("apply", host.document(many))
    assert full.code == 1
    assert "congestion controls" in full.errors
    assert host.windows() == [60, 40]
    assert host.run("status").code == 0


def test_two_at_once_take_turns(host: Host) -> None:
    documents = [host.document(), host.document([{"prefix": "10.77.2.0/24", "initcwnd": 30}])]
    commands = [host.command("apply", path) for path in documents] + [host.command("follow")] * 2
    with host.load() as seen:
        running = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands
        ]
        codes = [one.wait() for one in running]
        assert codes[0] in (0, 14), "the older one is refused where it comes second"
        assert codes[1:] == [0, 0, 0]
        assert host.run("status").code == 0
        assert host.windows() == [30, 10]
    assert set(seen[0]) <= {"10", "60", "30"}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("routes", "bpf"),
        ("bpf", ""),
        *(
            pytest.param(*change, marks=pytest.mark.proof)
            for change in [("", "bpf"), ("bpf", "other"), ("bpf", "routes")]
        ),
    ],
)
def test_killed_before_any_step_the_next_run_makes_it_whole(host: Host, first: str, then: str) -> None:
    """From each state to each other; with new connections all the while, of which none fails. Every fifth step, from
    one that is drawn: SEED does it again."""
    windows = {"": [10, 10], "bpf": [60, 40], "other": [30, 10], "routes": [20, 20]}

    def command(name: str) -> list[str]:
        if name == "":
            return ["withdraw"]
        if name == "routes":
            return ["apply", host.edge.write(bundle({"10.77.2.0/24": 20, "fd77:2::/48": 20}))]
        other = [{"prefix": "10.77.2.0/24", "initcwnd": 30}]
        ours = [{**ENTRIES[0], "copied_bytes": 20_000}, *ENTRIES[1:]]
        return ["apply", host.document(other if name == "other" else ours)]

    seed, stride = os.environ.get("SEED", str(time.time_ns())), 5
    step = random.Random(f"{seed} {first} {then}").randint(1, stride)
    print(f"SEED={seed}: from step {step} on")
    with host.load():
        while True:
            assert host.run(*command(first)).code == 0
            last = command(then)
            if not host.killed(step, *last):
                break
            assert host.windows() in (windows[first], windows[then]), f"step {step}: one or the other, whole"
            if (step // stride) % 2:
                assert host.run("expire").code == 0
                assert host.windows() in (windows[first], windows[then]), f"step {step}"
                assert host.run("status").code == 0, f"step {step}"
            assert host.run(*last).code == 0, f"step {step}"
            assert host.windows() == windows[then], f"step {step}"
            assert host.run("status").code == 0, f"step {step}"
            step += stride
    assert step > 10, "the kills came too late to mean anything"


def test_a_service_mends_and_tells_systemd(host: Host, tmp_path: Path) -> None:
    assert host.run("apply", host.document()).code == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
        with subprocess.Popen(host.command("run"), stdout=subprocess.DEVNULL, env=environment) as service:
            try:
                assert systemd.recv(1000) == b"READY=1\nWATCHDOG=1\nSTATUS=follow: unchanged\n"
                (host.pins / "v6/link").unlink()
                assert b"mended: the program's link is gone" in systemd.recv(1000), "after half the watchdog's time"
                assert host.windows() == [60, 40]
            finally:
                service.kill()


# Those that look after what is enforced: probes have no rights at all.
KEEPERS = [path for path in sorted((ROOT / "edge/packaging").glob("*.service")) if "-probe" not in path.stem]


@pytest.mark.parametrize("unit", KEEPERS, ids=lambda path: path.stem)
def test_the_units_capabilities_suffice_to_put_it_back(host: Host, unit: Path) -> None:
    [names] = re.findall(r"^CapabilityBoundingSet=(.*)$", unit.read_text(), re.M)
    only = "-all," + ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())
    assert host.run("apply", host.document()).code == 0
    (host.pins / "v6/link").unlink()
    command = host.command("follow")
    at = command.index(str(PROGRAM))
    command[at:at] = ["setpriv", "--no-new-privs", f"--bounding-set={only}", f"--inh-caps={only}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert host.windows() == [60, 40]


def test_without_a_state_nothing_stays(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    shutil.rmtree(host.edge.state_dir)
    outcome = host.run("expire")
    assert "no state says" in outcome.report["reason"]
    assert host.windows() == [10, 10]
