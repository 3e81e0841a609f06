"""A farm whose edges can break: small disks of their own, clocks that can be set, logins that can hang, watchers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from deploy.ansible.tests.chaos import judge
from testkit.edge import PROGRAM, bundle
from testkit.farm import SSHD, Farm, Node

Given = TypeVar("Given")
Result = TypeVar("Result")

PREFIXES = [f"10.{200 + number}.0.0/16" for number in range(4)] + [f"fd00:{number}::/32" for number in range(1, 5)]
# Programs that a play's step runs on an edge; a host that has lost `ip` still has them.
PROGRAMS = ("sh", "sleep", "mktemp", "rm", "cat", "base64")
# sshd runs it for every command: it may hang, has the edge's clock, and may miss `ip`.
LOGIN = """\
#!/bin/sh
[ -e {d}/hangs ] && exec sleep 1000
[ -e {d}/no-ip ] && export PATH={programs}
export LD_PRELOAD={clock} SPRINGTIDE_TEST_CLOCK={d}/clock
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


def at_once(work: Callable[[Given], Result], given: Iterable[Given]) -> list[Result]:
    """Four at a time: more than this machine has cores, since half of the work is waiting."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, given))


class Playing:
    """A play that runs, with the number of answers of hosts that it has printed so far."""

    def __init__(self, farm: Farm, play: str, arguments: Mapping[str, Any]) -> None:
        self.play = play
        self.answers = 0
        self.killed = False
        self.begun = time.monotonic()
        self.took_s: float | None = None
        self._lines: list[str] = []
        self.process = farm.start(play, **arguments)
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.append(line)
            self.answers += line.startswith(("ok: ", "changed: ", "fatal: ", "failed: ", "skipping: "))

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def ended(self) -> bool:
        if self.process.poll() is None:
            return False
        if self.took_s is None:
            self.took_s = time.monotonic() - self.begun
        return True

    def kill(self) -> None:
        """Only Ansible's first process, as the kernel does it when memory runs out: what it started goes on."""
        if self.process.poll() is None:
            self.killed = True
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class Fleet:
    """The farm; `rounds` is the number of rounds that were made, each with windows of its own."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self.edges = list(farm.edges)
        self.rounds = 0
        self.made_at = 0.0
        self.watchers: dict[str, subprocess.Popen[bytes]] = {}
        self._mounts: list[Path] = []

    @classmethod
    @contextlib.contextmanager
    def made(cls, count: int) -> Iterator[Fleet]:
        with tempfile.TemporaryDirectory(prefix="springtide-chaos-") as directory, contextlib.ExitStack() as stack:
            farm = stack.enter_context(Farm.made(Path(directory), count))
            fleet = cls(farm)
            try:
                fleet._break_open()
                yield fleet
            finally:
                for watcher in fleet.watchers.values():
                    watcher.kill()
                    watcher.wait()
                # Processes that run would keep the mounts, and those the folder.
                farm.end()
                for mount in fleet._mounts:
                    subprocess.run(["umount", "--lazy", str(mount)], check=False, capture_output=True)

    def _break_open(self) -> None:
        """Each edge's state and the publisher's folder on small disks, and logins as above."""
        clock = self.farm.directory / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(clock), str(source)], check=True)
        programs = self.farm.directory / "programs"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
        self._disk(self.farm.publish_dir, "16m")
        for number, (name, node) in enumerate(self.farm.edges.items()):
            node.stop()
            self._disk(node.state_dir, "256k")
            login = node.directory / "login"
            login.write_text(LOGIN.format(d=node.directory, programs=programs, clock=clock))
            login.chmod(0o755)
            (node.directory / "sshd").write_text(SSHD.format(d=node.directory) + f"ForceCommand {login}\n")
            node.start()
            self.ways(name)
            if number % 3 == 0:
                self.watch(name)
        self.farm.wait_for_sshd()

    def ways(self, edge: str) -> None:
        """Address and default routes, which the kernel takes away with the link."""
        lines = [f"addr replace fd99::{self.edges.index(edge) + 2}/64 dev wan0 nodad"]
        lines += ["route replace default via 10.99.0.1", "route replace default via fd99::1"]
        self.farm.batch(self.node(edge).namespace, lines)

    def _disk(self, folder: Path, size: str) -> None:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "springtide-chaos", str(folder)], check=True)
        self._mounts.append(folder)

    def node(self, edge: str) -> Node:
        return self.farm.edges[edge]

    def watch(self, edge: str) -> None:
        """The edge's watcher, as its service runs it."""
        node = self.node(edge)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.farm.directory / "clock.so"),
            "SPRINGTIDE_TEST_CLOCK": str(node.directory / "clock"),
        }
        command = [*self._on(edge), "watch", "--state-dir", str(node.state_dir)]
        with (node.directory / "watch.log").open("ab") as log:
            self.watchers[edge] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _on(self, edge: str, seconds_later: int = 0) -> list[str]:
        inside = ["ip", "netns", "exec", self.node(edge).namespace]
        later = ["unshare", "--time", f"--boottime={seconds_later}"] if seconds_later else []
        return [*inside, *later, str(PROGRAM)]

    def command(self, edge: str, *words: str, seconds_later: int = 0) -> tuple[int | None, str]:
        """The edge's own command, as its timer runs it: exit code and output; None where it did not end."""
        command = [*self._on(edge, seconds_later), *words, "--state-dir", str(self.node(edge).state_dir)]
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
        except subprocess.TimeoutExpired:
            return None, "did not end within 100 s"
        return done.returncode, (done.stderr or done.stdout).strip()

    def timers(self, edges: Sequence[str] | None = None) -> None:
        """One pass of the timer that every edge has."""
        at_once(lambda edge: self.command(edge, "follow"), self.edges if edges is None else edges)

    def held(self, edges: Sequence[str] | None = None) -> dict[str, judge.Held]:
        chosen = self.edges if edges is None else list(edges)
        return dict(zip(chosen, at_once(lambda edge: judge.held(self.node(edge).namespace), chosen), strict=True))

    def documents(self, *, later: float = 0, ttl: float = 900) -> dict[str, dict[str, Any]]:
        """A bundle for each edge, with windows that no other round and no other edge has."""
        self.rounds += 1
        # Edges take one bundle of a round and a second, and a way back is a second younger.
        time.sleep(max(0.0, self.made_at + 2 - (time.time() + later)))
        self.made_at = time.time() + later
        plain = self.farm.documents({}, later=later, ttl=ttl)
        found = {}
        for number, (edge, document) in enumerate(plain.items()):
            chosen = PREFIXES[self.rounds % 3 :]
            routes = {p: 10 + (self.rounds + 41 * place + 7 * number) % 900 for place, p in enumerate(chosen)}
            fields = {name: document[name] for name in ("round", "created_at", "expires_at", "edge")}
            found[edge] = bundle(routes, **fields)
        return found

    def hold(self) -> None:
        """As after a new installation: a round on every edge, by their own command, which is quicker than a rollout."""
        for name in ("withdrawn", "current"):
            (self.farm.publish_dir / name).unlink(missing_ok=True)
        folder = self.farm.publish(self.documents(later=-4))
        signers = ["--allowed-signers", str(self.farm.directory / "allowed_signers")]

        def apply(edge: str) -> None:
            self.command(edge, "apply", f"{folder}/edges/{edge}.json", "--edge", edge, *signers)

        at_once(apply, self.edges)
        self.farm.folder.point("current", folder / "edges")

    def pids(self, edge: str) -> list[int]:
        return _inside(self.node(edge).namespace)

    def publishers_pids(self) -> list[int]:
        return _inside(self.farm.namespace)

    def working(self, edge: str) -> list[int]:
        """The processes in which a play works on the edge."""
        watcher = self.watchers.get(edge)
        return [
            pid for pid in self.pids(edge) if PROGRAM.name in words(pid) and (watcher is None or pid != watcher.pid)
        ]

    def is_idle(self) -> bool:
        """Wait until nothing works any more on publisher or edges, and end what does not end; whether all ended."""

        def left() -> list[int]:
            plays = [pid for pid in self.publishers_pids() if "ansible" in words(pid)]
            return plays + [pid for edge in self.edges for pid in self.working(edge)]

        give_up = time.monotonic() + 60
        while pids := left():
            if time.monotonic() > give_up:
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return False
            time.sleep(0.2)
        return True


def _inside(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
