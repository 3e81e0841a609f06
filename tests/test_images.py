"""The OCI images of a release: unpacked by umoci, entered in namespaces of their own, and run as a runtime would.

Long: the release and the images are made once, and the controller's stands on packages from Debian.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.debian import ROOT, once, run
from testkit.release import shared

pytestmark = [pytest.mark.proof, pytest.mark.root]
PARTS = ("collector", "edge", "controller")
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
# As a runtime does: no network, no other processes, the image's environment and user.
ENTER = """
mkdir -p {root}/proc
mount -t proc none {root}/proc
exec setpriv --no-new-privs env --ignore-environment {environment} chroot --userspec={user} {root} "$@"
"""


@dataclass(frozen=True)
class Image:
    """One of them, unpacked: its files, and what it says of itself."""

    part: str
    root: Path
    config: dict[str, Any]

    def run(self, *arguments: str, code: int = 0) -> str:
        """Runs its entry point, or the command where it has none, as its user, and returns the output."""
        environment = " ".join(self.config["Env"])
        script = ENTER.format(root=self.root, environment=environment, user=self.config["User"])
        command = [*self.config.get("Entrypoint", []), *arguments]
        spaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "sh", "-euc", script, "sh"]
        done = subprocess.run([*spaces, *command], capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = shared(tmp_path_factory)
    return once(tmp_path_factory, "images", lambda folder: run(ROOT / "tools/images", release, folder))


def unpacked(images: Path, part: str, folder: Path) -> Image:
    layout = folder / "layout"
    layout.mkdir()
    run("tar", "--extract", "--directory", layout, "--file", images / f"springtide-{part}_{VERSION}_oci.tar")
    run("umoci", "unpack", "--image", f"{layout}:{VERSION}", folder / "bundle")

    def blob(digest: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())
        return found

    [manifest] = json.loads((layout / "index.json").read_text())["manifests"]
    config = blob(blob(manifest["digest"])["config"]["digest"])
    assert manifest["platform"] == {"architecture": config["architecture"], "os": config["os"]}
    assert config["os"] == "linux"
    assert config["architecture"] == run("dpkg", "--print-architecture").stdout.strip()
    return Image(part, folder / "bundle/rootfs", config["config"])


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
    assert list((controller.root / "usr/share/doc/python3").glob("copyright"))
    assert not list((controller.root / "srv").iterdir())


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
    """But for the controller's, which would take the minutes once more."""
    parts = [part for part in PARTS if part != "controller"]
    run(ROOT / "tools/images", shared(tmp_path_factory), tmp_path / "again", *parts)
    for part in parts:
        name = f"springtide-{part}_{VERSION}_oci.tar"
        assert (images / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
