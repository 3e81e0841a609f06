"""This machine once more, under a layer of its own: what is installed and written there is gone at the end.

An overlay over the root, entered by chroot; this machine's programs and packages are there, its network too, this
checkout is not. No systemd runs in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STOP_S = 30  # after a signal, before the next: what takes longer is killed, and fails nothing
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# The layer lies in memory: a root that is an overlay itself, a container's for instance, takes no other beneath it.
LAYER = """
mount -t tmpfs -o mode=0755 none {own}
mkdir {own}/changed {own}/work {own}/root
mount -t overlay overlay -o lowerdir=/,upperdir={own}/changed,workdir={own}/work {own}/root
mount -t proc none {own}/root/proc
mount --rbind /dev {own}/root/dev
mount -t tmpfs none {own}/root/run
mount -t tmpfs -o mode=1777 none {own}/root/tmp
mkdir -p {own}/root{checkout}
mount -t tmpfs none {own}/root{checkout}
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Machine:
    """Commands and files of it; `process` holds its namespace, `own` is its folder there."""

    process: int
    own: Path

    @property
    def root(self) -> Path:
        """Its root, as seen from outside."""
        return Path(f"/proc/{self.process}/root{self.own}/root")

    def environment(self) -> dict[str, str]:
        """Environment of every command. The Python that runs this goes first: its wheels are in uv's cache."""
        python = Path(getattr(sys, "_base_executable", sys.executable)).resolve().parent
        return {"PATH": f"{python}:{PATH}", "HOME": str(Path.home()), "LC_ALL": "C.UTF-8"}

    def command(self, script: str, folder: str = "/") -> list[str]:
        """A command that runs a script of bash there, which ends at the first command that fails."""
        inside = f"cd {folder} && set -euo pipefail\n{script}"
        return ["nsenter", f"--target={self.process}", "--mount", "chroot", f"{self.own}/root", "bash", "-c", inside]

    def run(self, script: str, folder: str = "/", given: str = "", more: Mapping[str, str] | None = None) -> str:
        """Returns the script's output; fails where that does. No terminal; `given` is its input, `more` environment."""
        done = subprocess.run(
            self.command(script, folder),
            input=given,
            env={**self.environment(), **(more or {})},
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self, script: str, log: Path) -> Iterator[None]:
        """The script's last command as a service, in a session of its own that ends with the block."""
        with (
            log.open("wb") as written,
            subprocess.Popen(
                self.command(script),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield
            finally:
                for number in (signal.SIGTERM, signal.SIGKILL):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_S)


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """A new one, which ends with the block. Needs root."""
    assert os.geteuid() == 0, "a machine is made of mounts: run this as root"
    with tempfile.TemporaryDirectory(prefix="springtide-machine-") as own:
        script = "set -e" + LAYER.format(own=own, checkout=ROOT)
        command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "ready\n", "the layer could not be mounted"
                yield Machine(holder.pid, Path(own))
            finally:
                holder.kill()
