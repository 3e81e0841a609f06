"""OCI images of tools/images: unpacked by umoci, entered in namespaces of their own, and run as a runtime would."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide import instants

from testkit.debian import run
from testkit.home import FLEET, Home
from testkit.spool import record, write_spool
from testkit.traffic import MSS, Socket

PARTS = ("collector", "edge", "controller")
# Runs programs of arm64 elsewhere. It is linked statically, and brought into images that need it.
EMULATOR = "qemu-aarch64-static"
PYTHON = "/opt/springtide/bin/python"
# As a runtime does: no network but loopback, no other processes, the image's environment and user.
ENTER = """
ip link set lo up
mkdir -p {root}/proc
mount -t proc none {root}/proc
exec setpriv --no-new-privs env --ignore-environment {environment} chroot --userspec={user} {root} "$@"
"""
ROUND_S = 300


@dataclass(frozen=True)
class Image:
    """One of them, unpacked: its files, what it says of itself, and whether its programs need the emulator."""

    part: str
    root: Path
    config: dict[str, Any]
    processor: str
    is_emulated: bool

    def run(self, *arguments: str, code: int = 0) -> str:
        """Runs its entry point, or the command where it has none, as its user, and returns the output."""
        environment = " ".join(self.config["Env"])
        script = ENTER.format(root=self.root, environment=environment, user=self.config["User"])
        command = [*self.config.get("Entrypoint", []), *arguments]
        if self.is_emulated:
            command[:1] = self._emulated(command[0])
        spaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "sh", "-euc", script, "sh"]
        done = subprocess.run([*spaces, *command], capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _emulated(self, name: str) -> list[str]:
        """The emulator, which starts no scripts: it runs their interpreter, and all that are run here are Python's."""
        [path] = [entry.removeprefix("PATH=") for entry in self.config["Env"] if entry.startswith("PATH=")]
        program = next(f"{folder}/{name}" for folder in path.split(":") if (self.root / f".{folder}/{name}").exists())
        is_script = (self.root / f".{program}").read_bytes().startswith(b"#!")
        return [f"/{EMULATOR}", *([PYTHON] if is_script else []), program]


def unpacked(images: Path, part: str, folder: Path) -> Image:
    [packed] = images.glob(f"springtide-{part}_*_oci.tar")
    layout, root = folder / "layout", folder / "bundle/rootfs"
    layout.mkdir()
    run("tar", "--extract", "--directory", layout, "--file", packed)
    run("umoci", "unpack", "--image", f"{layout}:{packed.name.split('_')[1]}", folder / "bundle")

    def blob(digest: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
        return found

    [manifest] = json.loads((layout / "index.json").read_text())["manifests"]
    config = blob(blob(manifest["digest"])["config"]["digest"])
    processor = config["architecture"]
    assert manifest["platform"] == {"architecture": processor, "os": "linux"}
    assert config["os"] == "linux"
    shutil.rmtree(layout)
    is_emulated = processor != run("dpkg", "--print-architecture").stdout.strip()
    if is_emulated:
        shutil.copy(shutil.which(EMULATOR) or EMULATOR, root)
    return Image(part, root, config["config"], processor, is_emulated)


def first_round(controller: Image, folder: Path) -> tuple[Any, Any]:
    """Decisions over the same samples: the image's, in a store that it makes, and this checkout's, in `folder`."""
    end = int(time.time()) // ROUND_S * ROUND_S - ROUND_S
    sockets = [Socket("ams-1", number, "10.77.1.1", "10.77.2.9", "ams") for number in range(1, 4)]
    rows = [
        each.at(end - (4 - poll) * ROUND_S / 2 + 5, poll + 1, (poll + 1) * each.snd_cwnd * MSS * 2)
        for each in sockets
        for poll in range(4)
    ]
    here, spool = Home(folder), "/var/spool/springtide"
    for place in (controller.root / f".{spool}", here.spool):
        write_spool(place, "samples", [record(rows)])
    # A runtime writes it.
    (controller.root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (controller.root / "etc/springtide").mkdir()
    for fleet in (controller.root / "etc/springtide/fleet.yaml", here.fleet):
        fleet.write_text(FLEET)
    here.policy.write_text("{}\n")
    decide = ("decide", "initcwnd", "--round", instants.show(end), "--json")
    for step in (("migrate",), ("ingest", spool)):
        controller.run("springtide", *step)
    for step in (("migrate",), ("ingest", str(here.spool))):
        here.run(*step)
    return json.loads(controller.run("springtide", *decide)), json.loads(here.run(*decide).stdout)
