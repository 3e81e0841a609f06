"""A lab that is up: run commands on its edges, put load on it, probe it, read its counters.

with Lab.up(Path("lab/topologies/demo.yaml")) as lab:
    lab.exec("ams-1", ["ip", "route"])
    with lab.load(seconds=60):
        probes = lab.probe(count=10)
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab import cgroups, counters, flows, host, network, nginx, processes, sizes, state, teardown, traffic, windows
from lab.clients import Load, run_probes
from lab.counters import TcpCounters
from lab.errors import InputError, LabError
from lab.flows import Flow
from lab.topology import HUB, Kind, Pair, Topology, load_topology
from lab.traffic import Probe
from lab.wan_config import namespace, render
from lab.windows import Window

_READY_S = 20.0


class Lab:
    """One lab by its name. As a context manager it is taken down at the end, whatever the end is, SIGKILL too."""

    def __init__(self, name: str, topology: Topology, flows_interval_s: int | None = None) -> None:
        self.name = name
        self.flows_interval_s = flows_interval_s
        self.topology = topology
        self.directory = state.directory(name)
        self._children: list[subprocess.Popen[bytes]] = []
        self._keeper: subprocess.Popen[bytes] | None = None

    @classmethod
    def up(cls, topology: Topology | Path, name: str | None = None, flows_interval_s: int | None = None) -> Self:
        """Makes the lab; what was made is taken down again when a step fails.

        With `flows_interval_s` the emulator records what each TCP flow was carried, for `flows`.

        Raises InputError for a bad topology, a name that is in use, or a machine that lacks something; LabError for a
        step that failed.
        """
        if isinstance(topology, Path):
            topology = load_topology(topology)
        name = name or topology.name
        host.need_root(f"lab {name}")
        host.check_tools()
        lab = cls(name, topology, flows_interval_s)
        programs = (host.wan(), host.nginx())
        claimed = False
        try:
            with state.locked():
                known = lab._claim()
                claimed = True
                network.make_namespaces(known)
                cgroups.make(known)
                network.set_sysctls(known, topology)
            lab._start(*programs)
        except BaseException:
            if claimed:
                lab.close()
            raise
        return lab

    @classmethod
    def attach(cls, name: str) -> Self:
        """A lab that another process made. Raises InputError when there is none."""
        return cls(name, Topology.model_validate(state.load(name).topology, strict=False))

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "lab.keeper", self.name]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=host.REPOSITORY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the lab down. A signal that comes meanwhile waits until that is done."""
        waiting = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            # Somebody may have cleaned up already.
            with contextlib.suppress(InputError):
                teardown.take_down(self.name)
            for child in self._children:
                child.wait(10)
        finally:
            if self._keeper is not None and self._keeper.stdin is not None:
                # Before its input ends: another lab may have the name from now on.
                self._keeper.kill()
                self._keeper.wait()
                self._keeper.stdin.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, waiting)

    def exec(self, edge: str, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command on an edge to its end; `options` are subprocess.run's. Output is captured as text.

        Raises LabError when it fails, unless `check=False`.
        """
        check = options.pop("check", True)
        settings = {"capture_output": True, "text": True} | options
        done: subprocess.CompletedProcess[str] = subprocess.run(self.command(edge, command), check=False, **settings)
        if check and done.returncode != 0:
            last_line = ((done.stderr or done.stdout or "").strip().splitlines() or ["no output"])[-1]
            raise LabError(f"{edge}: {' '.join(command)} ended with exit code {done.returncode}: {last_line}")
        return done

    def popen(self, edge: str, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command on an edge; `options` are subprocess.Popen's. It is ended with the lab at the latest.

        It gets a session of its own, so that Ctrl-C reaches the lab first and the lab ends it in order.
        """
        return self._spawn(f"{edge}: {command[0]}", self.command(edge, command), **options)

    def command(self, edge: str, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on an edge: in its namespace, and in its cgroup where it enforces by
        eBPF. Raises InputError for an unknown edge."""
        self.topology.edge(edge)
        if self.topology.enforced_by(edge) == "bpf":
            command = cgroups.entering(cgroups.of(self.name, edge), command)
        return host.inside(namespace(self.name, edge), command)

    def pins(self, edge: str) -> Path | None:
        """Where an edge's eBPF program is pinned; None where the edge enforces by routes."""
        return cgroups.pins(self.name, edge) if self.topology.enforced_by(edge) == "bpf" else None

    def enforcing(self, edge: str) -> list[str]:
        """The options with which `springtide-edge` acts on this edge's connections only; none by routes."""
        place = self.pins(edge)
        return [] if place is None else ["--cgroup", str(cgroups.of(self.name, edge)), "--pins", str(place)]

    def start_load(self, seconds: float = 60.0, kind: Kind | None = None) -> Load:
        """Starts the topology's traffic, of another `kind` than the file's if one is named.

        It stops by itself after `seconds`, or with `stop()`.
        """
        return Load(self.popen, traffic.load_tasks(self.topology, seconds, kind), self.directory, seconds)

    @contextlib.contextmanager
    def load(self, seconds: float = 60.0, kind: Kind | None = None) -> Iterator[Load]:
        """`start_load` around a block."""
        load = self.start_load(seconds, kind)
        try:
            yield load
        finally:
            load.stop()

    def probe(
        self,
        count: int = 10,
        probe_sizes: Sequence[int] = sizes.PROBES,
        pairs: Sequence[Pair] | None = None,
        spacing_s: float = 0.2,
        timeout_s: float = 30.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Probe]:
        """Fetches `count` objects of each size over fresh connections for each ordered pair, all pairs at once.

        `progress` gets how many are done, and of how many. Raises InputError for a pair or size that the
        lab does not have.
        """
        pairs = self.topology.pairs() if pairs is None else pairs
        for pair in pairs:
            if pair not in self.topology.pairs():
                raise InputError(f"{'-'.join(pair)}: no such pair of PoPs; they are {', '.join(self.topology.pops)}")
        for size in probe_sizes:
            if not (self.directory / "objects" / str(size)).is_file():
                raise InputError(
                    f"{size}: no object has this size; the probes' are {', '.join(map(str, sizes.PROBES))}"
                )
        planned = traffic.plan_probes(self.topology, pairs, probe_sizes, count, spacing_s)
        return run_probes(self.popen, self.topology, planned, timeout_s, progress)

    def counters(self) -> dict[str, TcpCounters]:
        """TCP's counters of each edge since the lab is up."""
        return {edge: counters.read(self._process(f"nginx of {edge}").pid) for edge in self.topology.edges()}

    def windows(self) -> list[Window]:
        """The congestion windows of every connection that nginx serves now, as `ss` shows them."""
        return [
            window
            for edge in self.topology.edges()
            for window in windows.parse(self.topology, edge, self.exec(edge, windows.COMMAND).stdout)
        ]

    def wan_counters(self) -> dict[str, Any]:
        """springtide-wan's counters for each directed path, as it reports them."""
        return self._report(signal.SIGUSR1)

    def flows(self) -> list[Flow]:
        """The traffic carried of each TCP flow, for each interval since the lab is up; only if `up` was started to
        record it."""
        self.wan_counters()
        path = self.directory / "flows.jsonl"
        return flows.gather(path.read_text().splitlines()) if path.exists() else []

    def reshape(self, topology: Topology) -> None:
        """From now on the paths are those of this topology, which has to have the lab's PoPs and edges.

        What is under way stays so. Raises LabError when the emulator does not take it.
        """
        (self.directory / "wan.json").write_text(json.dumps(render(topology, self.name), indent=1))
        complaints = self.directory / "wan.err"
        before = complaints.stat().st_size
        self._report(signal.SIGHUP)
        if complaints.stat().st_size > before:
            raise LabError(f"lab {self.name}: the paths cannot be changed: {network.log_tail(complaints)}")
        self.topology = topology

    def _report(self, number: signal.Signals) -> dict[str, Any]:
        log = self.directory / "wan.log"
        seen = len(log.read_text().splitlines())
        emulator = self._process("wan")
        if not processes.send_signal(emulator, number):
            raise LabError(f"lab {self.name}: the emulator has ended; its log is {log}")
        line = self._await("the emulator's counters", lambda: _whole_line(log, seen))
        report: dict[str, Any] = json.loads(line)
        return report

    def status(self) -> dict[str, Any]:
        """The lab's parts, and which of its processes run."""
        known = state.load(self.name)
        running = {entry.what: processes.find(entry.pid) == entry.process() for entry in known.processes}
        return {
            "lab": self.name,
            "directory": str(self.directory),
            "edges": {
                edge: {
                    "pop": pop,
                    "namespace": namespace(self.name, edge),
                    "addresses": [str(address) for address in self.topology.edge(edge).addresses],
                    "enforce": self.topology.enforced_by(edge),
                    "enforcing": self.enforcing(edge),
                    "nginx": running.get(f"nginx of {edge}", False),
                }
                for edge, pop in self.topology.edges().items()
            },
            "wan": running.get("wan", False),
        }

    def _claim(self) -> state.State:
        """Writes the state file. Raises InputError when the name, or a namespace that it leads to, is in use."""
        wanted = [namespace(self.name, edge) for edge in (HUB, *self.topology.edges())]
        if state.path_of(self.name).exists():
            raise InputError(f"lab {self.name} is up already; take it down with `python -m lab clean {self.name}`")
        taken = host.namespaces().intersection(wanted)
        if taken:
            raise InputError(f"namespace {min(taken)} exists already; delete it, or give the lab another name")
        groups = cgroups.named(self.name, self.topology)
        known = state.State(
            lab=self.name, namespaces=wanted, cgroups=groups, topology=self.topology.model_dump(mode="json")
        )
        state.save(known)
        return known

    def _start(self, wan: Path, nginx_binary: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        config, log, complaints = (self.directory / name for name in ("wan.json", "wan.log", "wan.err"))
        config.write_text(json.dumps(render(self.topology, self.name), indent=1))
        with log.open("wb") as out, complaints.open("wb") as err:
            emulation = [str(wan), "--config", str(config)]
            command = host.inside(namespace(self.name, HUB), host.promptly(emulation))
            if self.flows_interval_s is not None:
                command += ["--flows", str(self.directory / "flows.jsonl")]
                command += ["--flows-interval", str(self.flows_interval_s)]
            emulator = self._spawn("wan", command, stdout=out, stderr=err)
        self._await("the emulator", lambda: _whole_line(log, 0), emulator, complaints)
        objects = self.directory / "objects"
        nginx.write_objects(objects)
        with state.locked():
            for edge in self.topology.edges():
                network.set_addresses(self.name, self.topology, edge)
        for edge in self.topology.edges():
            self._start_nginx(nginx_binary, edge, objects)

    def _start_nginx(self, binary: str, edge: str, objects: Path) -> None:
        run = self.directory / edge
        run.mkdir(exist_ok=True)
        config, log = run / "nginx.conf", run / "error.log"
        config.write_text(nginx.configuration(edge, self.topology.edge(edge).addresses, run, objects))
        command = self.command(edge, [binary, "-p", str(run), "-e", str(log), "-c", str(config)])
        server = self._spawn(f"nginx of {edge}", command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # nginx writes its pid once it listens.
        pid = run / "nginx.pid"
        self._await(f"nginx of {edge}", lambda: "yes" if pid.exists() else None, server, log)

    def _spawn(self, what: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True} | options
        # Under one lock: nobody takes the lab down between the start and the record of it.
        with state.locked():
            child: subprocess.Popen[bytes] = subprocess.Popen(command, **settings)
            self._children.append(child)
            process = processes.find(child.pid)
            if process is not None:
                state.record(self.name, what, process)
        return child

    def _process(self, what: str) -> processes.Process:
        for entry in state.load(self.name).processes:
            if entry.what == what:
                return entry.process()
        raise LabError(f"lab {self.name}: {what} is not running; take the lab down and up again")

    def _await(
        self,
        what: str,
        look: Callable[[], str | None],
        child: subprocess.Popen[bytes] | None = None,
        log: Path | None = None,
    ) -> str:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            found = look()
            if found is not None:
                return found
            if child is not None and child.poll() is not None:
                last_line = network.log_tail(log) if log else ""
                raise LabError(f"lab {self.name}: {what} ended with exit code {child.returncode}: {last_line}")
            time.sleep(0.02)
        raise LabError(
            f"lab {self.name}: {what} did not come within {_READY_S:.0f} s; see the logs in {self.directory}"
        )


def _whole_line(log: Path, place: int) -> str | None:
    lines = log.read_text().splitlines(keepends=True)
    return lines[place] if len(lines) > place and lines[place].endswith("\n") else None
