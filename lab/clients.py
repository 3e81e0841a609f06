"""Running `lab.client` on the edges, and gathering their results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any, Protocol

from lab import host
from lab.client import Done
from lab.errors import LabError
from lab.topology import Topology
from lab.traffic import Planned, Probe, probe_tasks

# -I would hide the package; -S leaves the site packages out, which the client does not need.
_COMMAND = [sys.executable, "-S", "-m", "lab.client"]
_STOP_S = 10.0


class Popen(Protocol):
    """`Lab.popen`."""

    def __call__(self, edge: str, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]: ...


class Load:
    """Traffic under way."""

    def __init__(self, popen: Popen, tasks: Mapping[str, dict[str, Any]], logs: Path, seconds: float) -> None:
        self.seconds = seconds
        self._clients: list[tuple[str, Path, subprocess.Popen[bytes]]] = []
        for edge, task in tasks.items():
            log = logs / f"load-{edge}.log"
            with log.open("wb") as out:
                self._clients.append((edge, log, _start(popen, edge, task, stdout=out, stderr=out)))

    def running(self) -> bool:
        """Whether any edge's client runs."""
        return any(client.poll() is None for _, _, client in self._clients)

    def wait(self, timeout_s: float | None = None) -> Done:
        """Waits for the end of the load's time. Raises subprocess.TimeoutExpired, and LabError when a client failed."""
        for _, _, client in self._clients:
            client.wait(timeout_s)
        return self._sum()

    def stop(self) -> Done:
        """Ends the load now, if it has not ended; what it did in all. Raises LabError when a client failed."""
        for _, _, client in self._clients:
            if client.poll() is None:
                client.terminate()
        try:
            return self.wait(_STOP_S)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"the load did not end within {_STOP_S:.0f} s of SIGTERM; take the lab down") from error

    def _sum(self) -> Done:
        total = Done()
        for edge, log, client in self._clients:
            lines = log.read_text(errors="replace").splitlines()
            # Stopped before it had begun.
            if client.returncode == -signal.SIGTERM and not lines:
                continue
            if client.returncode != 0 or not lines:
                raise LabError(f"{edge}: the load ended with exit code {client.returncode}: {lines[-1:]}; see {log}")
            try:
                part = Done(**json.loads(lines[-1]))
            except (ValueError, TypeError) as error:
                raise LabError(f"{edge}: the load ended without its sum: {lines[-1]}; see {log}") from error
            total = Done(total.requests + part.requests, total.bytes + part.bytes, total.errors + part.errors)
        return total


def run_probes(
    popen: Popen,
    topology: Topology,
    planned: Sequence[Planned],
    timeout_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> list[Probe]:
    """Every planned probe with its result, in the same order. Raises LabError when a client fails."""
    tasks = probe_tasks(topology, planned, timeout_s)
    found: dict[int, dict[str, Any]] = {}
    clients: list[subprocess.Popen[bytes]] = []
    lock, interrupted = threading.Lock(), threading.Event()

    def gather(edge: str) -> None:
        client = _start(popen, edge, tasks[edge], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        clients.append(client)
        if interrupted.is_set():
            client.kill()
        out, err = pipe(client.stdout), pipe(client.stderr)
        with out, err:
            for line in out:
                result = json.loads(line)
                with lock:
                    found[result["id"]] = result
                    if progress is not None:
                        progress(len(found), len(planned))
            last_line = err.read().decode(errors="replace").strip().splitlines()[-1:]
        if client.wait() != 0:
            raise LabError(f"{edge}: the probing client ended with exit code {client.returncode}: {last_line}")

    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        try:
            running = {pool.submit(gather, edge) for edge in tasks}
            # Not without end: a Ctrl-C in the moment before a wait is noticed when that is over.
            while running:
                done, running = wait(running, timeout=1, return_when=FIRST_EXCEPTION)
                for one in done:
                    one.result()
        except BaseException:
            # The pool waits for its threads, and they for their clients: Ctrl-C must not wait for the last probe.
            interrupted.set()
            for client in list(clients):
                client.kill()
            raise
    return [
        Probe(
            src=plan.src,
            dst=plan.dst,
            src_edge=plan.src_edge,
            dst_edge=plan.dst_edge,
            size_bytes=plan.size_bytes,
            rtt_ms=topology.rtt(plan.src, plan.dst),
            connect_ms=found[place]["connect_ms"],
            transfer_ms=found[place]["transfer_ms"],
            ok=found[place]["ok"],
            error=found[place]["error"],
        )
        for place, plan in enumerate(planned)
    ]


def _start(popen: Popen, edge: str, task: Mapping[str, Any], **options: Any) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(host.REPOSITORY)}
    client = popen(edge, _COMMAND, stdin=subprocess.PIPE, env=environment, **options)
    with pipe(client.stdin) as stdin:
        stdin.write(json.dumps(task).encode())
    return client


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """Raises LabError where a process was started without this stream."""
    if stream is None:
        raise LabError("a client was started without its pipes")
    return stream
