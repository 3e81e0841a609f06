"""Hosts that cannot run the eBPF program, or not all of it, by the shipped command: why, and what happens instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit import bpf
from testkit.bpf import cgroup2
from testkit.edge import PROGRAM, Outcome
from testkit.host import Host

pytestmark = pytest.mark.root

# The command, in mounts of its own over which a folder is laid.
HIDDEN = 'mount -t tmpfs none "$0" && if [ -n "$1" ]; then echo "$1" >"$0/lockdown"; fi && shift && exec "$@"'
# The kernel takes no program: what bpf(2) answers to BPF_PROG_LOAD, as a container's filter or the verifier would.
NO_PROGRAMS = """
import ctypes, errno, os, sys
class Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint), ("comparison", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
made = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(0x7FFF0000)))
load = (Argument * 1)(Argument(0, 4, 5, 0))
answer = 0x00050000 | getattr(errno, sys.argv[1])
assert library.seccomp_rule_add_array(made, ctypes.c_uint32(answer), 321, 1, load) == 0
assert library.seccomp_load(made) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


def mounted(folder: str, lockdown: str = "") -> list[str]:
    return ["unshare", "--mount", "sh", "-c", HIDDEN, folder, lockdown]


def without(capabilities: str) -> list[str]:
    return ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"]


def filtered(answer: str) -> list[str]:
    return [sys.executable, "-c", NO_PROGRAMS, answer]


def under(host: Host, prefix: list[str], *arguments: str) -> Outcome:
    """Runs the command behind a prefix of its command line."""
    command = host.command(*arguments)
    at = command.index(str(PROGRAM))
    return host.finished([*command[:at], *prefix, *command[at:]])


CASES = {
    "no types": (mounted("/sys/kernel/btf"), "/sys/kernel/btf/vmlinux is missing: this kernel tells no types"),
    "no CAP_BPF": (without("-bpf,-sys_admin"), "this process lacks CAP_BPF: run it as root"),
    "no CAP_PERFMON": (without("-perfmon,-sys_admin"), "this process lacks CAP_PERFMON: run it as root"),
    "forbidden": (filtered("EPERM"), "this kernel does not load the eBPF program: Operation not permitted"),
    "refused": (filtered("EINVAL"), "this kernel does not load the eBPF program: Invalid argument"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_exact_and_the_policy_decides(host: Host, case: str) -> None:
    prefix, reason = CASES[case]
    checked = under(host, prefix, "check")
    assert (checked.code, checked.report["bpf"]["supported"], checked.report["routes"]["supported"]) == (3, False, True)
    assert checked.report["bpf"]["reason"].startswith(reason)
    assert checked.report["btf"] is (case != "no types")
    default = under(host, prefix, "apply", host.document())
    assert (default.code, default.report["enforced_by"]) == (0, "nothing"), default.errors
    [note] = [one for one in default.report["notes"] if one.startswith("not by bpf")]
    assert note.startswith(f"not by bpf but the kernel's default: {reason}")
    assert "\n" not in note
    assert (host.windows(), host.pins.exists()) == ([10, 10], False)
    routes = under(host, prefix, "apply", host.document(otherwise="routes"))
    assert (routes.code, routes.report["enforced_by"]) == (0, "routes"), routes.errors
    assert (host.windows(), host.pins.exists()) == ([60, 40], False)
    # It does not change its mind where nothing has changed, and does where the host can.
    assert under(host, prefix, "follow").report["changed"] is False
    assert host.run("follow").report["notes"] == ["by bpf, which this host can run now"]
    assert host.run("status").report["enforced_by"] == "bpf"


def test_a_host_that_can_is_told_so_and_left_as_it_is(host: Host) -> None:
    found = host.run("check")
    assert found.code == 0, found.errors
    assert [found.report[way] for way in ("bpf", "routes")] == [{"supported": True, "reason": None}] * 2
    assert found.report["kernel"] == os.uname().release
    assert str(cgroup2()) in found.report["cgroup2"]
    assert "reno" in found.report["algorithms"]
    assert found.report["bbr"]["supported"] is ("bbr" in found.report["algorithms"])
    assert (host.windows(), host.pins.exists(), host.edge.state_dir.exists()) == ([10, 10], False, False)


def test_why_neither_way_can_be_used(host: Host) -> None:
    found = under(host, without("-net_admin,-sys_admin"), "check")
    assert (found.code, found.errors) == (2, "")
    assert found.report["bpf"]["reason"].startswith("this process lacks CAP_NET_ADMIN: run it as root")
    assert found.report["routes"]["reason"].endswith("takes CAP_NET_ADMIN; run it as root")
    host.edge.ip("-4", "route", "add", "192.0.2.0/24", "via", "192.168.0.2", "table", "201")
    found = under(host, filtered("EPERM"), "check")
    assert found.code == 2
    assert "is not Springtide's; move it to another table" in found.report["routes"]["reason"]
    assert host.run("check").code == 0, "the program needs no table"


def test_a_lockdown_is_named(host: Host) -> None:
    locked = under(host, mounted("/sys/kernel/security", "none [integrity] confidentiality"), "check")
    assert (locked.report["lockdown"], locked.report["bpf"]["supported"]) == ("integrity", True)


@pytest.mark.parametrize("case", CASES)
def test_what_is_attached_already_stays(host: Host, case: str) -> None:
    """Taken by the verifier before: what has changed since ends nothing."""
    assert host.run("apply", host.document()).code == 0
    outcome = under(host, CASES[case][0], "follow")
    assert (outcome.code, outcome.report["changed"]) == (0, False), outcome.errors
    assert host.windows() == [60, 40]


def test_more_prefixes_than_there_is_room_for_are_left_alone_and_said(host: Host) -> None:
    assert host.run("apply", host.document()).code == 0
    bpf.fill(host.pins / "v6/states")
    with host.load() as seen:
        status = host.run("status")
        assert host.windows() == [10, 10]
    assert [set(counter) for counter in seen] == [{"10"}, {"10"}], "and none failed"
    assert status.code == 0
    assert host.run("status").report["program"]["totals"]["no_state"] > 2
    command = [word for word in host.command("status") if word != "--json"]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "were left alone, because 262144 prefixes are known of 262144 that can be" in words
    # The next bundle forgets what it does not name.
    assert host.run("apply", host.document()).code == 0
    assert host.windows() == [60, 40]


def test_another_build_takes_over_under_load(host: Host, tmp_path: Path) -> None:
    """Its eBPF object differs in the compiler's name, so it is another one and does the same."""
    other = tmp_path / "springtide-edge"
    content = PROGRAM.read_bytes()
    changed = content.replace(b"clang version", b"clang Version")
    assert content != changed
    other.write_bytes(changed)
    other.chmod(0o755)

    def program() -> int:
        link = subprocess.run(
            ["bpftool", "-j", "link", "show", "pinned", str(host.pins / "v6/link")],
            check=True,
            capture_output=True,
            text=True,
        )
        found: int = json.loads(link.stdout)["prog_id"]
        return found

    assert host.run("apply", host.document()).code == 0
    ids = [program()]
    with host.load() as seen:
        for binary in (other, PROGRAM, other):
            command = host.command("apply", host.document())
            command[command.index(str(PROGRAM))] = str(binary)
            assert host.finished(command).code == 0
            ids.append(program())
    assert len(set(ids)) == 4, "each build brought its own"
    assert [set(counter) for counter in seen] == [{"60"}, {"40"}]
    assert host.run("status").code == 0


@pytest.mark.parametrize(("switch", "off", "default"), [("tcp_early_retrans", 0, 3), ("tcp_recovery", 0, 1)])
def test_a_switch_of_loss_probes_that_is_off_is_named(host: Host, switch: str, off: int, default: int) -> None:
    assert host.run("check").report["loss_probes"] == {"supported": True, "reason": None}
    subprocess.run([*host.inside(), "sysctl", "-qw", f"net.ipv4.{switch}={off}"], check=True)
    found = host.run("check")
    wanted = f"net.ipv4.{switch} is {off}: set it to {default}, Linux's default"
    assert (found.code, found.report["loss_probes"]) == (0, {"supported": False, "reason": wanted})
