"""The product's command lines, as the demo and the cross-component tests call them: as its users do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
COLLECTOR = ROOT / "target/release/springtide-collector"
EDGE = ROOT / "target/release/springtide-edge"


class CommandError(LabError):
    """A command of the product failed; the message is its own last line and its exit code."""

    def __init__(self, command: list[str], code: int, output: str) -> None:
        last = output.strip().splitlines()[-1] if output.strip() else "no output"
        super().__init__(f"{' '.join(command)} ended with exit code {code}: {last}")
        self.code = code


def run(command: list[str], accept: tuple[int, ...] = (0,)) -> str:
    """Runs the command and returns what it printed. Raises CommandError for an exit code outside `accept`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in accept:
        raise CommandError(command, done.returncode, done.stderr or done.stdout)
    return done.stdout


@dataclass(frozen=True)
class Springtide:
    """`springtide` with one store, fleet, policy and publisher's folder."""

    store: Path
    fleet: Path
    policy: Path
    publish_dir: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line, with the options that this command takes."""
        options = {
            "--store": f"chdb://{self.store}",
            "--fleet": str(self.fleet),
            "--policy": str(self.policy),
            "--publish-dir": str(self.publish_dir),
        }
        takes = {
            "migrate": ("--store",),
            "sql": ("--store",),
            "rollup": ("--store", "--fleet", "--policy", "--publish-dir"),
            "ingest": ("--store", "--fleet"),
            "consume": ("--store", "--fleet"),
            "status": ("--store", "--fleet", "--policy", "--publish-dir"),
            "decide": ("--store", "--fleet", "--policy", "--publish-dir"),
            "explain": ("--store", "--fleet", "--policy", "--publish-dir"),
            "bundle": ("--store", "--fleet", "--policy"),
            "publish": ("--store", "--fleet", "--policy", "--publish-dir"),
            "validate": ("--fleet", "--policy"),
            "check": ("--fleet", "--policy"),
        }[arguments[0]]
        named = [word for option in takes for word in (option, options[option])]
        return [str(Path(sys.executable).with_name("springtide")), *arguments, *named]

    def json(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> Any:
        """The command's `--json` answer."""
        return json.loads(run(self.command(*arguments, "--json"), accept))

    def text(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
        """Returns what the command prints for people."""
        return run(self.command(*arguments), accept)

    def environment(self) -> str:
        """Lines for a shell that then finds the programs; `springtide` without options works on this store."""
        values = {
            "SPRINGTIDE_STORE": f"chdb://{self.store}",
            "SPRINGTIDE_FLEET": str(self.fleet),
            "SPRINGTIDE_POLICY": str(self.policy),
            "SPRINGTIDE_PUBLISH_DIR": str(self.publish_dir),
        }
        programs = f"{Path(sys.executable).parent}:{COLLECTOR.parent}"
        path = f'export PATH={shlex.quote(programs)}:"$PATH"'
        return "\n".join([path, *(f"export {name}={shlex.quote(value)}" for name, value in values.items())]) + "\n"


def shell_note(text: str) -> str:
    """A line for a shell that prints a text where errors go: nothing that reads the output sees it."""
    return f"printf '%s\\n' {shlex.quote(text)} >&2\n"


def make_publisher(key: Path, allowed_signers: Path) -> None:
    """A key for the publisher, fresh for each run, and the file that makes edges trust it."""
    public = key.with_suffix(".pub")
    for old in (key, public):
        old.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "publisher", "-f", str(key)])
    allowed_signers.write_text(f'springtide namespaces="springtide-bundle" {public.read_text()}')
    allowed_signers.chmod(0o644)
