"""A release for arm64 and its images, made on another machine: what they are for, and that programs run (emulated by
qemu)."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from testkit.debian import PACKAGES, once, run

pytestmark = [pytest.mark.proof, pytest.mark.root]
ROOT = Path(__file__).resolve().parents[1]
CAPTURES = sorted((ROOT / "collector/tests/captures").glob("*.pcap"))
EMULATOR = "qemu-aarch64-static"
# An ELF file's header, from e_type on: its machine is 183, AArch64 (elf.h).
MACHINE_AT, AARCH64 = slice(18, 20), (183).to_bytes(2, "little")


def made(folder: Path) -> None:
    run(ROOT / "tools/release", "--arm64", folder)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "arm64", made)


@pytest.fixture(scope="module")
def programs(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which both packages are unpacked."""
    root = tmp_path_factory.mktemp("unpacked")
    for name in PACKAGES:
        [package] = release.glob(f"{name}_*_arm64.deb")
        run("dpkg-deb", "--extract", package, root)
    return root / "usr/bin"


@pytest.fixture(scope="module")
def images(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OCI images of the parts that this machine can make for that processor."""
    folder = tmp_path_factory.mktemp("images")
    environment = {**os.environ, "ARM64": "1"}
    subprocess.run([ROOT / "tools/images", release, folder], env=environment, check=True)
    return folder


def emulated(*command: str | Path) -> str:
    return run(EMULATOR, *command).stdout


def test_all_of_it_is_for_that_processor_alone(release: Path, programs: Path) -> None:
    names = sorted(path.name for path in release.iterdir())
    assert not [name for name in names if "amd64" in name or "x86_64" in name]
    for name in PACKAGES:
        [deb], [rpm] = release.glob(f"{name}_*_arm64.deb"), release.glob(f"{name}-*.aarch64.rpm")
        assert run("dpkg-deb", "--field", deb, "Architecture").stdout == "arm64\n"
        assert run("rpm", "--query", "--package", "--queryformat", "%{ARCH}", rpm).stdout == "aarch64"
        assert (programs / name).read_bytes()[MACHINE_AT] == AARCH64
        assert "libc6 (>=" in run("dpkg-deb", "--field", deb, "Depends").stdout
    [wheel] = release.glob("*.whl")
    assert wheel.name.endswith("-cp311-abi3-linux_aarch64.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read("springtide/_core.abi3.so")[MACHINE_AT] == AARCH64
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=release, check=False)
    assert checked.returncode == 0


def test_the_collector_reads_captures_as_this_machines_does(programs: Path) -> None:
    """Captures of several kernels, field by field: byte order, alignment and sizes of structs are the same."""
    assert len(CAPTURES) > 2
    for capture in CAPTURES:
        here = run(ROOT / "target/release/springtide-collector", "decode", capture).stdout
        assert len(here.splitlines()) > 3
        assert emulated(programs / "springtide-collector", "decode", capture) == here


def test_the_edges_program_says_what_it_finds(programs: Path, tmp_path: Path) -> None:
    """It looks at a bundle as on this machine. The emulator has no bpf(2): it names the reason, and does not crash."""
    edge = programs / "springtide-edge"
    assert emulated(edge, "--version") == run(ROOT / "target/release/springtide-edge", "--version").stdout
    torn = tmp_path / "ams-1.json"
    torn.write_text("{")
    said = [
        subprocess.run([*how, "verify", str(torn)], capture_output=True, text=True, check=False)
        for how in ([str(ROOT / "target/release/springtide-edge")], [EMULATOR, str(edge)])
    ]
    assert said[0].returncode != 0
    assert (said[0].returncode, said[0].stderr) == (said[1].returncode, said[1].stderr)
    checked = subprocess.run([EMULATOR, str(edge), "check", "--json"], capture_output=True, text=True, check=False)
    assert isinstance(json.loads(checked.stdout), dict)


@pytest.mark.parametrize("name", PACKAGES)
def test_an_image_is_for_that_processor_and_its_program_runs_with_the_images_libraries(
    images: Path, tmp_path: Path, name: str
) -> None:
    assert {path.name.partition("_")[0] for path in images.glob("*.tar")} == set(PACKAGES)
    [packed] = images.glob(f"{name}_*_oci.tar")
    layout, root = tmp_path / "layout", tmp_path / "bundle/rootfs"
    layout.mkdir()
    run("tar", "--extract", "--directory", layout, "--file", packed)
    version = packed.name.split("_")[1]
    run("umoci", "unpack", "--image", f"{layout}:{version}", tmp_path / "bundle")
    [listed] = json.loads((layout / "index.json").read_text())["manifests"]
    assert listed["platform"] == {"architecture": "arm64", "os": "linux"}
    config = blob(layout, blob(layout, listed["digest"])["config"]["digest"])
    assert (config["architecture"], config["os"]) == ("arm64", "linux")
    for file in (root / "usr/bin" / name, *root.rglob("*.so*")):
        assert file.read_bytes()[MACHINE_AT] == AARCH64, file
    assert "Architecture: arm64\n" in (root / "var/lib/dpkg/status.d/libc6").read_text()
    # With the image's loader and its libraries alone.
    loader, libraries = root / "lib/ld-linux-aarch64.so.1", root / "lib/aarch64-linux-gnu"
    shown = emulated(loader, "--inhibit-cache", "--library-path", libraries, root / "usr/bin" / name, "--version")
    assert shown.split() == [name, version]


def blob(layout: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
    return found


def test_the_controllers_image_is_refused_with_the_way_to_make_it(release: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [ROOT / "tools/images", release, tmp_path, "controller"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "make it on a machine with arm64" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
