"""Kernels from Debian's suites, through the package source that this machine uses."""

from __future__ import annotations

import lzma
import re
import subprocess
from pathlib import Path

import zstandard

# Kernel series -> suite.
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.3": "trixie-backports", "7.2": "sid"}
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Modules of a kernel that a guest needs, each after those that it needs itself.
MODULES = ("inet_diag", "tcp_diag", "veth", "tcp_bbr", "tun", "sch_netem", "sch_tbf")


def source() -> str:
    """The address of Debian's main archive in this machine's own settings."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(SUITE) $(RELEASE)", "Created-By: Packages"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")
    for line in lines:
        if re.search(r" (bookworm|trixie|stable|oldstable)$", line):
            return line.split()[0]
    raise OSError("no Debian archive in apt's sources: run `apt-get update` on a Debian machine")


def kernel(series: str, cache: Path) -> Path:
    """The folder of an unpacked kernel of this series, downloaded once. Raises OSError, CalledProcessError."""
    folder = cache / series
    if (folder / "done").exists():
        return folder
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {source()} {SUITES[series]} main\n")
    options = [
        f"-oDir::Etc::sourcelist={apt}/sources.list",
        "-oDir::Etc::sourceparts=-",
        f"-oDir::State::lists={apt}/lists",
        f"-oDir::Cache={apt}/cache",
    ]
    subprocess.run(["apt-get", *options, "update", "-q"], check=True, capture_output=True)
    found = subprocess.run(["apt-cache", *options, "pkgnames"], check=True, capture_output=True, text=True).stdout
    form = re.compile(rf"linux-(image|binary|modules)-{re.escape(series)}[.0-9]*[-+].*cloud-amd64(-unsigned)?")
    names = [name for name in found.split() if form.fullmatch(name) and "unsigned" not in name]
    if not names:
        raise OSError(f"Debian's {SUITES[series]} has no cloud kernel {series}: take another series")
    newest = max(_version(name) for name in names)
    names = [name for name in names if _version(name) == newest]
    subprocess.run(["apt-get", *options, "download", *names], check=True, capture_output=True, cwd=apt)
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    (folder / "done").touch()
    return folder


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", name.split("-", 2)[2].partition("-cloud")[0]))


def image(folder: Path) -> Path:
    """The kernel itself."""
    return next(one for form in ("boot/vmlinuz*", "**/vmlinuz*") for one in folder.glob(form))


def modules(folder: Path) -> dict[str, bytes]:
    """File name -> content of MODULES, in their order; one that is built in is left out."""
    found = {}
    for name in MODULES:
        for file in folder.glob(f"**/{name}.ko*"):
            content = file.read_bytes()
            if file.suffix == ".xz":
                content = lzma.decompress(content)
            elif file.suffix == ".zst":
                content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
            found[f"{name}.ko"] = content
    return found
