"""The edge's eBPF enforcement on a cgroup of its own, through `edge/examples/bpf.rs`."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BPF_FS = Path("/sys/fs/bpf")

# In the cgroup: `pair` makes a connection and gives the opener's end, the accepted one's, and the listener.
PRELUDE = """
import json, socket, struct, sys, time
TCP_CONGESTION, MAX_PACING = 13, 47
def pair(host, listener_host=None):
    family = socket.AF_INET6 if ":" in (listener_host or host) else socket.AF_INET
    dual = listener_host == "::" and ":" not in host
    listener = socket.create_server((listener_host or host, 0), family=family, dualstack_ipv6=dual)
    opener = socket.create_connection((host, listener.getsockname()[1]))
    accepted = listener.accept()[0]
    listener.close()
    return opener, accepted
def window(one):
    return struct.unpack_from("I", one.getsockopt(6, 11, 256), 80)[0]
def rate(one):
    return one.getsockopt(1, MAX_PACING) & 0xffffffff
def capped(one):
    return rate(one) != 0xffffffff
def algorithm(one):
    return one.getsockopt(6, TCP_CONGESTION, 16).rstrip(b"\\0").decode()
def fill(sender):
    # Nobody reads: data is left to be sent.
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        sender.settimeout(20)
def move(sender, receiver, size):
    sender.settimeout(20); receiver.settimeout(20)
    sent = got = 0
    while got < size:
        if sent < size:
            sent += sender.send(bytes(min(65536, size - sent)))
        got += len(receiver.recv(1 << 20))
"""


def shown(kind: str) -> list[dict[str, Any]]:
    """Every `prog`, `map` or `link` of this kernel, as bpftool shows it. Where one of another test goes between its
    number and its facts bpftool fails, and is asked again."""
    for _ in range(100):
        done = subprocess.run(["bpftool", "-j", kind, "show"], capture_output=True, text=True, check=False)
        if not done.returncode:
            return list(json.loads(done.stdout or "[]"))
        time.sleep(0.02)
    raise AssertionError(f"bpftool {kind} show: {done.stdout}{done.stderr}")


def binary(name: str = "bpf") -> Path:
    """An example of the edge's; it is built anew where its sources are newer. The whole workspace is: anything else
    would compile what it needs once more."""
    command = ["cargo", "build", "--locked", "--quiet", "--release", "--workspace", "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples" / name


def cgroup2() -> Path:
    """Where cgroup2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    raise OSError("cgroup2 is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")


@dataclass(frozen=True)
class Program:
    """A cgroup and a directory of pins that belong to one test."""

    binary: Path
    cgroup: Path
    pins: Path

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(self.binary), "--cgroup", str(self.cgroup), "--pins", str(self.pins), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def apply(self, bundle: Mapping[str, Any], **how: bool) -> dict[str, Any]:
        file = Path(f"/tmp/springtide-bpf-{self.cgroup.name}.json")  # noqa: S108 - named by this process
        file.write_text(json.dumps(bundle))
        try:
            found: dict[str, Any] = json.loads(self.run("apply", str(file), **how).stdout)
        finally:
            file.unlink()
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status").stdout)
        return found

    def withdraw(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("withdraw", *arguments).stdout)
        return found

    def records(self, seconds: float = 0.2) -> list[dict[str, Any]]:
        lines = self.run("records", "--seconds", str(seconds)).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def popen(self, code: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts Python in the cgroup; `options` are subprocess.Popen's."""
        return subprocess.Popen(self._python(code), **options)

    def inside(self, code: str) -> subprocess.CompletedProcess[str]:
        """Runs Python in the cgroup to its end."""
        done = subprocess.run(self._python(code), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    def _python(self, code: str) -> list[str]:
        move = f"open('{self.cgroup}/cgroup.procs', 'w').write(str(__import__('os').getpid()))\n"
        return [sys.executable, "-c", move + code]


def ask(program: Program, code: str) -> Any:
    """Runs code in the cgroup, after PRELUDE, and returns what it prints as JSON."""
    return json.loads(program.inside(PRELUDE + code).stdout)


def fill(pin: Path) -> None:
    """Puts keys that nobody asks for into a pinned hash map until it is full (bpf(2); numbers of x86-64)."""
    libc = ctypes.CDLL(None, use_errno=True)
    call, get, info_of, update = 321, 7, 15, 2

    def bpf(command: int, attributes: bytes) -> int:
        return int(libc.syscall(call, command, attributes, len(attributes)))

    path = ctypes.create_string_buffer(str(pin).encode())
    handle = bpf(get, struct.pack("=QII", ctypes.addressof(path), 0, 0))
    assert handle >= 0, os.strerror(ctypes.get_errno())
    info = ctypes.create_string_buffer(24)
    assert bpf(info_of, struct.pack("=IIQ", handle, len(info), ctypes.addressof(info))) == 0
    _, _, key_size, value_size, room, _ = struct.unpack("=6I", info)
    key, value = ctypes.create_string_buffer(key_size), ctypes.create_string_buffer(value_size)
    # The first byte is none that a prefix's length begins with.
    attributes = struct.pack("=IIQQQ", handle, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
    for number in range(room + 1):
        struct.pack_into("=BI", key, 0, 0xFF, number)
        if bpf(update, attributes) < 0:
            break
    os.close(handle)


@contextmanager
def program(name: str) -> Iterator[Program]:
    """A cgroup and pins of this name; both are gone at the end. Needs root."""
    if not BPF_FS.is_mount():
        subprocess.run(["mount", "-t", "bpf", "bpf", str(BPF_FS)], check=True)
    found = Program(binary(), cgroup2() / name, BPF_FS / name)
    found.cgroup.mkdir()
    try:
        yield found
    finally:
        found.run("withdraw", check=False)
        if found.cgroup.exists():
            found.cgroup.rmdir()
