"""A guest: an initial file system with our programs, booted once."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testkit.kernels.debian import image, modules

ROOT = Path(__file__).parents[2]
PROGRAMS = ("target/release/springtide-edge", "target/release/springtide-collector")
TOOLS = ("ip", "ss", "bpftool", "tc")
BUSYBOX = "sh mount mkdir ls cat sleep poweroff echo insmod uname grep sed nc mkfifo dd"
# By emulation a boot takes some ten seconds, the checks a minute, the five paths three; another load doubles that.
LIMIT_S = 600


def boot(folder: Path, files: Mapping[str, bytes], more: str = "", init: str = "init.sh") -> str:
    """The guest's output. `files` go into its root, `more` to the kernel's command line; `init` is what it runs."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "root"
        _fill(root, folder, files, init)
        initrd = Path(made) / "initrd"
        listed = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
        packed = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=listed, capture_output=True, check=True
        )
        initrd.write_bytes(packed.stdout)
        command: list[str | Path] = [
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            "1024",
            "-nographic",
            "-no-reboot",
        ]
        command += ["-nic", "none", "-rtc", "base=utc", "-kernel", image(folder), "-initrd", initrd]
        command += ["-append", f"console=ttyS0 quiet panic=-1 {more}"]
        try:
            said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S).stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
    return said.decode(errors="replace").replace("\r", "")


def _fill(root: Path, folder: Path, files: Mapping[str, bytes], init: str) -> None:
    for part in ("bin", "proc", "sys", "dev", "tmp", "modules"):
        (root / part).mkdir(parents=True)
    shutil.copy2("/usr/bin/busybox", root / "bin/busybox")
    for name in BUSYBOX.split():
        (root / "bin" / name).symlink_to("busybox")
    for program in (*(ROOT / one for one in PROGRAMS), *(Path(shutil.which(one) or one) for one in TOOLS)):
        # Debug information is what most of our programs is, and an emulated machine unpacks it slowly.
        subprocess.run(["strip", "-o", root / "bin" / program.name, program], check=True)
        for library in re.findall(
            r"(/\S+)", subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        ):
            target = root / library[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)
    found = modules(folder)
    (root / "modules/order").write_text("\n".join(found))
    for name, content in found.items():
        (root / "modules" / name).write_bytes(content)
    for name, content in files.items():
        (root / name).write_bytes(content)
        (root / name).chmod(0o700)
    shutil.copy2(Path(__file__).with_name(init), root / "init")
    (root / "init").chmod(0o700)
