"""Runs a command as a systemd unit's options would have it, as far as that can be done where systemd does not run.

    python -m testkit.service --state DIR --bring FILE UNIT [DROP-IN...] -- COMMAND [ARGUMENT...]

The unit's own lines are read, and kept with the kernel's means: the user without name, capabilities, the read-only file
system with the state directory (DIR) in it; hidden homes and processes; and the filters of system calls, address
families, namespaces and executable memory. Not kept: limits of control groups (MemoryMax, CPUQuota, TasksMax),
PrivateDevices, RestrictSUIDSGID, RestrictRealtime, LockPersonality. FILEs are brought to /srv, where the command finds
them. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NOBODY = 65534
BROUGHT = Path("/srv")

# linux/mount.h, linux/prctl.h, linux/capability.h, linux/sched.h
_NEWNS, _REC, _PRIVATE, _BIND = 0x20000, 0x4000, 1 << 18, 0x1000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_KEEPCAPS, _CAPBSET_DROP, _NO_NEW_PRIVS, _AMBIENT, _AMBIENT_RAISE = 8, 24, 38, 47, 2
_CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_BPF": 39}
_CAPABILITY_VERSION = 0x20080522
_NAMESPACES = {
    "mnt": 1 << 17,
    "cgroup": 1 << 25,
    "uts": 1 << 26,
    "ipc": 1 << 27,
    "user": 1 << 28,
    "pid": 1 << 29,
    "net": 1 << 30,
}
# sys/socket.h; every family that there is
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
_ALL_FAMILIES = range(1, 46)
_PROT_WRITE, _PROT_EXEC = 2, 4
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
# seccomp.h
_ALLOW, _ERRNO, _EQUAL, _MASKED_EQUAL = 0x7FFF0000, 0x00050000, 4, 7

_libc = ctypes.CDLL(None, use_errno=True)


def options(files: Iterable[Path]) -> dict[str, list[str]]:
    """Settings of [Service], by name; an empty value clears the ones before it, as in systemd."""
    found: dict[str, list[str]] = {}
    for file in files:
        section = ""
        for line in file.read_text().splitlines():
            if line.startswith("["):
                section = line
            elif section == "[Service]" and line and not line.startswith("#"):
                name, value = line.split("=", 1)
                found[name] = [*found.get(name, []), value] if value else []
    return found


@cache
def group(name: str) -> frozenset[str]:
    """The system calls of one of systemd's groups."""
    if not name.startswith("@"):
        return frozenset([name])
    listed = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], check=True, capture_output=True, text=True
    ).stdout.split("\n")[1:]
    names = [line.strip() for line in listed if line.startswith("    ") and not line.strip().startswith("#")]
    return frozenset().union(*map(group, names))


def allowed(filters: list[str]) -> set[str]:
    """The system calls that lines of SystemCallFilter= leave, the first of which is a list of what is allowed."""
    calls = set(group("@default"))
    for line in filters:
        named = set().union(*map(group, line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def _must(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno() or -result
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str = "") -> None:
    names = [None if text is None else text.encode() for text in (source, str(target), kind)]
    _must(_libc.mount(*names, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def _read_only(path: Path, on: bool) -> None:
    attributes = _MountAttributes(_ATTR_RDONLY if on else 0, 0 if on else _ATTR_RDONLY, 0, 0)
    _must(
        _libc.syscall(
            _MOUNT_SETATTR,
            _AT_FDCWD,
            str(path).encode(),
            _AT_RECURSIVE,
            ctypes.byref(attributes),
            ctypes.c_size_t(ctypes.sizeof(attributes)),
        ),
        f"mount_setattr {path}",
    )


def _file_system(service: dict[str, list[str]], state: Path, bring: list[Path]) -> None:
    """ProtectSystem=strict with the state directory, ProtectHome=, PrivateTmp= and ProtectProc=."""
    _must(_libc.unshare(_NEWNS), "unshare")
    _mount("none", Path("/"), None, _REC | _PRIVATE)
    _mount("tmpfs", BROUGHT, "tmpfs", 0, "mode=755")
    for file in bring:
        shutil.copy(file, BROUGHT)
    kept = Path("/var/lib") / service["StateDirectory"][-1]
    os.chown(state, NOBODY, NOBODY)
    state.chmod(0o700)
    held = os.open(state, os.O_PATH)
    _mount("tmpfs", Path("/var/lib"), "tmpfs", 0, "mode=755")
    kept.mkdir()
    _mount(f"/proc/self/fd/{held}", kept, None, _BIND)
    os.close(held)
    hidden = ["home", "root", "run/user"] if service["ProtectHome"] == ["yes"] else []
    for path in (Path("/", name) for name in hidden):
        if path.is_dir():
            _mount("tmpfs", path, "tmpfs", 0, "mode=755")
    private = [Path("/", name) for name in ("tmp", "var/tmp") if service["PrivateTmp"] == ["yes"]]
    for path in private:
        _mount("tmpfs", path, "tmpfs", 0, "mode=1777")
    _mount("proc", Path("/proc"), "proc", 0, "hidepid=" + service["ProtectProc"][-1].replace("default", "off"))
    if service["ProtectSystem"] == ["strict"]:
        _read_only(Path("/"), True)
        for path in [kept, *private]:
            _read_only(path, False)


def _privileges(service: dict[str, list[str]]) -> None:
    """DynamicUser=, CapabilityBoundingSet=, AmbientCapabilities= and NoNewPrivileges=."""
    bounding, ambient = (
        [_CAPABILITIES[name] for line in service[option] for name in line.split()]
        for option in ("CapabilityBoundingSet", "AmbientCapabilities")
    )
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in set(range(last + 1)) - set(bounding):
        _must(_libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
    _must(_libc.prctl(_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    mask = sum(1 << capability for capability in ambient)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)
    _must(_libc.capset(header, sets), "capset")
    for capability in ambient:
        _must(_libc.prctl(_AMBIENT, _AMBIENT_RAISE, capability, 0, 0), "prctl(PR_CAP_AMBIENT_RAISE)")
    if service["NoNewPrivileges"] == ["yes"]:
        _must(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


class _Argument(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


class _Filter:
    """A seccomp filter that is being made; `default` is what happens to a call that no rule names."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action: int, call: str, *arguments: _Argument) -> None:
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # not a call of this machine
            return
        listed = (_Argument * len(arguments))(*arguments)
        result = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(arguments), listed
        )
        _must(result, f"seccomp_rule_add {call}")

    def load(self) -> None:
        _must(self._library.seccomp_load(self._context), "seccomp_load")


def _has(number: int, mask: int) -> _Argument:
    return _Argument(number, _MASKED_EQUAL, mask, mask)


def _refused(service: dict[str, list[str]]) -> _Filter:
    """RestrictAddressFamilies=, RestrictNamespaces= and MemoryDenyWriteExecute=."""
    made = _Filter(_ALLOW)
    families = {_FAMILIES[name] for line in service["RestrictAddressFamilies"] for name in line.split()}
    for family in set(_ALL_FAMILIES) - families:
        made.rule(_ERRNO | _EAFNOSUPPORT, "socket", _Argument(0, _EQUAL, family, 0))
    namespaces = service["RestrictNamespaces"][-1].replace("yes", "").split()
    for name, flag in _NAMESPACES.items():
        if name not in namespaces:
            for call, number in (("unshare", 0), ("clone", 0), ("setns", 1)):
                made.rule(_ERRNO | _EPERM, call, _has(number, flag))
    # The filter cannot see which namespace these join.
    made.rule(_ERRNO | _EPERM, "setns", _Argument(1, _EQUAL, 0, 0))
    made.rule(_ERRNO | _ENOSYS, "clone3")
    if service["MemoryDenyWriteExecute"] == ["yes"]:
        made.rule(_ERRNO | _EPERM, "mmap", _has(2, _PROT_WRITE | _PROT_EXEC))
        for call in ("mprotect", "pkey_mprotect"):
            made.rule(_ERRNO | _EPERM, call, _has(2, _PROT_EXEC))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m testkit.service", description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="becomes the service's state directory")
    parser.add_argument("--bring", type=Path, action="append", default=[], help="a file that the command needs")
    parser.add_argument("units", type=Path, nargs="+", help="the unit, and its drop-ins")
    if "--" not in sys.argv:
        parser.error("behind -- stands the command")
    end = sys.argv.index("--")
    arguments, command = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    service = options(arguments.units)
    calls = _Filter(_ERRNO | _EPERM)
    for call in allowed(service["SystemCallFilter"]):
        calls.rule(_ALLOW, call)
    refused = _refused(service)
    _file_system(service, arguments.state, arguments.bring)
    _privileges(service)
    os.chdir("/")
    os.umask(int(service["UMask"][-1], 8))
    refused.load()
    calls.load()
    os.execv(command[0], command)  # noqa: S606  # the filters are this process's own


if __name__ == "__main__":
    main()
