"""The real collector as a process: started, stopped, killed, and its log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).parents[1]


class CollectorError(RuntimeError):
    """The collector is not built, or did not do what was expected; its own output is in the message."""


def binary() -> Path:
    """The collector as cargo built it for release, or the one in PATH."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", _ROOT / "target")) / "release" / "springtide-collector"
    if built.exists():
        return built
    found = shutil.which("springtide-collector")
    if found is None:
        raise CollectorError("the collector is not built: cargo build --release")
    return Path(found)


class Collector:
    """`springtide-collector run` with `arguments`, in the network namespace of the calling thread, or where `inside`,
    the words that begin a command line there (`Lab.command`), puts it."""

    def __init__(
        self, log: Path, *arguments: object, environment: dict[str, str] | None = None, inside: Sequence[str] = ()
    ) -> None:
        self.log = log
        self.inside = inside
        self.arguments = [str(argument) for argument in arguments]
        self.environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process's number."""
        if self._process is None:
            raise CollectorError("the collector does not run")
        return self._process.pid

    def start(self) -> Self:
        """Start it; it appends to the same log."""
        command = [*self.inside, str(binary()), "run", "--netns", "own", "--stats", *self.arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, **self.environment}
            )
        return self

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text()

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it cannot clean up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, within_s: float = 15.0) -> dict[str, Any]:
        """SIGTERM, and its counters. Raises CollectorError when it does not end within that time, or not well.

        Sinks that answer take 0.1 s, others their four; systemd kills it after fifteen.
        """
        if self._process is None:
            raise CollectorError("the collector does not run")
        self._process.send_signal(signal.SIGTERM)
        return self.ended(within_s)

    def ended(self, within_s: float = 60.0) -> dict[str, Any]:
        """The counters of a process that ends by itself. Raises CollectorError when it does not, or not well."""
        if self._process is None:
            raise CollectorError("the collector does not run")
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise CollectorError(f"it does not end within {within_s} s:\n{self.text()[-2000:]}") from None
        self._process = None
        lines = self.text().splitlines()
        if code != 0 or not lines or not lines[-1].startswith("{"):
            raise CollectorError(f"exit code {code}:\n{self.text()[-2000:]}")
        counters: dict[str, Any] = json.loads(lines[-1])
        return counters

    def memory_kib(self) -> int:
        """Its largest resident set so far."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
        raise CollectorError("the kernel does not report the collector's memory")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            state = "runs" if self.running() else "has ended"
            error.add_note(f"the collector {state}; {self.log}:\n{self.text()[-2000:]}")
        self.kill()


def wait_until(what: str, condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait for something that must come; raises CollectorError with its name when it does not.

    What tests wait for comes within three seconds; a minute is for a machine that stands still.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise CollectorError(f"within {within_s} s there was no {what}")
        time.sleep(0.05)
