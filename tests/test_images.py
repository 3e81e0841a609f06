"""The OCI images of a release, run as a runtime would.

Long: the release and the images are made once, and the controller's stands on packages from Debian.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from testkit.debian import ROOT, once, run
from testkit.images import PARTS, Image, first_round, unpacked
from testkit.release import shared

pytestmark = [pytest.mark.proof, pytest.mark.root]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = shared(tmp_path_factory)
    return once(tmp_path_factory, "images", lambda folder: run(ROOT / "tools/images", release, folder))


@pytest.fixture(scope="module")
def parts(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    return {part: unpacked(images, part, tmp_path_factory.mktemp(part)) for part in PARTS}


@pytest.fixture(params=PARTS)
def image(request: pytest.FixtureRequest, parts: dict[str, Image]) -> Image:
    return parts[str(request.param)]


def test_checksums_are_of_every_image(images: Path) -> None:
    assert {path.name for path in images.iterdir()} == {
        "SHA256SUMS",
        *(f"springtide-{part}_{VERSION}_oci.tar" for part in PARTS),
    }
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=images, check=True)


def test_it_says_what_it_is(image: Image) -> None:
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}
    assert (labels["title"], labels["version"]) == (f"springtide-{image.part}", VERSION)
    assert set(labels) == {"title", "version", "description", "licenses", "vendor", "created", "revision"}
    assert image.processor == run("dpkg", "--print-architecture").stdout.strip()
    assert image.config["User"] == ("0:0" if image.part == "edge" else "10001:10001")
    entry = [] if image.part == "controller" else [f"springtide-{image.part}"]
    assert image.config.get("Entrypoint", []) == entry
    assert list(image.config["Volumes"]) == ["/var/lib/springtide"]


@pytest.mark.parametrize("part", ["collector", "edge"])
def test_its_program_runs(parts: dict[str, Image], part: str) -> None:
    assert parts[part].run("--version").split() == [f"springtide-{part}", VERSION]


def test_the_collector_reads_sockets_and_keeps_what_it_cannot_send(parts: dict[str, Image]) -> None:
    sent = ("--kafka", "127.0.0.1:9", "--kafka-option", "security.protocol=ssl", "--polls", "2", "--interval", "10ms")
    parts["collector"].run("run", *sent)
    assert list((parts["collector"].root / "var/lib/springtide/queue").iterdir())


def test_the_edge_program_says_what_the_host_supports(parts: dict[str, Image]) -> None:
    """Routes it can use; of the eBPF program it finds nothing, without the host's /sys."""
    report = json.loads(parts["edge"].run("check", "--json", code=3))
    assert report["routes"]["supported"] is True
    assert report["kernel"] == os.uname().release


def test_the_controllers_programs_run(parts: dict[str, Image]) -> None:
    controller = parts["controller"]
    assert controller.run(*controller.config["Cmd"]).startswith("Usage: springtide")
    assert VERSION in controller.run("springtide", "--version")
    assert controller.run("springtide", "check", "--defaults").count("\n") > 50
    files = json.loads(controller.run("springtide", "files", "--json"))
    assert all((controller.root / path.removeprefix("/")).exists() for path in files.values())
    assert "ansible-playbook" in controller.run("ansible-playbook", "--version")
    controller.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/var/lib/springtide/key")
    assert controller.run("id", "--user", "--name") == "springtide\n"
    assert controller.run("awk", "BEGIN { print 6 * 7 }") == "42\n"


def test_the_controllers_image_makes_a_store_and_decides_as_this_checkout(
    parts: dict[str, Image], tmp_path: Path
) -> None:
    there, here = first_round(parts["controller"], tmp_path)
    assert there["written"] == 1
    assert there == here


def test_the_controller_stands_on_packages_that_scanners_see(parts: dict[str, Image]) -> None:
    """Nothing of this machine is in it, and Python trusts Debian's authorities."""
    controller = parts["controller"]
    shown = controller.run("dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\n").splitlines()
    assert {"installed python3", "installed openssh-client", "installed bash"} <= set(shown)
    assert {line.split()[0] for line in shown} == {"installed"}
    for package in (line.split()[1] for line in shown):
        assert (controller.root / "usr/share/doc" / package).exists()
    count = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    assert int(controller.run("python", "-c", count)) > 100
    assert not [name for name in ("hostname", "resolv.conf") if (controller.root / "etc" / name).exists()]


def test_the_controllers_modules_are_compiled_and_stay_so(parts: dict[str, Image]) -> None:
    """Python looks for no change of their sources (PEP 552), whose times are not those that they had. They name them by
    their paths in the image."""
    root = parts["controller"].root
    compiled = [file for folder in ("opt/springtide/lib", "usr/lib") for file in (root / folder).rglob("*.pyc")]
    assert len(compiled) > 1000
    for file in compiled:
        content = file.read_bytes()
        assert int.from_bytes(content[4:8], "little") == 0b01, file
        assert f"/{file.parents[1].relative_to(root)}/".encode() in content, file
    sources = list((root / "opt/springtide/lib").rglob("springtide/**/*.py"))
    assert sources
    assert not [file for file in sources if not list((file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"))]


@pytest.mark.parametrize("part", ["collector", "edge"])
def test_a_program_brings_its_libraries_their_notices_and_nothing_else(parts: dict[str, Image], part: str) -> None:
    name, root = f"springtide-{part}", parts[part].root
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    packages = {file.rpartition("/")[2] for file in files if file.startswith("var/lib/dpkg/status.d/")}
    for package in (*packages, name):
        assert f"usr/share/doc/{package}/copyright" in files
    assert f"usr/share/doc/{name}/notices.txt.gz" in files
    assert ("etc/ssl/certs/ca-certificates.crt" in files) is (part == "collector")
    known = ("usr/share/doc/", "var/lib/dpkg/", "var/lib/springtide/", "lib/", "lib64/")
    rest = {file for file in files if not file.startswith(known)}
    assert rest <= {
        f"usr/bin/{name}",
        *(f"etc/{file}" for file in ("passwd", "group", "nsswitch.conf", "ssl/certs/ca-certificates.crt")),
    }


def test_the_same_release_gives_the_same_bytes(
    images: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A copy of it too, whose files have other times."""
    copy = tmp_path / "release"
    shutil.copytree(shared(tmp_path_factory), copy, copy_function=shutil.copyfile)
    run(ROOT / "tools/images", copy, tmp_path / "again")
    for part in PARTS:
        name = f"springtide-{part}_{VERSION}_oci.tar"
        assert (images / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
