"""A release for arm64 and its images, made on another machine: what they are for, and that programs run (emulated by
qemu)."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from testkit.debian import PACKAGES, once, run
from testkit.images import EMULATOR, PARTS, Image, first_round, unpacked

pytestmark = [pytest.mark.proof, pytest.mark.root]
ROOT = Path(__file__).resolve().parents[1]
CAPTURES = sorted((ROOT / "collector/tests/captures").glob("*.pcap"))
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
def images(release: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    """The OCI images of its parts, unpacked."""
    folder = tmp_path_factory.mktemp("images")
    run(ROOT / "tools/images", release, folder)
    return {part: unpacked(folder, part, tmp_path_factory.mktemp(part)) for part in PARTS}


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


@pytest.mark.parametrize("part", PARTS)
def test_an_image_is_for_that_processor_and_its_program_runs(
    images: dict[str, Image], release: Path, part: str
) -> None:
    image = images[part]
    assert image.processor == "arm64"
    heads = {file: head(file) for file in image.root.rglob("*") if file.is_file() and not file.is_symlink()}
    del heads[image.root / EMULATOR]
    programs = {file: read for file, read in heads.items() if read.startswith(b"\x7fELF")}
    assert len(programs) > (500 if part == "controller" else 1)
    assert not [file for file, read in programs.items() if read[MACHINE_AT] != AARCH64]
    status = "status" if part == "controller" else "status.d/libc6"
    assert "Architecture: arm64\n" in (image.root / "var/lib/dpkg" / status).read_text()
    [wheel] = release.glob("*.whl")
    asked = ["springtide", "--version"] if part == "controller" else ["--version"]
    assert image.run(*asked).split()[-1] == wheel.name.split("-")[1]


def head(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(MACHINE_AT.stop)


def test_the_controllers_programs_run(images: dict[str, Image]) -> None:
    controller = images["controller"]
    assert controller.run(*controller.config["Cmd"]).startswith("Usage: springtide")
    assert controller.run("springtide", "check", "--defaults").count("\n") > 50
    assert "ansible-playbook" in controller.run("ansible-playbook", "--version")
    controller.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/var/lib/springtide/key")


def test_the_controllers_image_makes_a_store_and_decides_as_this_checkout(
    images: dict[str, Image], tmp_path: Path
) -> None:
    """With chDB, numpy and the compiled module of that processor."""
    there, here = first_round(images["controller"], tmp_path)
    assert there["written"] == 1
    assert there == here
